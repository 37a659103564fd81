//go:build unix && !linux

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Guard is the wrapper's end of one guard process. Its methods may be called from any goroutine.
type Guard struct {
	cfg     Config
	cmd     *exec.Cmd
	line    *line
	signals chan os.Signal
	notices chan Notice
	done    chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex
	pid       int
	answer    chan message
	status    Status
	finished  bool
	deadlines Deadlines
	backstop  *time.Timer
	tty       *os.File // the terminal, if it was lent to the job
}

// TakeQuit is needed on Linux only.
func TakeQuit() {}

// Discard is for systems on which it pays to start a guard process early.
func Discard() {}

// Launch starts the guard process. From here until Close this package owns the process's signals.
func Launch(cfg Config) (*Guard, error) {
	if strings.Contains(cfg.Tag, "simba") || strings.ContainsRune(cfg.Tag, 0) {
		return nil, fmt.Errorf("bad tag %q", cfg.Tag)
	}
	if cfg.Signal == 0 {
		cfg.Signal = unix.SIGTERM
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	theirs := os.NewFile(uintptr(pair[1]), "line")
	defer theirs.Close()
	g := &Guard{
		cfg: cfg, line: &line{fd: pair[0]},
		signals: make(chan os.Signal, 64), notices: make(chan Notice, 16),
		done: make(chan struct{}), answer: make(chan message, 1),
	}
	g.cmd = &exec.Cmd{
		Path: self, Args: []string{guardName, cfg.Tag}, Env: []string{},
		Stdin: theirs, Stderr: os.Stderr, ExtraFiles: []*os.File{os.Stdin, os.Stdout},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := g.cmd.Start(); err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	for _, sig := range []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
		if !signal.Ignored(sig) {
			signal.Notify(g.signals, sig)
		}
	}
	signals := g.signals
	g.running.Go(func() { g.passSignals(signals) })
	g.running.Go(g.listen)
	return g, nil
}

// AwaitEnd is for systems on which the guard's end is not waited for anyhow.
func (g *Guard) AwaitEnd(time.Duration) {}

// AwaitSignals returns when no signal ends this process any more that should not.
func (g *Guard) AwaitSignals() {}

func (g *Guard) passSignals(signals <-chan os.Signal) {
	for s := range signals {
		sig := s.(syscall.Signal)
		g.mu.Lock()
		pid := g.pid
		g.mu.Unlock()
		switch {
		case pid != 0:
			if g.cfg.Filter == nil || g.cfg.Filter(sig) {
				syscall.Kill(pid, sig)
			}
		case sig == unix.SIGTERM || sig == unix.SIGINT || sig == unix.SIGHUP || sig == unix.SIGQUIT:
			if g.cfg.OnSignal != nil {
				g.cfg.OnSignal(sig)
			}
		}
	}
}

func (g *Guard) listen() {
	for {
		m, err := g.line.receive()
		if err != nil {
			break
		}
		switch m.Kind {
		case "started", "failed":
			if m.Kind == "started" {
				g.mu.Lock()
				g.pid = m.PID
				g.mu.Unlock()
				g.lendTerminal()
			}
			g.answer <- m
		case "told":
			g.answer <- m
		case "paused":
			g.mirrorStop()
		case "deadline":
			g.notify(Notice{Kind: DeadlineHit})
		case "leftovers":
			g.notify(Notice{Kind: Leftovers, PIDs: []int{m.PID}, Names: []string{"process group"}})
		case "done":
			g.status.Known, g.status.Stopped = true, m.Stopped
			g.status.Code, g.status.Signal = statusOf(syscall.WaitStatus(m.Wait))
			g.finish()
		}
	}
	g.cmd.Process.Kill()
	g.cmd.Wait()
	close(g.answer)
	if g.pid == 0 || g.status.Known {
		g.finish()
		return
	}
	// The guard died. Its job is no child of ours; only the end of the group can be seen.
	g.status.GuardDied = true
	g.notify(Notice{Kind: GuardDied})
	for syscall.Kill(-g.pid, syscall.SIGKILL) != syscall.ESRCH {
		time.Sleep(groupPoll)
	}
	g.finish()
}

func (g *Guard) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.finished {
		return
	}
	g.finished = true
	if g.backstop != nil {
		g.backstop.Stop()
	}
	if g.tty != nil {
		setForeground(g.tty, syscall.Getpgrp())
		g.tty.Close()
	}
	close(g.done)
}

// lendTerminal makes the job's process group the one in the foreground, if ours was.
func (g *Guard) lendTerminal() {
	if !g.cfg.KeepStdio {
		if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
			unix.Dup2(int(null.Fd()), 0)
			unix.Dup2(int(null.Fd()), 1)
			null.Close()
		}
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return
	}
	if front, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP); err != nil || front != syscall.Getpgrp() {
		tty.Close()
		return
	}
	g.mu.Lock()
	g.tty = tty
	g.mu.Unlock()
	setForeground(tty, g.pid)
	syscall.Kill(-g.pid, syscall.SIGCONT) // it may have asked for the terminal too early
}

