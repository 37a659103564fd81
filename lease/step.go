package lease

import (
	"errors"
	"fmt"
	"time"
)

// start begins to contend.
func (m *machine) start(now Instant) []action {
	m.began = now
	m.connectBy = now + m.connect
	m.contend(now)
	return m.take()
}

// step tells what happened at now. The clock comes first: what it decides is
// not taken back by an answer that was late.
func (m *machine) step(now Instant, in input) []action {
	if m.phase == ended {
		return nil
	}
	// A waiter that was frozen for longer than a promise lives has lost its
	// place to those behind it.
	if m.phase == contending && m.planned > 0 && now > m.planned+PromiseLife {
		m.startOver = true
	}
	m.watchDeadlines(now)
	switch in.kind {
	case inAnswered:
		m.answered(now, in)
	case inReady, inRang, inDeaf:
		if in.seq == m.bellSeq {
			m.heard(now, in)
		}
	case inWorkEnded:
		m.workEnded(now, in.err)
	case inGiveUp:
		m.gaveUp(now, in.err)
	}
	m.due(now)
	return m.take()
}

func (m *machine) take() []action {
	m.planned = m.wake()
	out := m.out
	m.out = nil
	return out
}

// wake is when step must be called next though nothing happens; 0: never.
func (m *machine) wake() Instant {
	var w Instant
	at := func(t Instant) {
		if t > 0 && (w == 0 || t < w) {
			w = t
		}
	}
	if m.flight != nil {
		at(m.flight.deadline)
	} else {
		at(m.nextAt)
	}
	switch m.phase {
	case contending:
		at(m.limit())
		at(m.listenAt)
	case holding:
		at(m.listenAt)
		if !m.endless && m.stopCause == nil {
			if m.state == StateHeld {
				at(m.deadline.Held)
			}
			at(m.deadline.Stop)
		}
	case leaving:
		at(m.leaveBy)
	case ended:
		return 0
	}
	return w
}

// due does what the clock asks for.
func (m *machine) due(now Instant) {
	if f := m.flight; f != nil && now >= f.deadline {
		m.abandon()
		m.failed(now, f, errNoAnswer)
	}
	switch m.phase {
	case contending:
		if l := m.limit(); l > 0 && now >= l {
			m.outOfTime(now)
			return
		}
	case leaving:
		if now >= m.leaveBy {
			m.left(now, fmt.Errorf("could not be released: %w", m.lastError()))
			return
		}
	case ended:
		return
	}
	if m.listenAt > 0 && now >= m.listenAt {
		m.listenAt = 0
		m.bell = bellAsked
		m.bellSeq++
		m.do(action{kind: actListen, seq: m.bellSeq})
	}
	if m.flight == nil && m.nextAt > 0 && now >= m.nextAt {
		m.nextAt = 0
		switch m.phase {
		case contending:
			m.try(now)
		case holding:
			m.renew(now)
		case leaving:
			m.release(now)
		}
	}
}

func (m *machine) do(a action) { m.out = append(m.out, a) }

func (m *machine) call(now Instant, a action, f flight) {
	m.seq++
	f.seq, f.op, f.sent = m.seq, a.op, now
	m.flight = &f
	m.sentAny = true
	m.again = false
	a.kind, a.seq, a.id = actCall, m.seq, m.id
	m.do(a)
}

// abandon ends the attempt under way; what it may still do is unknown.
func (m *machine) abandon() {
	if m.flight == nil {
		return
	}
	m.do(action{kind: actAbandon, seq: m.flight.seq})
	m.flight = nil
	m.unanswered = true
}

func (m *machine) answered(now Instant, in input) {
	f := m.flight
	if f == nil || f.seq != in.seq {
		return
	}
	m.flight = nil
	if in.err != nil {
		if !IsPermanent(in.err) {
			m.unanswered = true // it may have been carried out
		}
		m.failed(now, f, in.err)
		return
	}
	m.contact, m.fails, m.lastEr = true, 0, nil
	m.compareClocks(now, f.sent, in.answer.Clock)
	switch f.op {
	case opTry:
		m.tried(now, f, in.answer)
	case opRenew:
		m.renewed(now, f, in.answer)
	case opRelease:
		m.left(now, nil)
	}
}

