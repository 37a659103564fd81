package backendtest

import (
	"time"

	"github.com/simba-lock/simba/lease"
)

// Store is a store of mutexes whose owners have a lease that ends. Every
// operation is one atomic step at the instant now, which must not go backwards
// unless the test wants the store's clock to step. What a step returns as rings
// are the ids of the contenders whose doorbell rings because of it, in order.
//
// Why two contenders never own one mutex at once: an ownership is written in
// one place only (take, and the re-assertion in Renew), and only while nobody
// owns the mutex, no embargo is running, or the embargo is the asker's own. An
// ownership ends by its own end or by its owner's id, never otherwise.
type Store struct {
	// Grant, if not zero, is the lease that every owner gets whatever it asked
	// for; Forever for ownership without an end.
	Grant time.Duration

	birth   string
	mutexes map[string]*mutex
}

// mutex is all that the store keeps for one name.
type mutex struct {
	record  record
	embargo embargo
	text    string // the checkpoint
	queue   []waiter
	promise promise
	tombs   map[string]time.Duration // spent id -> until
	version uint64                   // rises with every change that can be seen
}

// record is the present or the last ownership. The fence outlives it.
type record struct {
	owner    string // empty: nobody yet
	info     lease.Info
	fence    uint64
	acquired time.Duration
	end      time.Duration
	hold     time.Duration // until then nobody else may own it
	ttl      time.Duration // of the lease
	lease    time.Duration // L
	revoked  bool
	released bool
}

// embargo keeps a mutex from everybody because an owner, whose record was lost,
// may still be at work. It stays on record when it has ended: what was served
// once is not served again for another waiter that saw the same owner.
type embargo struct {
	owner string
	info  lease.Info
	fence uint64
	until time.Duration
	lease time.Duration
}

type waiter struct {
	id   string
	info lease.Info
}

// promise is the short time for which the mutex is kept for the waiter that was
// woken. It exists only while nobody owns the mutex.
type promise struct {
	id    string // empty: none
	until time.Duration
}

// NewStore is an empty store. The birth stamp tells it from any other.
func NewStore(birth string) *Store {
	return &Store{birth: birth, mutexes: make(map[string]*mutex)}
}

// Birth is the birth stamp.
func (s *Store) Birth() string { return s.birth }

// Try is [lease.Session.Try].
func (s *Store) Try(now time.Duration, name string, c lease.Contender, r lease.TryRequest) (lease.Answer, []string, error) {
	m := s.at(name)
	if m.spent(now, c.ID) {
		return lease.Answer{}, nil, lease.ErrSpent
	}
	m.settle(now)
	s.impose(now, m, r.Seen)

	if r.StartOver {
		// Its old place may have gone to somebody else's promise meanwhile.
		m.leave(c.ID)
	}
	rec := &m.record
	switch {
	case m.owned(now) && rec.owner == c.ID:
		if !rec.revoked {
			s.extend(now, rec, r.Lease, r.TTL)
		}
		return s.mine(now, m), nil, nil
	case m.owned(now):
		m.join(c, r.Queue)
		return s.held(now, m, c.ID), nil, nil
	case m.embargoed(now) && m.embargo.owner != c.ID:
		m.join(c, r.Queue)
		return s.kept(now, m, c.ID), nil, nil
	case m.cooling(now):
		m.join(c, r.Queue)
		return s.answer(now, lease.Answer{State: lease.Cooldown, Remaining: rec.hold - now, Rank: m.rank(c.ID)}), nil, nil
	}

	if first := m.first(); first != "" && first != c.ID {
		rings := m.wake(now)
		m.join(c, r.Queue)
		return s.answer(now, lease.Answer{
			State: lease.Promised, Remaining: m.promise.until - now, Rank: m.rank(c.ID),
		}), rings, nil
	}
	s.take(now, m, c, r)
	return s.mine(now, m), nil, nil
}

// Renew is [lease.Session.Renew].
func (s *Store) Renew(now time.Duration, name string, c lease.Contender, r lease.RenewRequest) (lease.Answer, []string, error) {
	m := s.at(name)
	m.settle(now)
	rec := &m.record
	switch {
	case m.owned(now) && rec.owner == c.ID:
		if !rec.revoked || r.Dying {
			s.extend(now, rec, r.Lease, r.TTL)
		}
		return s.mine(now, m), nil, nil
	case m.owned(now):
		return s.held(now, m, c.ID), nil, nil
	case !r.Reassert || m.spent(now, c.ID):
		return s.answer(now, lease.Answer{State: lease.Gone}), nil, nil
	case rec.fence > r.Fence && m.embargoed(now):
		return s.kept(now, m, c.ID), nil, nil
	case rec.fence > r.Fence, rec.fence == r.Fence && rec.owner != "" && rec.owner != c.ID:
		return s.answer(now, lease.Answer{State: lease.Gone}), nil, nil
	}
	// Nobody owned it since. A waiter that was just promised it goes on waiting.
	acquired := now
	if rec.owner == c.ID {
		acquired = rec.acquired
	}
	*rec = record{owner: c.ID, info: c.Info, fence: r.Fence, acquired: acquired, hold: now + r.Hold}
	s.extend(now, rec, r.Lease, r.TTL)
	m.embargo = embargo{owner: c.ID, fence: r.Fence, until: now} // lifted
	m.promise = promise{}
	m.leave(c.ID)
	m.version++
	return s.mine(now, m), nil, nil
}

