//go:build unix && !linux

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Without Linux's subreapers, parent-death signals and boot-time timers the guarantees are weaker:
//
//   - The tree is the job's process group. What left it (setsid, a shell with job control) is neither
//     signalled nor waited for.
//   - The job has a process group of its own, so in a pipeline it does not share its neighbours'
//     signals.
//   - If the guard is killed the wrapper kills the group; if the guard is only stopped, at the Kill
//     deadline; if both are stopped or both killed, nobody does.
//   - The clock may stand still while the machine sleeps; after it woke the deadlines are late by as
//     much.
//   - Descriptors above 2 reach the job only if they are not 3 or 4.

const (
	guardName = "mutex-guard"
	// groupPoll is how often a dying process group is looked at: there is no event for its end.
	groupPoll = 10 * time.Millisecond
)

// reexecuted reports whether this process was started as a guard.
func reexecuted() bool {
	if len(os.Args) != 2 || os.Args[0] != guardName {
		return false
	}
	_, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil
}

// Now is a reading of the monotonic clock: time since some moment, the same for all processes until the
// next boot.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(clockMonotonic, &ts); err != nil {
		panic("CLOCK_MONOTONIC: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// A keeper is the guard process.
type keeper struct {
	line      *line
	set       settings
	deadlines Deadlines
	holds     []int
	pid       int // of the job and its process group
	exited    chan syscall.WaitStatus
	status    syscall.WaitStatus
	gone      bool
	stopped   bool // before the first process ended
	disarmed  bool
	missed    bool
	stopping  bool
	killing   bool
	told      bool // of leftovers
	killTime  time.Duration
}

// A guard lives its whole life here.
func init() {
	if !reexecuted() {
		return
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE)
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 5)
	if err != nil {
		os.Exit(1)
	}
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	k := &keeper{line: &line{fd: fd}, exited: make(chan syscall.WaitStatus, 1)}
	k.run()
	os.Exit(0)
}

func (k *keeper) run() {
	messages := make(chan message)
	go func() { // lives as long as the process
		defer close(messages)
		for {
			m, err := k.line.receive()
			if err != nil {
				return
			}
			messages <- m
		}
	}()
	for {
		timer := time.NewTimer(k.sleep(Now()))
		select {
		case m, ok := <-messages:
			if ok {
				k.obey(m)
				break
			}
			if messages = nil; k.pid == 0 {
				return
			}
			k.stop(Now())
		case k.status = <-k.exited:
			if k.status.Stopped() {
				k.line.send(message{Kind: "paused"})
				break
			}
			k.gone, k.stopped = true, k.stopping || k.killing
		case <-timer.C:
		}
		timer.Stop()
		if k.pid != 0 && k.act(Now()) {
			break
		}
	}
	closeAll(k.holds)
	k.line.send(message{Kind: "done", Wait: int(k.status), Stopped: k.stopped})
}

func (k *keeper) obey(m message) {
	switch m.Kind {
	case "start":
		k.set, k.deadlines, k.holds = *m.Config, m.Deadlines, m.files
		k.start(*m.Order)
	case "hold":
		k.holds = append(k.holds, m.files...)
	case "lead", "down", "let go":
		k.tellJob(m)
	case "extend":
		if !k.stopping && !k.killing && !k.missed && !k.disarmed {
			k.deadlines = m.Deadlines
		}
	case "stop":
		k.stop(Now())
	case "kill":
		k.killing = true
	case "lost":
		k.lost(Now())
	}
}

