package lease

import (
	"errors"
	"fmt"
	"time"
)

// contend begins with a new id. An id that was given back or has left is spent:
// a release of it that is delayed could free what a later attempt was told is its.
func (m *machine) contend(now Instant) {
	m.phase, m.worked = contending, false
	m.id = m.newID()
	m.fence, m.state, m.told = 0, StateWaiting, ""
	m.unanswered, m.sentAny, m.anew = false, false, false
	m.startOver = false
	m.bell, m.listenAt = bellOff, 0
	m.bellSeq++
	m.do(action{kind: actOpen, id: m.id})
	if m.nextAt <= now {
		m.try(now)
	}
}

// limit is when contending ends without success; 0: never.
func (m *machine) limit() Instant {
	if m.wait == 0 && m.contact {
		return m.connectBy + promiseWait
	}
	var l Instant
	if !m.contact {
		l = m.connectBy
	}
	if m.wait > 0 && m.wait < Forever {
		w := m.began + m.wait
		if !m.contact {
			w = max(w, m.began+firstLook)
		}
		if l == 0 || w < l {
			l = w
		}
	}
	return l
}

// outOfTime: busy and out of reach are different things to whoever reads the
// exit status.
func (m *machine) outOfTime(now Instant) {
	if m.fails > 0 || !m.contact {
		m.leave(now, fmt.Errorf("%w: %w", ErrUnreachable, m.lastError()), false)
		return
	}
	m.leave(now, m.busy(now), false)
}

func (m *machine) busy(now Instant) error {
	a := m.last
	if a.Remaining > 0 && a.Remaining < Forever {
		a.Remaining = max(a.Remaining-(now-m.lastAt), 0)
	}
	return &BusyError{Mutex: m.mutex, Waited: now - m.began, Answer: a}
}

// tryTimeout is longer than a renewal's: the first one also connects, and
// nothing runs out meanwhile.
func (m *machine) tryTimeout() time.Duration {
	return min(max(m.asked.TTL/3, time.Second), 5*time.Second)
}

func (m *machine) try(now Instant) {
	deadline := now + m.tryTimeout()
	if !m.contact {
		// The first contact may need all the time it has, but not be bound to
		// one request that went astray.
		deadline = min(max(deadline, now+m.connect/2), m.connectBy)
	}
	r := TryRequest{
		Lease: m.asked.Lease(), TTL: m.asked.TTL, Hold: m.hold,
		Queue: m.wait != 0, StartOver: m.startOver, Seen: m.seen,
	}
	m.call(now, action{op: opTry, try: r}, flight{deadline: deadline})
}

// tryFailed ends what trying again cannot mend, and says whether it did.
func (m *machine) tryFailed(now Instant, err error) bool {
	switch {
	case errors.Is(err, ErrSpent):
		// The id is used up, whatever did it: never own anything under it.
		m.leave(now, nil, true)
	case IsPermanent(err):
		m.leave(now, err, false)
	default:
		return false
	}
	return true
}

func (m *machine) tried(now Instant, f *flight, a Answer) {
	m.startOver = false
	if a.State == Mine {
		m.own(now, f, a)
		return
	}
	m.lates = 0
	m.last, m.lastAt = a, now
	m.remember(a)
	m.tellWaiting(a)
	if m.wait == 0 {
		m.lookOnce(now, a)
		return
	}
	if m.bell == bellOff && m.listenAt == 0 {
		m.listenAt = now
	}
	m.nextAt = m.nextLook(now, a)
	if m.again {
		m.nextAt = now
	}
}

// lookOnce is for a run that does not wait: only a promise, which ends by
// itself and soon, is waited out.
func (m *machine) lookOnce(now Instant, a Answer) {
	end := m.began + promiseWait
	if (a.State != Promised && a.State != Free) || now >= end {
		m.leave(now, m.busy(now), false)
		return
	}
	m.nextAt = min(now+a.Remaining+time.Millisecond, end)
}

