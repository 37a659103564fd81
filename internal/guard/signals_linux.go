package guard

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminating are the signals that end a wait for the mutex.
var terminating = map[syscall.Signal]bool{unix.SIGTERM: true, unix.SIGINT: true, unix.SIGHUP: true, unix.SIGQUIT: true}

// fromKeyboard are the signals that a terminal sends to its whole foreground process group, the job
// included. Passing them on would make them arrive twice. (os/signal does not tell who sent a signal; so
// one of these sent by kill to the wrapper alone, while it is in the foreground of its terminal, is not
// passed on.)
var fromKeyboard = map[syscall.Signal]bool{unix.SIGINT: true, unix.SIGQUIT: true, unix.SIGTSTP: true, unix.SIGWINCH: true}

// forwarded are the other signals that are passed on. Each that is taken costs some 30 µs, most of it switches of
// threads, which is why the real-time signals and some rare ones are not passed on; the runtime sees to it that
// they do no harm.
var forwarded = []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2}

// beside are the signals that matter only beside a job, and then not in its first moment: the terminal sends its
// own to the job as well, and what a child's end or stop would have told is looked at when they are taken.
var beside = []syscall.Signal{unix.SIGCHLD, unix.SIGCONT, unix.SIGTSTP, unix.SIGWINCH}

// besideAfter is when they are taken if there is no job until then: as PID 1 we reap what others leave.
const besideAfter = 50 * time.Millisecond

// takePipe keeps a closed stdout or stderr from ending the wrapper, for good: also what it writes after a
// job must not. A guard comes up with a handler of the runtime all the same, and gives the job the default.
var takePipe = sync.OnceFunc(func() { signal.Ignore(unix.SIGPIPE) })

// TakeQuit is called just before the first Notify of SIGQUIT in this program, which would leave it as package early has
// made it. Later it does nothing, so that it undoes no Notify.
var TakeQuit = sync.OnceFunc(func() { signal.Ignore(unix.SIGQUIT) })

// takeSignals has the signals passed to the supervisor. signalsTaken is closed when all are that would end this
// process or are passed on.
func (g *Guard) takeSignals() {
	takePipe()
	g.running.Go(func() {
		for sig := range terminating {
			g.take(sig)
		}
		for _, sig := range forwarded {
			g.take(sig)
		}
		close(g.signalsTaken)
		timer := time.NewTimer(besideAfter)
		select {
		case <-g.ordered:
		case <-timer.C:
		}
		timer.Stop()
		for _, sig := range beside {
			g.take(sig)
		}
		g.post(func() { g.gotSignal(unix.SIGCHLD) })
		close(g.allTaken)
		for s := range g.signals {
			if sig, ok := s.(syscall.Signal); ok {
				g.post(func() { g.gotSignal(sig) })
			}
		}
	})
}

func (g *Guard) take(sig syscall.Signal) {
	if ignored(sig) {
		return // nohup: stays ignored, here and in the job
	}
	if sig == unix.SIGQUIT {
		TakeQuit()
	}
	signal.Notify(g.signals, sig)
}

// AwaitSignals returns when no signal ends this process any more that should not.
func (g *Guard) AwaitSignals() {
	select {
	case <-g.signalsTaken:
	case <-g.ended:
	}
}

func (g *Guard) dropSignals() {
	signal.Stop(g.signals)
	close(g.signals)
}

func (g *Guard) gotSignal(sig syscall.Signal) {
	switch {
	case sig == unix.SIGCHLD:
		if g.phase != finished {
			g.lookAtGuard()
			g.reapStrays()
		}
	case sig == unix.SIGCONT && g.overdue(Now()):
		// Our own alarm; the guard wakes what is stopped.
	case sig == unix.SIGTSTP && g.phase == waiting:
		byDefault(sig)
	case g.phase == waiting:
		if terminating[sig] && g.cfg.OnSignal != nil {
			g.cfg.OnSignal(sig)
		}
	case g.phase == starting:
		g.early = append(g.early, sig)
	case g.phase == running:
		if fromKeyboard[sig] && inForeground() {
			if sig == unix.SIGTSTP {
				g.keyStop = Now()
			}
			return
		}
		switch {
		case sig == unix.SIGCONT:
			g.resumed = Now()
		case sig == unix.SIGTSTP && g.resumed != 0 && Now()-g.resumed < together:
			return
		}
		if g.cfg.Filter == nil || g.cfg.Filter(sig) {
			g.tell(message{kind: msgSignal, n: [numbers]int64{int64(sig)}})
		}
	}
}

// together: a stop and a resumption that come within this time of each other are taken to be meant in that order,
// which the runtime does not keep. The kernel forgets a stop at a resumption, too.
const together = 20 * time.Millisecond

// inForeground tells whether a key on our controlling terminal would signal us.
func inForeground() bool {
	s, ok := readStat(os.Getpid())
	return ok && s.tty != 0 && s.tpgid == s.pgrp
}

// tidyTime is how long a program may take between the stop key and stopping itself.
const tidyTime = 2 * time.Second

// mirrorStop stops this process the way the job was stopped, so that the shell that waits for it takes the
// terminal back. Only stops by the terminal are mirrored: a job that was paused with kill must not end the
// renewals of its lease.
func (g *Guard) mirrorStop(sig syscall.Signal) {
	if g.phase != running || g.stopped || g.overdue(Now()) {
		return // nothing stops the end
	}
	switch sig {
	case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
	case unix.SIGSTOP:
		// Programs that own the screen catch TSTP, tidy up and stop themselves so.
		if g.keyStop == 0 || Now()-g.keyStop > tidyTime {
			return
		}
		sig = unix.SIGTSTP
	default:
		return
	}
	g.keyStop = 0
	if s, ok := readStat(os.Getpid()); !ok || s.tty == 0 {
		return
	}
	// The report may be old: a job that runs again must not be joined by a wrapper that sleeps.
	if s, ok := readStat(g.pid); !ok || s.state != 'T' {
		return
	}
	byDefault(sig) // in a process group without a shell to resume it the kernel does nothing
}

// Signals of job control that are taken while a job runs, and how they were before. Reading from and
// writing to the terminal in the background stops the whole process group; if this process had a handler,
// its own writes would be retried for ever, and with the default action the renewals would end.
var terminal struct {
	sync.Mutex
	users  int
	before map[syscall.Signal]disposition
}

func (g *Guard) takeTerminal() {
	g.terminal = true
	terminal.Lock()
	defer terminal.Unlock()
	terminal.users++
	if terminal.users == 1 {
		terminal.before = map[syscall.Signal]disposition{}
		for _, sig := range []syscall.Signal{unix.SIGTTIN, unix.SIGTTOU} {
			var d disposition
			sigaction(sig, nil, &d)
			terminal.before[sig] = d
		}
		setTerminal(true)
	}
}

func (g *Guard) dropTerminal() {
	if !g.terminal {
		return
	}
	g.terminal = false
	terminal.Lock()
	defer terminal.Unlock()
	terminal.users--
	if terminal.users == 0 {
		setTerminal(false)
	}
}

func setTerminal(ignore bool) {
	for sig, d := range terminal.before {
		if ignore {
			d = ignoring()
		}
		sigaction(sig, &d, nil)
	}
}
