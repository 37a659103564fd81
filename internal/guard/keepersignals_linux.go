package guard

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/internal/guard/early"
)

// A guard takes no signal through the runtime: to have a handler there takes two switches of threads a signal, and
// the start of a job would wait for them.
//
// What its loop has to know of is blocked in all its threads, since its wrapper forks it from one where it is. A job
// is forked from a thread where it is not.
func guardMask() unix.Sigset_t { return signalSet(early.Signals[:]...) }

// takeGuardSignals returns a descriptor that can be read when one of the guardMask has come. The signals that are
// sent to the whole group to end it are ignored; all of these have a handler of the runtime, so that it gives the
// job their default back. Those that were ignored when we came have none and stay so, in the job too.
func takeGuardSignals() (fd int, err error) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		d := ignoring()
		if err := sigaction(sig, &d, nil); err != nil {
			return -1, os.NewSyscallError("sigaction", err)
		}
	}
	set := guardMask()
	if fd, err = unix.Signalfd(-1, &set, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err != nil {
		return -1, os.NewSyscallError("signalfd", err)
	}
	return fd, nil
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
