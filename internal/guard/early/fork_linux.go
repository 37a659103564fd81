package early

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	// GuardName is the first argument of a guard. The second has room for the tag, which comes with the order.
	GuardName = "mutex-guard"
	noTag     = "----------------------------------------------------------------"
	MaxTag    = len(noTag)
)

// A Process is a guard process as its wrapper has it.
type Process struct {
	PID      int
	PIDFD    int // tells of its end; -1 on an old kernel
	Line     int // descriptor of a socket of type SEQPACKET
	Lifetime int // descriptor of a pipe whose only writer is the guard
}

var prepared *Process

func init() {
	if len(os.Args) == 2 && os.Args[0] == GuardName {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
			handle(sig, ignore)
		}
		return
	}
	// Until it is taken, the quit key ends this process as it ends others, without a dump of the runtime's.
	handle(syscall.SIGQUIT, byDefault)
	if len(os.Args) > 1 && os.Args[1] == "run" {
		// The runtime keeps this goroutine on the main thread now, as Fork wants it.
		if p, err := Fork(); err == nil {
			prepared = &p
		}
	}
}

// What is done at a signal: SIG_DFL and SIG_IGN.
const (
	byDefault uintptr = iota
	ignore
)

// handle goes around the runtime, which has a handler for each of these, and so gives its children the default
// back. Those that were ignored when this process came (HUP, INT) have none and stay so.
func handle(sig syscall.Signal, how uintptr) {
	var action [64 / unsafe.Sizeof(how)]uintptr // a struct sigaction of the kernel, which begins with the handler
	action[0] = how
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, setSize, 0, 0)
}

const setSize = 8 // of a signal set: 64 signals

// Take returns the process that was forked during initialisation, once, or nil.
func Take() *Process {
	p := prepared
	prepared = nil
	return p
}

// Signals are blocked in all threads of a guard: the one of its alarms, which it reads from a descriptor, and the
// stop key, which reaches the whole group that it is in until its job is started. Those that end that group are
// ignored in it, from init on; the runtime blocks none of them.
var Signals = [...]syscall.Signal{syscall.SIGCONT, syscall.SIGTSTP}

// Fork starts a guard process. This one becomes a subreaper: only it can lose what is orphaned, and it has to be
// one before anything can be. The calling goroutine must be locked to its thread. The parent-death signal of the
// guard, which wakes a stopped one, comes when that thread ends, which is when the wrapper dies: the runtime ends
// no thread, unless a goroutine ends that is locked to it.
func Fork() (Process, error) {
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		return Process{}, os.NewSyscallError("prctl", errno)
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return Process{}, os.NewSyscallError("socketpair", err)
	}
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		closeAll(pair[:])
		return Process{}, os.NewSyscallError("pipe", err)
	}
	theirs := []int{pair[1], pipe[1]}
	if fd, err := duplicate(pipe[1]); err == nil {
		syscall.Close(pipe[1])
		theirs[1] = fd
	}
	p := Process{PIDFD: -1, Line: pair[0], Lifetime: pipe[0]}
	if err = wakeOn(pipe[0]); err == nil {
		p.PID, err = forkExec(theirs, &p.PIDFD)
	}
	closeAll(theirs)
	if err != nil {
		closeAll([]int{p.Line, p.Lifetime})
		return Process{}, err
	}
	return p, nil
}

func forkExec(files []int, pidfd *int) (pid int, err error) {
	var block, before [128 / 8]uint64 // the kernel uses as much of it as it has signals
	for _, sig := range Signals {
		*(*uintptr)(unsafe.Pointer(&block)) |= 1 << (uint(sig) - 1)
	}
	if err := sigmask(sigBlock(), &block, &before); err != nil {
		return 0, err
	}
	defer sigmask(sigBlock()+2, &before, nil) // SIG_SETMASK
	// Our own environment, in which the job's variables are not: a search for the job by its environment
	// spares its guard, but finds the guard of a wrapper that was itself part of the job.
	pid, err = syscall.ForkExec("/proc/self/exe", []string{GuardName, noTag}, &syscall.ProcAttr{
		Env:   syscall.Environ(),
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), 2},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGCONT, PidFD: pidfd},
	})
	if err != nil {
		return 0, &os.PathError{Op: "start", Path: "the guard", Err: err}
	}
	return pid, nil
}

func sigmask(how uintptr, set, old *[16]uint64) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, how,
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("sigprocmask", errno)
	}
	return nil
}

// sigBlock is SIG_BLOCK.
func sigBlock() uintptr {
	if runtime.GOARCH[:min(4, len(runtime.GOARCH))] == "mips" {
		return 1
	}
	return 0
}

// duplicate makes a copy of a descriptor whose number has a free one behind it: ForkExec moves a descriptor of
// its own to the number after the highest one it is given, and that must not be one which the job inherits
// from our caller.
func duplicate(fd int) (int, error) {
	// First where hardly anybody has a descriptor, but below 64: up to there the kernel has room in each process's
	// table, and to enlarge that of a process with threads takes it some 10 ms (it waits for a grace period).
	const above, lowest = 40, 3
	for _, from := range []int{above, lowest} {
		for {
			high, err := fcntl(fd, syscall.F_DUPFD_CLOEXEC, from)
			if err != nil && from >= above {
				break // a low limit
			}
			if err != nil {
				return -1, err
			}
			if !isOpen(high + 1) {
				return high, nil
			}
			syscall.Close(high)
			from = high + 2
		}
	}
	return -1, syscall.EMFILE
}

func isOpen(fd int) bool {
	_, err := fcntl(fd, syscall.F_GETFD, 0)
	return err == nil
}

// wakeOn: the pipe has no other writer than the guard. When that dies the kernel sends us SIGCONT, which resumes us
// if we are stopped.
func wakeOn(fd int) error {
	for _, set := range [][2]int{
		{syscall.F_SETOWN, syscall.Getpid()},
		{syscall.F_SETSIG, int(syscall.SIGCONT)},
		{syscall.F_SETFL, syscall.O_ASYNC | syscall.O_NONBLOCK},
	} {
		if _, err := fcntl(fd, set[0], set[1]); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	return nil
}

func fcntl(fd, cmd, arg int) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(cmd), uintptr(arg))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}