// Release is [lease.Session.Release], by whole id: ownership, place, promise
// and an embargo for the sake of this owner all end.
func (s *Store) Release(now time.Duration, name, id string, r lease.ReleaseRequest) []string {
	m := s.at(name)
	if r.Tombstone {
		m.bury(now, id)
	}
	if rec := &m.record; rec.owner == id && !rec.released {
		rec.released = true
		rec.end = min(rec.end, now)
		if r.Unused {
			rec.hold = 0
		}
		m.version++
	}
	if m.embargo.owner == id && m.embargoed(now) {
		m.embargo.until = now
		m.version++
	}
	m.leave(id)
	m.settle(now)
	if m.owned(now) || m.embargoed(now) || m.cooling(now) || m.promise.id != "" {
		return nil
	}
	return m.wake(now)
}

// Checkpoint is [lease.Session.Checkpoint].
func (s *Store) Checkpoint(now time.Duration, name, id, from, to string) (string, error) {
	m := s.mutexes[name]
	if m == nil || !m.owned(now) || m.record.owner != id {
		return "", lease.ErrNotOwner
	}
	if m.text == from {
		m.text = to
	}
	return m.text, nil
}

// Revoke is [lease.Backend.Revoke].
func (s *Store) Revoke(now time.Duration, name, owner string) ([]string, error) {
	m := s.mutexes[name]
	if m == nil || !m.owned(now) || m.record.owner != owner {
		return nil, lease.ErrNotOwner
	}
	m.record.revoked = true
	m.version++
	return []string{owner}, nil
}

// Empty loses everything, as a server does that comes back without its data.
func (s *Store) Empty(birth string) {
	s.birth = birth
	clear(s.mutexes)
}

// Vanish loses all that the store keeps for one mutex.
func (s *Store) Vanish(name string) { delete(s.mutexes, name) }

func (s *Store) at(name string) *mutex {
	m := s.mutexes[name]
	if m == nil {
		m = &mutex{version: 1}
		s.mutexes[name] = m
	}
	return m
}

// impose writes an embargo if the asker saw an owner of which the store knows
// nothing: the store was emptied, and that owner may still be at work.
func (s *Store) impose(now time.Duration, m *mutex, seen lease.Seen) {
	if seen.Owner == "" || m.owned(now) || seen.Owner == m.embargo.owner || seen.Owner == m.record.owner {
		return
	}
	if seen.Birth == s.birth && m.record.fence >= seen.Fence {
		return
	}
	until := now + seen.Lease
	if m.embargoed(now) {
		if m.embargo.fence >= seen.Fence {
			return
		}
		until = max(until, m.embargo.until)
	}
	m.embargo = embargo{owner: seen.Owner, fence: seen.Fence, until: until, lease: seen.Lease}
	m.record.fence = max(m.record.fence, seen.Fence)
	m.promise = promise{}
	m.version++
}

func (s *Store) take(now time.Duration, m *mutex, c lease.Contender, r lease.TryRequest) {
	fence := max(m.record.fence+1, r.Seen.Fence+1, uint64(max(now, 0)/time.Microsecond))
	m.record = record{owner: c.ID, info: c.Info, fence: fence, acquired: now, hold: now + r.Hold}
	s.extend(now, &m.record, r.Lease, r.TTL)
	if m.embargoed(now) { // its own
		m.embargo.until = now
	}
	m.promise = promise{}
	m.leave(c.ID)
	m.version++
}

// extend sets the full lease anew.
func (s *Store) extend(now time.Duration, rec *record, l, ttl time.Duration) {
	if s.Grant != 0 {
		if s.Grant != lease.Forever && l > 0 {
			ttl = time.Duration(float64(ttl) * (float64(s.Grant) / float64(l)))
		}
		l = s.Grant
	}
	rec.lease, rec.ttl, rec.end = l, ttl, lease.Forever
	if l != lease.Forever {
		rec.end = now + l
	}
}

func (s *Store) answer(now time.Duration, a lease.Answer) lease.Answer {
	a.Birth, a.Clock = s.birth, now
	return a
}

func (s *Store) mine(now time.Duration, m *mutex) lease.Answer {
	rec := &m.record
	return s.answer(now, lease.Answer{
		State: lease.Mine, Owner: rec.owner, Info: rec.info, Fence: rec.fence,
		Remaining: left(now, rec.end), Lease: rec.lease, Granted: s.Grant, Revoked: rec.revoked,
	})
}

func (s *Store) held(now time.Duration, m *mutex, asker string) lease.Answer {
	rec := &m.record
	return s.answer(now, lease.Answer{
		State: lease.Held, Owner: rec.owner, Info: rec.info, Fence: rec.fence,
		Remaining: left(now, rec.end), Lease: rec.lease, Rank: m.rank(asker),
	})
}

// kept is the answer while an embargo is running.
func (s *Store) kept(now time.Duration, m *mutex, asker string) lease.Answer {
	e := &m.embargo
	return s.answer(now, lease.Answer{
		State: lease.Held, Owner: e.owner, Info: e.info, Fence: e.fence,
		Remaining: left(now, e.until), Lease: e.lease, Rank: m.rank(asker),
	})
}
