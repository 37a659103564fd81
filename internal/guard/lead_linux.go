package guard

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A job that runs all the time and leads only some of it.
//
// Its guard has deadlines while it leads and none otherwise. They go on and off in the guard, with the signals that
// tell the job and by the same messages, so that neither can be without the other: the first signal is sent only
// when the deadlines count, and they are forgotten only when the second one was sent before Stop. At Stop the guard
// does with a job that was not told what it does with any other. The wrapper keeps the deadlines until it has the
// guard's word for it, and a guard that does not answer is killed with the job.

// What came of telling the job something.
const (
	toldDone = iota
	toldLate
	toldEnding
	toldFailed // and why
)

// Lead tells the job that it leads from now on. It returns when the job was told, or with ErrLate, ErrEnding or
// ErrGuardDied if it was not; nothing is held then.
func (g *Guard) Lead(p Promotion) error {
	return g.converse(func(answer chan<- error) { g.lead(p, answer) })
}

// StepDown tells the job by a signal that it does not lead any more. When it returns nil no deadline counts. After
// ErrLate the Stop deadline had passed and the job is being ended.
func (g *Guard) StepDown(sig syscall.Signal) error {
	return g.converse(func(answer chan<- error) { g.tellJob(message{kind: msgDown, n: [numbers]int64{int64(sig)}}, answer) })
}

// Release closes the descriptors that are held. The job goes on; it must not lead.
func (g *Guard) Release() error {
	return g.converse(func(answer chan<- error) { g.tellJob(message{kind: msgLetGo}, answer) })
}

func (g *Guard) converse(f func(chan<- error)) error {
	answer := make(chan error, 1)
	if !g.post(func() { f(answer) }) {
		return ErrGuardDied
	}
	return <-answer
}

func (g *Guard) lead(p Promotion, answer chan<- error) {
	if g.phase != running || g.stopped {
		answer <- ErrEnding
		return
	}
	if err := g.keep(p.Hold); err != nil {
		g.letGo()
		answer <- err
		return
	}
	g.deadlines = p.Deadlines
	g.schedule(Now())
	d := p.Deadlines
	g.tellJob(message{
		kind: msgLead, files: g.holds,
		n: [numbers]int64{int64(d.Stop), int64(d.Kill), int64(p.By), int64(p.Signal)},
	}, answer)
}

// tellJob has the guard tell the job something, and say what came of it.
func (g *Guard) tellJob(m message, answer chan<- error) {
	if g.phase != running || g.stopped {
		answer <- ErrEnding
		return
	}
	now := Now()
	g.unsent = nil
	g.telling, g.answerTo = m.kind, answer
	g.tell(m)
	g.expect(now + g.patience(now))
}

// toldJob hears the answer.
func (g *Guard) toldJob(m message) {
	var err error
	switch m.n[0] {
	case toldLate:
		err = ErrLate
	case toldEnding:
		err = ErrEnding
	case toldFailed:
		err = os.NewSyscallError("kill", syscall.Errno(m.n[1]))
	}
	switch {
	case g.telling == msgLead && err != nil, g.telling == msgDown && err == nil:
		g.deadlines = Deadlines{}
		g.schedule(Now())
	}
	if g.telling == msgLead && err != nil || g.telling == msgLetGo {
		g.letGo()
	}
	g.answerJob(err)
}

func (g *Guard) answerJob(err error) {
	if g.answerTo != nil {
		g.answerTo <- err
		g.answerTo = nil
	}
}

// tellJob is the guard's side.
func (k *keeper) tellJob(m message, now time.Duration) {
	result, err := toldDone, error(nil)
	switch {
	case m.kind == msgLetGo:
		closeAll(k.holds)
		k.holds = nil
		setName(standbyName)
	case k.gone || k.stopping || k.killing || k.missed:
		result = toldEnding
	case m.kind == msgLead:
		d := Deadlines{time.Duration(m.n[0]), time.Duration(m.n[1])}
		if passed(time.Duration(m.n[2]), now) || passed(d.Stop, now) {
			result = toldLate
			break
		}
		setName(holdingName)
		if err = unix.Kill(k.pid, syscall.Signal(m.n[3])); err != nil {
			setName(standbyName)
			break
		}
		k.holds, m.files = append(k.holds, m.files...), nil
		k.deadlines = d
	case passed(k.deadlines.Stop, now):
		result = toldLate // it is being stopped next
	default:
		if err = unix.Kill(k.pid, syscall.Signal(m.n[0])); err == nil {
			unix.Kill(k.pid, unix.SIGCONT) // a stopped job would hear of it when another one leads
			k.deadlines = Deadlines{}
		}
	}
	closeAll(m.files)
	errno, failed := err.(syscall.Errno)
	if failed {
		result = toldFailed // it runs as somebody else now
	}
	k.line.send(message{kind: msgToldJob, n: [numbers]int64{int64(result), int64(errno)}})
}
