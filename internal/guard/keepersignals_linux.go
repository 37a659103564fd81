package guard

import (
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/internal/guard/early"
)

// Until its job is started a guard takes no signal through the runtime: to have a handler there takes two switches of
// threads a signal, and the start of a job would wait for them.
//
// What must not disturb it is blocked in all its threads, since its wrapper forks it from one where it is. A job
// is forked from a thread where it is not.
func guardMask() unix.Sigset_t { return signalSet(early.Signals[:]...) }

// takeGuardSignals returns a descriptor that can be read when an alarm has come.
func takeGuardSignals() (fd int, err error) {
	set := signalSet(unix.SIGCONT)
	if fd, err = unix.Signalfd(-1, &set, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err != nil {
		return -1, os.NewSyscallError("signalfd", err)
	}
	return fd, nil
}

// hearChildren wakes the loop when a child ends or stops, from the start of the job on. The runtime never blocks
// SIGCHLD, so this one cannot be read from a descriptor, and a handler alone could come between the loop's last look
// and its poll.
func (k *keeper) hearChildren() {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGCHLD)
	k.wake.wake()     // for what came before
	for range heard { // as long as the process lives
		k.wake.wake()
	}
}

func drainSignals(fd int) {
	var buf [8 * unsafe.Sizeof(unix.SignalfdSiginfo{})]byte
	for {
		if n, err := unix.Read(fd, buf[:]); err == unix.EINTR || n == len(buf) {
			continue
		}
		return
	}
}