func (m *machine) failed(now Instant, f *flight, err error) {
	m.fails++
	if m.lastEr == nil || !errors.Is(err, errNoAnswer) {
		m.lastEr = err // an attempt that was given up says less than the one before
	}
	if f.op == opTry && m.tryFailed(now, err) {
		return
	}
	switch {
	case f.op == opRelease && !m.contact:
		m.left(now, nil) // nothing can be there, and a store that was never reached is not worth a wait
		return
	case f.op == opRelease && IsPermanent(err):
		m.left(now, err)
		return
	}
	pause := m.backoff()
	m.nextAt = now + pause
	m.emit(Event{Kind: EventTrouble, Err: err, After: pause})
}

func (m *machine) lastError() error {
	if m.lastEr == nil {
		return errNoAnswer
	}
	return m.lastEr
}

// backoff is exponential with full jitter. It begins small enough for several
// tries within the shortest lease, and ends at a sixth of the ttl so that an
// outage that ends in the transition is noticed in it.
func (m *machine) backoff() time.Duration {
	base := min(max(m.asked.TTL/100, 5*time.Millisecond), 200*time.Millisecond)
	limit := min(max(m.asked.TTL/6, 20*time.Millisecond), 5*time.Second)
	d := min(base<<min(m.fails, 16), limit)
	return max(time.Duration(m.random()*float64(d)), base/2)
}

// heard is what the doorbell says.
func (m *machine) heard(now Instant, in input) {
	switch in.kind {
	case inReady:
		m.bell = bellReady
		if m.phase == contending && m.flight == nil {
			m.nextAt = now // it is reachable again, whatever failed before
			return
		}
		m.rang(now)
	case inDeaf:
		m.deaf(now, in.err)
	default:
		m.rang(now)
	}
}

// rang: look again. An attempt under way may have looked too early.
func (m *machine) rang(now Instant) {
	switch {
	case m.phase == leaving:
	case m.flight != nil:
		m.again = true
	case m.phase == contending && m.fails == 0:
		m.nextAt = now
	case m.phase == holding && !m.lost:
		m.nextAt = min(m.nextAt, max(now, m.lastRenew+m.ringGap()))
	}
}

// ringGap keeps a bell that rings all the time from turning into traffic.
func (m *machine) ringGap() time.Duration { return min(m.asked.TTL/20, time.Second) }

func (m *machine) deaf(now Instant, err error) {
	if errors.Is(err, ErrNoPush) {
		m.bell = bellNone
		if m.phase == contending && m.nextAt > 0 {
			m.nextAt = min(m.nextAt, now+pollLook)
		}
		return
	}
	m.bell = bellOff
	if m.phase == contending || m.phase == holding {
		m.listenAt = now + max(m.backoff(), endJitter)
		m.rang(now)
	}
}

// compareClocks notices a backend clock that stepped. A reply bounds the
// difference of the clocks between its sending and its arrival.
func (m *machine) compareClocks(now, sent Instant, clock time.Duration) {
	if clock == 0 {
		return
	}
	lo, hi := clock-now, clock-sent
	var step time.Duration
	switch {
	case !m.clocked:
	case lo > m.clockHi:
		step = lo - m.clockHi
	case hi < m.clockLo:
		step = hi - m.clockLo
	}
	m.clocked, m.clockLo, m.clockHi = true, lo, hi
	if step.Abs() > m.asked.kappa() {
		m.emit(Event{Kind: EventClockStep, After: step})
	}
}

func (m *machine) emit(e Event) {
	e.Mutex = m.mutex
	if e.Before == "" {
		e.Before = m.state
	}
	if e.State == "" {
		e.State = m.state
	}
	if e.Owner == "" {
		e.Owner = m.id
	}
	if e.Fence == 0 {
		e.Fence = m.fence
	}
	m.do(action{kind: actEmit, event: e})
}

func (m *machine) turn(to string, e Event) {
	e.Before, e.State = m.state, to
	m.state = to
	m.emit(e)
}

func (m *machine) end(err error) {
	m.phase = ended
	m.do(action{kind: actEnd, err: err})
}
