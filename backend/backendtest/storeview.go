package backendtest

import (
	"slices"
	"time"

	"github.com/simba-lock/simba/lease"
)

// Inspect is [lease.Backend.Inspect]: it changes nothing.
func (s *Store) Inspect(now time.Duration, name string) lease.Snapshot {
	snap := lease.Snapshot{Mutex: name}
	m := s.mutexes[name]
	if m == nil {
		return snap
	}
	rec := m.record
	lapsed := ""
	switch {
	case m.owned(now):
		snap.State, snap.Owner, snap.Info, snap.Fence = lease.Held, rec.owner, rec.info, rec.fence
		snap.Lease = left(now, rec.end)
		snap.TTL = snap.Lease
		if rec.end != lease.Forever {
			snap.TTL = max(0, snap.Lease-(rec.lease-rec.ttl))
		}
		snap.Acquired, snap.Revoked = wall(rec.acquired), rec.revoked
	case m.embargoed(now):
		e := m.embargo
		snap.State, snap.Owner, snap.Info, snap.Fence = lease.Held, e.owner, e.info, e.fence
		snap.Lease = left(now, e.until)
		snap.Detail = "the store was emptied: this owner may still be at work"
	case m.cooling(now):
		snap.State, snap.Lease = lease.Cooldown, rec.hold-now
	case m.promise.id != "" && m.promise.until > now:
		snap.State, snap.Lease = lease.Promised, m.promise.until-now
	default:
		lapsed = m.promise.id
	}
	if snap.State != lease.Held {
		snap.Last, snap.Released, snap.Fence = rec.owner, rec.released, rec.fence
	}
	for _, w := range m.queue {
		if w.id != lapsed {
			snap.Waiters = append(snap.Waiters, lease.Waiter{ID: w.id, Info: w.info})
		}
	}
	return snap
}

// List is [lease.Backend.List].
func (s *Store) List() []string {
	names := make([]string, 0, len(s.mutexes))
	for n := range s.mutexes {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Version rises with every change of the mutex that can be seen from outside.
func (s *Store) Version(name string) uint64 {
	if m := s.mutexes[name]; m != nil {
		return m.version
	}
	return 0
}

func left(now, end time.Duration) time.Duration {
	if end == lease.Forever {
		return end
	}
	return end - now
}

func wall(t time.Duration) time.Time { return time.Unix(0, int64(t)) }
