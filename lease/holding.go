package lease

import (
	"errors"
	"fmt"
	"time"
)

// own: the backend says that the mutex is ours.
func (m *machine) own(now Instant, f *flight, a Answer) {
	m.terms, m.endless = m.asked, a.Granted == Forever
	if !m.endless && a.Granted > 0 {
		t, err := m.asked.granted(a.Granted)
		if err != nil {
			m.leave(now, err, false)
			return
		}
		m.terms = t
	}
	m.count(f, a)
	if !m.endless && now >= m.deadline.Held {
		// Others may count on this lease to end; it is too old to start under.
		m.leave(now, nil, true)
		return
	}
	if a.Revoked {
		m.leave(now, ErrRevoked, false)
		return
	}
	m.phase, m.worked = holding, true
	if m.hold > 0 {
		m.holdEnd = now + m.hold
	}
	m.fence, m.lost, m.stopCause = a.Fence, false, nil
	m.turn(StateHeld, Event{Kind: EventAcquired, Info: a.Info})
	if m.terms != m.asked {
		m.emit(Event{Kind: EventGranted, After: a.Granted})
	}
	m.do(action{kind: actStart, id: m.id, answer: a, deadlines: m.deadline})
	if m.bell == bellOff {
		m.listenAt = now + listenAfter
	}
	m.nextAt = m.renewAt()
	if m.again {
		m.rang(now)
	}
}

// count takes the deadlines from an answer that says ours. They begin at the
// sending of the request, or at the earlier proof; what the backend says is
// left of the lease only ever shortens them.
func (m *machine) count(f *flight, a Answer) {
	m.lastRenew = f.sent
	m.t0 = f.sent
	if m.endless {
		m.deadline = Deadlines{}
		return
	}
	if a.Proof > 0 {
		m.t0 = min(m.t0, a.Proof)
	}
	remaining := a.Remaining
	if remaining == Forever {
		remaining = 0
	}
	m.deadline = m.terms.deadlines(m.t0, remaining)
	m.t0 = m.deadline.End - m.terms.Lease()
}

func (m *machine) renewAt() Instant { return m.t0 + m.terms.TTL/3 }

// renewTimeout leaves room for several attempts before the stop.
func (m *machine) renewTimeout() time.Duration {
	return min(max(m.terms.TTL/4, 100*time.Millisecond), 5*time.Second)
}

func (m *machine) renew(now Instant) {
	if m.lost {
		return
	}
	if m.reassert && !m.endless && now >= m.deadline.Stop {
		m.reassert = false
	}
	deadline := now + m.renewTimeout()
	if !m.endless && m.stopCause == nil {
		deadline = min(deadline, m.deadline.Stop)
	}
	r := RenewRequest{
		Lease: m.asked.Lease(), TTL: m.asked.TTL, Fence: m.fence, Hold: max(m.holdEnd-now, 0),
		Reassert: m.reassert, Dying: m.stopCause != nil,
	}
	m.lastRenew = now
	m.call(now, action{op: opRenew, renew: r}, flight{deadline: deadline, reassert: m.reassert, dying: r.Dying})
}

func (m *machine) renewed(now Instant, f *flight, a Answer) {
	m.reassert = false
	switch {
	case a.State == Mine:
		m.kept(now, f, a)
	case a.State == Gone && !f.reassert && (m.endless || now < m.deadline.Stop):
		// The store was emptied, or somebody deleted the record. Nobody else
		// may own it before the lease has ended, so it may be put back as long
		// as the work would not have to stop yet.
		m.reassert = true
		m.renew(now)
	default:
		m.lose(a)
	}
}

// kept: still ours. A revoked lease is extended only while the work is dying.
func (m *machine) kept(now Instant, f *flight, a Answer) {
	if a.Revoked {
		if m.stopCause == nil {
			m.emit(Event{Kind: EventRevoked})
		}
		m.stop(ErrRevoked)
	}
	if !a.Revoked || f.dying {
		m.extended(now, f, a)
	}
	m.nextAt = max(m.renewAt(), now+m.ringGap())
	if a.Revoked && !f.dying {
		m.nextAt = now
	}
	if m.again {
		m.rang(now)
	}
}

