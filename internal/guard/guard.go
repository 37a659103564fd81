// Package guard starts, watches and ends one process tree, the job.
//
// # Who keeps the promise
//
// The promise is that the job is gone before anybody else may own the mutex. Two processes keep it, the
// wrapper (the process that calls [Launch]) and the guard (the same binary, started again). The guard
// starts the job, is its parent and its subreaper, so that wait4 says ECHILD exactly when no descendant is
// left. Either of the two can end the whole tree alone. What happens to them, who notices, after how long,
// and what is killed:
//
//   - The wrapper is killed. Its end of the line closes; the guard sees that at once (a guard in state T
//     is resumed by its parent-death signal, SIGCONT) and stops the job: stop signal, SIGKILL after
//     KillAfter or at the Kill deadline.
//   - The wrapper is stopped, or hangs. No deadline is moved any more; the guard acts when Stop and Kill
//     pass.
//   - The guard is killed. The kernel kills the job's first process (parent-death signal of the thread
//     that forked it), hands the rest to the wrapper, which is a subreaper too, and closes the line. A
//     wrapper in state T is resumed by SIGCONT from a pipe whose only write end is the guard's. It
//     kills, round after round, until its own ECHILD.
//   - The guard is stopped. The wrapper gets SIGCHLD and resumes it; if the wrapper cannot, the guard's
//     own timer does, at Stop.
//   - The guard hangs otherwise (a debugger, the freezer). It has to answer a question asked before
//     Stop; if it has not by Stop, the wrapper kills it and goes on as above.
//   - Both are stopped. Each has two CLOCK_BOOTTIME timers whose signal is SIGCONT: the kernel resumes
//     them at Stop and Kill.
//   - One is stopped and the other killed. The death resumes the stopped one, see above.
//   - Both are killed at once. The first process is killed by the kernel; the others are found by the
//     next owner through their environment, [EndByEnv]. The guard's name and arguments do not name the
//     program and it has a session of its own, so that neither pkill nor a group kill hits both.
//   - The machine sleeps. CLOCK_BOOTTIME goes on; after it wakes the timers fire first of all.
//
// Who may start now is answered by order, not by time: descriptors that carry a kernel lock are open in the
// guard as long as anything of the job lives, and [Guard.Done] is closed only after ECHILD.
//
// # What is not kept
//
// Processes in uninterruptible sleep or of another user cannot be killed: they are reported ([Stuck]) and
// hold Done back. Processes started through another daemon (at, docker, systemd-run) are no descendants. A
// set-user-ID job loses its parent-death signal. OnLost of LostSignal or LostWarn and LeftoverLeave let the
// job live on because they were asked to.
package guard

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Deadlines are readings of [Now] at which the guard acts by itself. Zero values mean none: a lease without
// an end.
type Deadlines struct {
	Stop time.Duration // the stop signal goes out (or what OnLost says)
	Kill time.Duration // SIGKILL
}

// OnLost says what happens to the job when ownership is lost or the Stop deadline passes.
type OnLost int

const (
	LostStop   OnLost = iota // stop signal, then SIGKILL
	LostKill                 // SIGKILL at once
	LostSignal               // the stop signal, and nothing after it
	LostWarn                 // nothing
)

// Leftover says what happens to processes that outlive the job's first process.
type Leftover int

const (
	LeftoverStop  Leftover = iota // ended like the job itself: stop signal, SIGKILL after KillAfter
	LeftoverWait                  // waited for
	LeftoverLeave                 // let go; Done does not wait for them
)

// Config holds what is known about a job before its order.
type Config struct {
	Tag       string         // an argument of the guard, world readable; see [Holding]. Must not contain "simba" or a NUL; 64 bytes at most.
	Signal    syscall.Signal // the stop signal; zero means SIGTERM
	KillAfter time.Duration  // from stop signal to SIGKILL
	OnLost    OnLost
	Leftover  Leftover

	// OnSignal is called with a terminating signal (TERM, INT, HUP, QUIT) that arrives before the job is
	// started. It must not block.
	OnSignal func(syscall.Signal)

	// Filter, if set, is asked about every signal that would be passed on to the job; false drops it. It
	// must not block.
	Filter func(syscall.Signal) bool

	// KeepStdio leaves this process's stdin and stdout as they are after the job's start. Without it they
	// become /dev/null, so that a reader of the job's output sees its end when the job closes it.
	KeepStdio bool
}

