package lease

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// Do contends for the mutex, does the work while it is held, and releases it.
//
// Its error is nil or the work's own if ownership lasted; ErrLost (joined with
// the work's) if it did not; *BusyError if the mutex stayed busy;
// ErrUnreachable, or what IsPermanent recognises, if the backend did not let
// it; ErrTerms if the backend grants a lease in which the terms do not fit; the
// cause of ctx if that ended while it waited.
func Do(ctx context.Context, cfg Config, work Work) error {
	if err := CheckName(cfg.Mutex); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cfg.Terms.TTL == 0 {
		cfg.Terms, _ = NewTerms(Unset, Unset, Unset)
	}
	if cfg.Clock == nil {
		cfg.Clock = BootClock{}
	}
	if cfg.Info.Host == "" {
		cfg.Info.Host = Host()
	}
	if cfg.Info.PID == 0 {
		cfg.Info.PID = os.Getpid()
	}
	if cfg.Info.Since.IsZero() {
		cfg.Info.Since = cfg.Clock.Wall().Truncate(time.Millisecond)
	}
	newID := func() string { return NewID(cfg.IDForm) }
	l := &loop{
		cfg: cfg, work: work,
		machine: newMachine(cfg, newID, rand.Float64),
		inputs:  make(chan input),
		closed:  make(chan struct{}),
		calls:   map[int]underWay{},
		events:  newTeller(cfg.Observe),
	}
	return l.run(ctx)
}

// loop gives the machine what happens and does what it says. It is the only
// goroutine that touches the machine; calls, the doorbell and the work have one
// each, which ends before run does.
type loop struct {
	cfg     Config
	work    Work
	machine *machine
	inputs  chan input
	closed  chan struct{} // no more inputs are taken
	wg      sync.WaitGroup
	calls   map[int]underWay
	events  *teller

	wake   <-chan struct{} // of the timer
	wakeAt Instant
	free   func() // of the timer; nil if there is none

	session  Session
	bellStop context.CancelFunc
	holder   *Holder
	workStop context.CancelCauseFunc
	ended    bool
	err      error
}

// underWay is a call that was not answered yet.
type underWay struct {
	op     op
	began  Instant
	cancel context.CancelFunc
}

func (l *loop) run(ctx context.Context) error {
	clock := l.cfg.Clock
	l.perform(ctx, l.machine.start(clock.Now()))
	done := ctx.Done()
	for !l.ended {
		l.arm()
		in := input{kind: inTimer}
		select {
		case in = <-l.inputs:
		case <-done:
			in, done = input{kind: inGiveUp, err: context.Cause(ctx)}, nil
		case <-l.wake:
			l.disarm()
		}
		if in.kind == inAnswered {
			l.endCall(in.seq, in.err)
		}
		l.perform(ctx, l.machine.step(clock.Now(), in))
	}
	l.disarm()
	close(l.closed)
	l.closeSession()
	l.wg.Wait()
	l.events.close()
	return l.err
}

// arm sees to it that the loop wakes when the machine planned it. A timer that
// fires too early is left as it is, for making one costs more than a needless
// look at the clock.
func (l *loop) arm() {
	planned := l.machine.planned
	if planned == 0 || l.free != nil && l.wakeAt <= planned {
		return
	}
	l.disarm()
	l.wakeAt = planned
	l.wake, l.free = l.cfg.Clock.At(planned)
}

func (l *loop) disarm() {
	if l.free != nil {
		l.free()
		l.wake, l.free = nil, nil
	}
}

// tell brings an input to the loop, unless that is over.
func (l *loop) tell(in input) {
	select {
	case l.inputs <- in:
	case <-l.closed:
	}
}

func (l *loop) perform(ctx context.Context, todo []action) {
	for _, a := range todo {
		switch a.kind {
		case actOpen:
			l.closeSession()
			l.session = l.cfg.Backend.Session(l.cfg.Mutex, Contender{ID: a.id, Info: l.cfg.Info})
		case actCall:
			l.call(ctx, a)
		case actAbandon:
			l.endCall(a.seq, errNoAnswer)
		case actListen:
			l.listen(ctx, a.seq)
		case actStart:
			l.startWork(ctx, a)
		case actExtend:
			l.holder.extend(a.deadlines)
		case actStop:
			l.workStop(a.err)
		case actEmit:
			a.event.Time = l.cfg.Clock.Wall()
			l.events.tell(a.event)
		case actEnd:
			l.ended, l.err = true, a.err
		}
	}
}

// call makes one attempt. Its context carries the values of the caller's but
// not its end: when that ends, the machine decides what is still to be done.
func (l *loop) call(ctx context.Context, a action) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.calls[a.seq] = underWay{a.op, l.cfg.Clock.Now(), cancel}
	s := l.session
	l.wg.Go(func() {
		defer cancel()
		in := input{kind: inAnswered, seq: a.seq}
		switch a.op {
		case opTry:
			in.answer, in.err = s.Try(ctx, a.try)
		case opRenew:
			in.answer, in.err = s.Renew(ctx, a.renew)
		case opRelease:
			in.err = s.Release(ctx, a.release)
		}
		l.tell(in)
	})
}

func (l *loop) endCall(seq int, err error) {
	c, ok := l.calls[seq]
	if !ok {
		return
	}
	c.cancel()
	delete(l.calls, seq)
	if l.cfg.Measure != nil {
		l.cfg.Measure(Call{Op: c.op.String(), Took: l.cfg.Clock.Now() - c.began, Err: err})
	}
}

func (l *loop) listen(ctx context.Context, seq int) {
	ctx, l.bellStop = context.WithCancel(context.WithoutCancel(ctx))
	s := l.session
	l.wg.Go(func() {
		err := s.Listen(ctx, func(r Ring) {
			kind := inRang
			if r == Ready {
				kind = inReady
			}
			l.tell(input{kind: kind, seq: seq})
		})
		l.tell(input{kind: inDeaf, seq: seq, err: err})
	})
}

func (l *loop) startWork(ctx context.Context, a action) {
	ctx, l.workStop = context.WithCancelCause(ctx)
	l.holder = newHolder(l.cfg.Mutex, a.id, a.answer, l.session, a.deadlines)
	h, stop := l.holder, l.workStop
	l.wg.Go(func() {
		err := l.work(ctx, h)
		stop(nil)
		l.tell(input{kind: inWorkEnded, err: err})
	})
}

func (l *loop) closeSession() {
	for seq := range l.calls {
		l.endCall(seq, errNoAnswer)
	}
	if l.bellStop != nil {
		l.bellStop()
		l.bellStop = nil
	}
	if l.session != nil {
		_ = l.session.Close() // what it held is released or ends by itself
		l.session = nil
	}
}