func setForeground(tty *os.File, pgrp int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, pgrp)
}

// mirrorStop stops this process when the job was stopped by the terminal, and goes on with it.
func (g *Guard) mirrorStop() {
	if g.tty == nil {
		return
	}
	setForeground(g.tty, syscall.Getpgrp())
	syscall.Kill(0, syscall.SIGSTOP)
	setForeground(g.tty, g.pid)
	syscall.Kill(-g.pid, syscall.SIGCONT)
}

func (g *Guard) notify(n Notice) {
	select {
	case g.notices <- n:
	default:
	}
}

// Start has the guard start the job, once. The errors are ErrLate, ErrGuardDied, or match ErrNotFound or
// ErrNotRunnable.
func (g *Guard) Start(ctx context.Context, o Order) (pid int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if len(o.Argv) == 0 || len(o.Hold) > maxFiles {
		return 0, errors.New("bad order")
	}
	m := message{Kind: "start", Deadlines: o.Deadlines, Config: &settings{g.cfg.Signal, g.cfg.KillAfter, g.cfg.OnLost, g.cfg.Leftover}}
	for _, f := range o.Hold {
		m.files = append(m.files, int(f.Fd()))
	}
	name := o.Argv[0]
	m.Order = &order{o.Path, o.Argv, o.Env, o.Stamp, o.StartBy}
	if g.line.send(m) != nil {
		return 0, ErrGuardDied
	}
	a, ok := <-g.answer
	switch {
	case !ok:
		return 0, ErrGuardDied
	case a.Kind == "failed" && a.Wait == 0:
		return 0, ErrLate
	case a.Kind == "failed":
		return 0, commandError(name, syscall.Errno(a.Wait))
	}
	g.arm(o.Deadlines)
	return a.PID, nil
}

// arm has this process kill the group, and the guard, should the guard not have done so at the Kill deadline.
func (g *Guard) arm(d Deadlines) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.backstop != nil {
		g.backstop.Stop()
		g.backstop = nil
	}
	if d.Kill != 0 && !g.finished && g.cfg.OnLost <= LostKill {
		g.backstop = time.AfterFunc(d.Kill-Now()+groupPoll, func() {
			syscall.Kill(-g.pid, syscall.SIGKILL)
			g.cmd.Process.Signal(syscall.SIGCONT) // if it is merely stopped it tells how the job ended
			select {
			case <-g.done:
			case <-time.After(2 * time.Second):
				g.cmd.Process.Kill()
			}
		})
	}
}

// Hold gives the guard one more descriptor to keep open while anything of the job lives.
func (g *Guard) Hold(f *os.File) error {
	return g.line.send(message{Kind: "hold", files: []int{int(f.Fd())}})
}

// Extend sets new deadlines after a renewal. It is ignored once stopping has begun.
func (g *Guard) Extend(d Deadlines) {
	g.arm(d)
	g.line.send(message{Kind: "extend", Deadlines: d})
}

// Stop sends the stop signal to the job's process group, and SIGKILL after KillAfter.
func (g *Guard) Stop() { g.line.send(message{Kind: "stop"}) }

// Kill sends SIGKILL to the job's process group.
func (g *Guard) Kill() { g.line.send(message{Kind: "kill"}) }

// Lost tells that ownership was lost.
func (g *Guard) Lost() { g.line.send(message{Kind: "lost"}) }

// Signal sends a signal to the job's first process.
func (g *Guard) Signal(s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pid != 0 && !g.finished {
		syscall.Kill(g.pid, s)
	}
}

// Notices delivers what the user should be told.
func (g *Guard) Notices() <-chan Notice { return g.notices }

// Done is closed when the job's process group is gone, or was let go.
func (g *Guard) Done() <-chan struct{} { return g.done }

// Wait waits for Done and returns how the job ended.
func (g *Guard) Wait() Status {
	<-g.done
	return g.status
}

// Close ends the guard process and gives the signals back; a job that still runs is killed first.
func (g *Guard) Close() error {
	g.mu.Lock()
	started, first := g.pid != 0, g.signals != nil
	signals := g.signals
	g.signals = nil
	g.mu.Unlock()
	if !first {
		return nil
	}
	if started {
		g.Kill()
		<-g.done
	} else {
		unix.Shutdown(g.line.fd, unix.SHUT_WR)
	}
	signal.Stop(signals)
	close(signals)
	g.running.Wait()
	unix.Close(g.line.fd)
	return nil
}
