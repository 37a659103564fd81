package guard

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type startAnswer struct {
	pid int
	err error
}

func startError(name string, errno syscall.Errno) error {
	switch errno {
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return &os.PathError{Op: "start", Path: name, Err: errno} // not the command's fault
	}
	return commandError(name, errno)
}

// order sends a job to the guard.
func (g *Guard) order(o Order, file *os.File, answer chan startAnswer) {
	fail := func(err error) { answer <- startAnswer{err: err} }
	switch {
	case g.failure != nil:
		fail(errors.Join(ErrGuardDied, g.failure))
		return
	case g.phase != waiting || g.closing:
		fail(errors.New("the guard cannot take an order now"))
		return
	}
	m := message{kind: msgStart, text: g.cfg.Tag, n: [numbers]int64{
		int64(o.Deadlines.Stop), int64(o.Deadlines.Kill), int64(o.StartBy),
		int64(g.cfg.Signal), int64(g.cfg.KillAfter), int64(g.cfg.OnLost)<<8 | int64(g.cfg.Leftover),
	}}
	if o.Standby {
		m.n[5] |= standbyFlag
	}
	m.files = []int{int(file.Fd()), 0, 1}
	if err := g.keep(o.Hold); err != nil {
		g.letGo()
		fail(err)
		return
	}
	m.files = append(m.files, g.holds...)
	g.phase, g.pending, g.name = starting, answer, o.Argv[0]
	g.disarmed, g.stopped, g.killed = false, false, false
	g.deadlines = o.Deadlines
	g.toSend = &m
	g.takeTerminal() // before the job can be, for it may read from the terminal at once
	g.sendOrder()
	g.firstOrder()
}

// sendOrder sends the order, also to a guard that is not up yet: it finds it when it is, and compares the limit of
// the order then.
func (g *Guard) sendOrder() {
	if g.line == nil || g.toSend == nil {
		return
	}
	m := g.toSend
	g.toSend = nil
	g.schedule(Now())
	if !g.tell(*m) {
		if g.line.closed() {
			g.toSend = m // for another guard: this one is dead, as is heard next
			return
		}
		g.notStarted(errors.New("the guard does not take the order"))
		return
	}
	g.freeAt = Now() + startSlack
	if !g.ready {
		g.unread = m
	}
}

// freeFork resumes what the stop key has stopped between its fork and its exec: the guard waits there for it and
// can do nothing else.
func (g *Guard) freeFork(now time.Duration) {
	if g.phase != starting || g.freeAt == 0 || now < g.freeAt {
		return
	}
	g.freeAt = now + startSlack
	for _, pid := range children(g.guard) {
		if s, ok := readStat(pid); ok && s.state == 'T' {
			unix.Kill(pid, unix.SIGCONT)
		}
	}
}

func (g *Guard) started(pid int) {
	g.phase, g.pid, g.freeAt = running, pid, 0
	if !g.cfg.KeepStdio {
		nullStdio(0, 1)
	}
	early := g.early
	g.early = nil
	for _, sig := range early {
		g.gotSignal(sig)
	}
	g.pending <- startAnswer{pid: pid}
	g.pending = nil
}

func (g *Guard) notStarted(err error) {
	if g.phase != starting {
		return
	}
	g.dropTerminal()
	g.phase, g.answerBy, g.toSend, g.unread = waiting, 0, nil, nil
	g.deadlines, g.freeAt = Deadlines{}, 0
	g.schedule(Now())
	g.letGo()
	early := g.early
	g.early = nil
	for _, sig := range early {
		g.gotSignal(sig)
	}
	g.pending <- startAnswer{err: err}
	g.pending = nil
}

func (g *Guard) hold(f *os.File) error {
	if g.phase != running {
		return errors.New("no job runs")
	}
	if err := g.keep([]*os.File{f}); err != nil {
		return err
	}
	if !g.tell(message{kind: msgHold, files: g.holds[len(g.holds)-1:]}) {
		return errors.New("the guard does not take the descriptor")
	}
	return nil
}

func (g *Guard) keep(files []*os.File) error {
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return &os.PathError{Op: "dup", Path: f.Name(), Err: err}
		}
		g.holds = append(g.holds, fd)
	}
	return nil
}

func (g *Guard) letGo() {
	closeAll(g.holds)
	g.holds = nil
}