func (m *machine) extended(now Instant, f *flight, a Answer) {
	old, oldTerms := m.deadline, m.terms
	if !m.endless && a.Granted > 0 && a.Granted != Forever {
		if t, err := m.asked.granted(a.Granted); err == nil {
			m.terms = t
		} else {
			// The work already runs: better a shorter time to end than none.
			m.terms = Terms{TTL: m.asked.TTL, Transition: m.asked.Transition}.squeezed(a.Granted)
		}
		if m.terms != oldTerms {
			m.emit(Event{Kind: EventGranted, After: a.Granted})
		}
	}
	t0 := m.t0
	m.count(f, a)
	if !m.endless && a.Proof > 0 && a.Remaining == 0 && m.terms == oldTerms && m.t0 < t0 {
		m.t0, m.deadline = t0, old // what was proved before stays proved
	}
	if m.stopCause != nil {
		return // the lease goes on for the dying; for them nothing is taken back
	}
	m.do(action{kind: actExtend, deadlines: m.deadline})
	if m.state == StateTransition && (m.endless || now < m.deadline.Held) || f.reassert {
		m.turn(StateHeld, Event{Kind: EventRecovered})
	}
	m.watchDeadlines(now) // a lease that was shortened counts at once
}

// watchDeadlines is looked at before anything else whenever time has passed.
func (m *machine) watchDeadlines(now Instant) {
	if m.phase != holding || m.endless || m.stopCause != nil {
		return
	}
	if m.state == StateHeld && now >= m.deadline.Held {
		m.turn(StateTransition, Event{Kind: EventTransition})
	}
	if now >= m.deadline.Stop {
		m.stop(fmt.Errorf("%w: it could not be renewed in time: %w", ErrLost, m.lastError()))
	}
}

// stop tells the work to end. It is never taken back.
func (m *machine) stop(cause error) {
	if m.stopCause != nil {
		return
	}
	m.stopCause = cause
	m.turn(StateStopping, Event{Kind: EventStopping, Err: cause})
	m.do(action{kind: actStop, err: cause})
}

// lose: somebody else owns it, or nobody does and it cannot be put back.
func (m *machine) lose(a Answer) {
	m.lost = true
	m.nextAt = 0
	cause := fmt.Errorf("%w: its record has vanished", ErrLost)
	if a.Owner != "" && a.Owner != m.id {
		cause = fmt.Errorf("%w: %s owns it now", ErrLost, ShortID(a.Owner))
	}
	m.stop(cause)
}

// workEnded: all that ran under the lease is gone, so others may start.
func (m *machine) workEnded(now Instant, err error) {
	revoked := errors.Is(m.stopCause, ErrRevoked)
	late := errors.Is(err, ErrLate) && (m.stopCause == nil || errors.Is(m.stopCause, ErrLost)) && !revoked
	m.worked = !errors.Is(err, ErrLate)
	result := err
	if errors.Is(m.stopCause, ErrLost) && !late {
		result = joined(m.stopCause, err)
	}
	if errors.Is(err, ErrKeep) {
		if result = m.keep(now); result == nil {
			m.abandon()
			m.end(nil)
			return
		}
	}
	m.abandon()
	if m.lost && !m.unanswered {
		m.sentAny = false // nothing of ours is left there
		m.depart(now, now, result, late)
		return
	}
	if late {
		m.leave(now, nil, true)
		return
	}
	by := now + releaseWithin
	if !m.endless {
		// After its end there is nothing to release; but one attempt is due.
		by = max(min(by, m.deadline.End), now+leaveWithin)
	}
	m.depart(now, by, result, false)
}

// keep says why the mutex cannot be left held; nil if it can. A record that is being
// put back this very moment is no lease to build upon.
func (m *machine) keep(now Instant) error {
	switch {
	case m.stopCause != nil:
		return m.stopCause
	case m.endless:
		return ErrKeep
	case now >= m.deadline.Held || m.flight != nil && m.flight.reassert:
		return fmt.Errorf("%w: it could not be renewed in time: %w", ErrLost, m.lastError())
	}
	return nil
}

// joined adds what the work said, unless it only repeats the cause.
func joined(cause, err error) error {
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrLate) {
		return cause
	}
	return errors.Join(cause, err)
}
