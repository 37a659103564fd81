//go:build unix && !linux

package guard

import (
	"errors"
	"os"
	"syscall"
)

// A job that runs all the time and leads only some of it: as on Linux, its guard has deadlines while it leads. They
// go on and off in the guard with the signals that tell the job.

// Lead tells the job that it leads from now on. It returns when the job was told, or with ErrLate, ErrEnding or
// ErrGuardDied if it was not; nothing is held then.
func (g *Guard) Lead(p Promotion) error {
	m := message{Kind: "lead", Deadlines: p.Deadlines, Signal: int(p.Signal), Order: &order{StartBy: p.By}}
	for _, f := range p.Hold {
		m.files = append(m.files, int(f.Fd()))
	}
	g.arm(p.Deadlines)
	err := g.converse(m)
	if err != nil {
		g.arm(Deadlines{})
	}
	return err
}

// StepDown tells the job by a signal that it does not lead any more. When it returns nil no deadline counts. After
// ErrLate the Stop deadline had passed and the job is being ended.
func (g *Guard) StepDown(sig syscall.Signal) error {
	err := g.converse(message{Kind: "down", Signal: int(sig)})
	if err == nil {
		g.arm(Deadlines{})
	}
	return err
}

// Release closes the descriptors that are held. The job goes on; it must not lead.
func (g *Guard) Release() error { return g.converse(message{Kind: "let go"}) }

func (g *Guard) converse(m message) error {
	select {
	case <-g.done:
		return ErrEnding
	default:
	}
	if g.line.send(m) != nil {
		return ErrGuardDied
	}
	select {
	case a, ok := <-g.answer:
		switch {
		case !ok:
			return ErrGuardDied
		case a.Stopped:
			return ErrEnding
		case a.Gone:
			return ErrLate
		case a.Wait != 0:
			return os.NewSyscallError("kill", syscall.Errno(a.Wait))
		}
		return nil
	case <-g.done:
		return ErrEnding
	}
}

// tellJob is the guard's side.
func (k *keeper) tellJob(m message) {
	answer, now := message{Kind: "told"}, Now()
	passed := func(d Deadlines) bool { return d.Stop != 0 && now >= d.Stop }
	var err error
	switch {
	case m.Kind == "let go":
		closeAll(k.holds)
		k.holds = nil
	case k.gone || k.stopping || k.killing || k.missed:
		answer.Stopped = true
	case m.Kind == "lead":
		if passed(m.Deadlines) || m.Order.StartBy != 0 && now >= m.Order.StartBy {
			answer.Gone = true
			break
		}
		if err = syscall.Kill(k.pid, syscall.Signal(m.Signal)); err == nil {
			k.holds, m.files = append(k.holds, m.files...), nil
			k.deadlines = m.Deadlines
		}
	case passed(k.deadlines):
		answer.Gone = true // it is being stopped next
	default:
		if err = syscall.Kill(k.pid, syscall.Signal(m.Signal)); err == nil {
			k.deadlines = Deadlines{}
		}
	}
	closeAll(m.files)
	var errno syscall.Errno
	errors.As(err, &errno)
	answer.Wait = int(errno)
	k.line.send(answer)
}

// Handles cannot be told here.
func Handles(int, syscall.Signal) (bool, error) { return false, errors.ErrUnsupported }