func (k *keeper) start(o order) {
	pid, err := 0, error(ErrLate)
	if now := Now(); (o.StartBy == 0 || now < o.StartBy) && (k.deadlines.Stop == 0 || now < k.deadlines.Stop) {
		if o.Stamp != "" { // no start time is to be had here; the time of now is as good a name
			o.Env = append(o.Env, fmt.Sprintf("%s%d:%d", o.Stamp, os.Getpid(), Now()))
		}
		pid, err = syscall.ForkExec(o.Path, o.Argv, &syscall.ProcAttr{
			Env: o.Env, Files: []uintptr{3, 4, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
	}
	if err != nil {
		closeAll(k.holds)
		k.holds = nil
		var errno syscall.Errno
		errors.As(err, &errno) // zero says "late"
		k.line.send(message{Kind: "failed", Wait: int(errno)})
		return
	}
	k.pid = pid
	k.line.send(message{Kind: "started", PID: pid})
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for _, fd := range []int{0, 1, 2, 3, 4} {
			unix.Dup2(int(null.Fd()), fd)
		}
		unix.CloseOnExec(3)
		unix.CloseOnExec(4)
		null.Close()
	}
	go func() { // ends with the first process
		for {
			var ws syscall.WaitStatus
			if _, err := syscall.Wait4(pid, &ws, syscall.WUNTRACED, nil); err == syscall.EINTR {
				continue
			}
			k.exited <- ws
			if !ws.Stopped() {
				return
			}
		}
	}()
}

func (k *keeper) group(sig syscall.Signal) { syscall.Kill(-k.pid, sig) }

func (k *keeper) stop(now time.Duration) {
	if k.stopping || k.killing {
		return
	}
	k.stopping, k.killTime = true, now+k.set.KillAfter
	if k.deadlines.Kill != 0 && !k.disarmed {
		k.killTime = min(k.killTime, k.deadlines.Kill)
	}
	k.group(k.set.Signal)
	k.group(unix.SIGCONT)
}

func (k *keeper) lost(now time.Duration) {
	switch k.set.OnLost {
	case LostStop:
		k.stop(now)
	case LostKill:
		k.killing = true
	case LostSignal:
		if !k.disarmed {
			k.group(k.set.Signal)
		}
		k.disarmed = true
	case LostWarn:
		k.disarmed = true
	}
}

// act does what is due and reports whether the work is over.
func (k *keeper) act(now time.Duration) (over bool) {
	if d := k.deadlines.Stop; d != 0 && now >= d && !k.missed && !k.disarmed && !k.stopping && !k.killing {
		k.missed = true
		k.line.send(message{Kind: "deadline"})
		k.lost(now)
	}
	if k.stopping && now >= k.killTime || k.deadlines.Kill != 0 && now >= k.deadlines.Kill && !k.disarmed {
		k.killing = true
	}
	if k.killing {
		k.group(unix.SIGKILL)
	}
	if !k.gone {
		return false
	}
	if syscall.Kill(-k.pid, 0) == syscall.ESRCH || k.set.Leftover == LeftoverLeave && !k.stopping && !k.killing {
		return true
	}
	if !k.told && !k.stopping && !k.killing {
		k.told = true
		k.line.send(message{Kind: "leftovers", PID: k.pid})
		if k.set.Leftover == LeftoverStop {
			k.stop(now)
		}
	}
	return false
}

func (k *keeper) sleep(now time.Duration) time.Duration {
	switch {
	case k.gone || k.stopping || k.killing:
		return groupPoll
	case k.deadlines.Stop != 0 && !k.missed && !k.disarmed:
		return max(k.deadlines.Stop-now, 0)
	case k.deadlines.Kill != 0 && !k.disarmed:
		return max(k.deadlines.Kill-now, 0)
	}
	return time.Hour
}

// EndByEnv cannot be done here: no other process's environment can be read.
func EndByEnv(context.Context, string) (ended int, stuck []int, err error) {
	return 0, nil, errors.ErrUnsupported
}

// Holding cannot be told here.
func Holding(string) (pids []int, err error) { return nil, errors.ErrUnsupported }

// Above cannot be told here.
func Above(stamp, tag string) bool { return false }

// DieOf makes this process die of a signal. It returns only if that was impossible.
func DieOf(sig syscall.Signal) {
	syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	signal.Reset(sig)
	syscall.Kill(os.Getpid(), sig)
	time.Sleep(100 * time.Millisecond) // the signal may be delivered to another thread
}