// Order is one job.
type Order struct {
	Path string   // the executable, see [Find]
	Argv []string // with the name of the program first
	Env  []string // the whole environment of the job

	// Stamp, if not empty, is one more variable for the job, "NAME=" with the beginning of its value. The guard
	// appends "pid:start", its own pid and the time at which it was started as the system counts it: together they
	// name this guard and no later one, so that a descendant can tell whether the guard is its ancestor.
	Stamp string

	Deadlines Deadlines

	// StartBy is compared with [Now] by the guard just before it forks; at or after it, or Deadlines.Stop,
	// nothing is started and Start returns [ErrLate]. Zero means no limit.
	StartBy time.Duration

	// Hold are descriptors (of kernel locks) that stay open while anything of the job lives, whichever of
	// the two processes lives. They are copied: the caller closes its own when it likes. The copies are
	// closed before Done, never unlocked.
	Hold []*os.File

	// Standby: the job does not lead until [Guard.Lead]; there are neither deadlines nor something to hold, and
	// [Holding] does not find the guard.
	Standby bool
}

// Promotion is an ownership for a job that runs already: one that was started without deadlines and is told by
// signals when it leads and when no more. While it leads the guard acts at the deadlines, which [Guard.Extend]
// moves, as it does for a job that was started with them.
type Promotion struct {
	Deadlines Deadlines
	By        time.Duration  // at or after it, or Deadlines.Stop, the job is told nothing; zero means no limit
	Hold      []*os.File     // as in an Order, but until [Guard.Release]
	Signal    syscall.Signal // what tells the job's first process
}

var (
	// ErrLate is returned by [Guard.Start] when StartBy had passed. The guard can be given another order. In
	// the same way by [Guard.Lead] and [Guard.StepDown].
	ErrLate = errors.New("too late to start")
	// ErrEnding is returned by what tells a running job something, if it has ended or is being ended.
	ErrEnding = errors.New("the job is ending")
	// ErrGuardDied is returned by [Guard.Start] when the guard is gone; nothing of the job is left when it is.
	ErrGuardDied = errors.New("the guard process died")
	// ErrNotFound matches errors about a command that does not exist (exit status 127).
	ErrNotFound = errors.New("command not found")
	// ErrNotRunnable matches errors about a command that exists and cannot be run (exit status 126).
	ErrNotRunnable = errors.New("command not runnable")
)

// NoticeKind tells what a [Notice] is about.
type NoticeKind int

const (
	// Leftovers: the first process ended and left these processes; Config.Leftover says what is done about
	// them.
	Leftovers NoticeKind = iota + 1
	// Stuck: these could not be killed. Err is EPERM, or nil if they are still there seconds after SIGKILL.
	// Repeated about every ten seconds.
	Stuck
	// GuardDied: the guard is gone; this process is ending the tree itself.
	GuardDied
	// DeadlineHit: the Stop deadline passed and the guard acted by itself.
	DeadlineHit
)

// Notice is something the user should be told.
type Notice struct {
	Kind  NoticeKind
	PIDs  []int
	Names []string // the process names that belong to PIDs
	Err   error
}

// Status is how the job ended.
type Status struct {
	Known     bool           // the end of the first process was seen; Code and Signal mean something
	Code      int            // its exit status, if Signal is zero
	Signal    syscall.Signal // the signal that killed it
	Stopped   bool           // this package had begun to stop the job before its first process ended
	GuardDied bool           // the guard was lost on the way
	Left      []int          // LeftoverLeave: processes that were let go
}

func statusOf(ws syscall.WaitStatus) (code int, sig syscall.Signal) {
	if ws.Signaled() {
		return 0, ws.Signal()
	}
	return ws.ExitStatus(), 0
}
