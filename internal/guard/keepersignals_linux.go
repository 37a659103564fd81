package guard

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A guard takes no signal through the runtime: to have a handler there takes two switches of threads a signal, and
// the start of a job would wait for them.
//
// What its loop has to know of, a child's end and the alarm that woke it, and the stop key, which reaches the whole
// group that it is in until its job is started, are blocked in all its threads: its wrapper forks it from one where
// they are. A job is forked from a thread where they are not.
func guardMask() unix.Sigset_t { return signalSet(unix.SIGCHLD, unix.SIGCONT, unix.SIGTSTP) }

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
