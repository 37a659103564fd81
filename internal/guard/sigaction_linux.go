package guard

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A disposition is a struct sigaction of the kernel, kept as it is: it differs between architectures, but
// all zeros is SIG_DFL on each, and the handler is its first word on all but MIPS, where nothing counts as
// ignored.
type disposition [64]byte

const sigIgn = 1

func (d *disposition) handler() uintptr {
	if unsafe.Sizeof(uintptr(0)) == 4 {
		return uintptr(binary.NativeEndian.Uint32(d[:]))
	}
	return uintptr(binary.NativeEndian.Uint64(d[:]))
}

// ignoring is SIG_IGN.
func ignoring() (d disposition) {
	if unsafe.Sizeof(uintptr(0)) == 4 {
		binary.NativeEndian.PutUint32(d[:], sigIgn)
	} else {
		binary.NativeEndian.PutUint64(d[:], sigIgn)
	}
	return d
}

// sigaction goes around os/signal, which can neither tell how a signal was when the program came nor bring
// a default back for the signals of job control.
func sigaction(sig syscall.Signal, set, old *disposition) error {
	const setSize = 8 // 64 signals
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ignored tells whether a signal is ignored now. The runtime installs handlers for most signals before
// main; it leaves alone SIGHUP and SIGINT if they were ignored, and the signals of job control.
func ignored(sig syscall.Signal) bool {
	var d disposition
	return sigaction(sig, nil, &d) == nil && d.handler() == sigIgn
}

// byDefault lets the default action of a signal happen to this process.
func byDefault(sig syscall.Signal) {
	// On this very thread: the action happens before the call returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, old disposition
	if sigaction(sig, &none, &old) != nil {
		return
	}
	set := signalSet(sig)
	unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
	unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	sigaction(sig, &old, nil)
}

// withMask calls f with the signal mask of this thread changed so: a process that is forked there inherits it. The
// calling goroutine must be locked to its thread.
func withMask(how int, set unix.Sigset_t, f func() error) error {
	var before unix.Sigset_t
	if err := unix.PthreadSigmask(how, &set, &before); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	return f()
}

func signalSet(signals ...syscall.Signal) (set unix.Sigset_t) {
	for _, sig := range signals {
		n := uint(sig) - 1
		set.Val[n/wordBits] |= 1 << (n % wordBits)
	}
	return set
}

const wordBits = 8 * uint(unsafe.Sizeof(unix.Sigset_t{}.Val[0]))

// DieOf makes this process die of the signal that killed its job: a shell that runs it has to see that, not
// a mere number. No core is written. It returns only if dying so is impossible, as for PID 1.
func DieOf(sig syscall.Signal) {
	switch sig {
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT:
		return // no job dies of these
	}
	if sig < 1 || sig > 64 {
		return
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &limit) == nil {
		limit.Cur = 0
		unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	}
	// A core that is piped to a program heeds no limit.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if sig == unix.SIGKILL {
		unix.Kill(unix.Getpid(), sig)
		<-time.After(time.Second) // PID 1 of a namespace survives it
		return
	}
	byDefault(sig)
}