// nextLook is when a waiter that is not woken looks again by itself.
func (m *machine) nextLook(now Instant, a Answer) Instant {
	rank := max(a.Rank, 1)
	look := min(time.Duration(rank)*time.Second, maxLook)
	if m.bell != bellReady && m.bell != bellAsked {
		look = pollLook
	}
	if a.Remaining > 0 && a.Remaining < look {
		// The first two are there at the end of what they saw; the others
		// would only stand in their way.
		spread := endJitter
		if rank > 2 {
			spread = min(endJitter*time.Duration(rank), time.Second)
		}
		look = a.Remaining + time.Duration(m.random()*float64(spread)) + time.Millisecond
	}
	if a.LookBy > 0 {
		look = min(look, a.LookBy)
	}
	return now + look
}

// remember keeps what an emptied store could no longer tell.
func (m *machine) remember(a Answer) {
	if a.State != Held || a.Owner == "" || a.Owner == m.id {
		return
	}
	l := a.Lease
	if l == 0 {
		l = m.asked.Lease()
	}
	if l == Forever {
		return
	}
	m.seen.Owner, m.seen.Lease, m.seen.Birth = a.Owner, l, a.Birth
	m.seen.Fence = max(m.seen.Fence, a.Fence)
}

func (m *machine) tellWaiting(a Answer) {
	what := fmt.Sprint(a.State, a.Rank, a.Owner)
	if what == m.told {
		return
	}
	m.told = what
	m.emit(Event{Kind: EventWaiting, Owner: a.Owner, Info: a.Info, Fence: a.Fence, Rank: a.Rank})
}

// gaveUp: the caller does not want it any more.
func (m *machine) gaveUp(now Instant, cause error) {
	switch m.phase {
	case contending:
		m.leave(now, cause, false)
	case holding:
		m.stop(cause)
	case leaving:
		if m.anew {
			m.anew, m.result = false, cause
		}
	}
}

// leave gives up a place, or an ownership under which nothing runs.
func (m *machine) leave(now Instant, result error, anew bool) {
	if anew {
		m.lates++
		if m.wait == 0 && m.lates > 2 {
			anew, result = false, fmt.Errorf("%w: it answers later than the ttl of %v", ErrUnreachable, m.asked.TTL)
		}
	}
	m.depart(now, now+leaveWithin, result, anew)
}

func (m *machine) depart(now, by Instant, result error, anew bool) {
	m.abandon()
	m.phase = leaving
	m.result, m.anew, m.leaveBy = result, anew, by
	if !m.contact {
		m.leaveBy = min(by, now+leaveUnseen)
	}
	m.listenAt, m.nextAt, m.fails = 0, 0, 0
	if !m.sentAny || IsPermanent(result) && !m.unanswered {
		m.left(now, nil) // the store was asked for nothing, or refused
		return
	}
	m.release(now)
}

func (m *machine) release(now Instant) {
	deadline := min(now+m.tryTimeout(), m.leaveBy)
	m.call(now, action{op: opRelease, release: ReleaseRequest{Tombstone: m.unanswered, Unused: !m.worked}}, flight{deadline: deadline})
}

// left ends the id. An error says that it may linger in the store, where it
// ends with its lease.
func (m *machine) left(now Instant, err error) {
	m.abandon()
	if err != nil {
		m.emit(Event{Kind: EventTrouble, Err: err})
	}
	switch {
	case m.state != StateHeld && m.state != StateTransition && m.state != StateStopping:
	case errors.Is(m.stopCause, ErrLost) && !m.anew:
		m.turn(StateLost, Event{Kind: EventLost, Err: m.stopCause})
	case err == nil:
		m.turn(StateReleased, Event{Kind: EventReleased})
	}
	if !m.anew {
		m.end(m.result)
		return
	}
	m.nextAt = 0
	if m.lates > 1 {
		m.fails = m.lates
		m.nextAt = now + m.backoff()
		m.fails = 0
	}
	m.contend(now)
}
