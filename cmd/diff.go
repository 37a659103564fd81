package cmd

import (
	"time"

	"github.com/simba-lock/simba/lease"
)

// diff tells what happened to a mutex between two readings, as far as they show
// it. Readings that say the same yield nothing, however much time has passed.
// elapsed is the time between the two.
//
// What came and went in between is not seen. If one owner follows another it
// is not always known how the first one ended: it is told as released if its
// lease had not run out yet (nothing else frees a mutex then), as expired if it
// had, and not at all if the lease has no end; acquired says whom it follows.
func diff(old, now lease.Snapshot, elapsed time.Duration) []lease.Event {
	d := &differ{before: stateName(old), after: stateName(now), mutex: now.Mutex}
	oldOwner, newOwner := ownerOf(old), ownerOf(now)
	if oldOwner != "" && oldOwner != newOwner {
		d.ownerGone(old, now, elapsed)
	}
	d.waitersGone(old, now, newOwner)
	switch {
	case newOwner == "":
	case newOwner != oldOwner:
		d.add(lease.Event{Kind: lease.EventAcquired, Owner: newOwner, Info: now.Info, Fence: now.Fence})
		if now.Revoked {
			d.owned(lease.EventRevoked, now)
		}
		if d.after == stateTransition {
			d.owned(lease.EventTransition, now)
		}
	default:
		d.ownerStays(old, now)
	}
	d.waitersCame(old, now)
	return d.events
}

// nobodyKnows stands for an owner without a name: the mutex is held all the same.
const nobodyKnows = "unknown"

// ownerOf is the owner while it owns; a snapshot may name one that does not any more.
func ownerOf(s lease.Snapshot) string {
	if state := stateName(s); state == stateHeld || state == stateTransition {
		if s.Owner == "" {
			return nobodyKnows
		}
		return s.Owner
	}
	return ""
}

type differ struct {
	mutex         string
	before, after string
	events        []lease.Event
}

func (d *differ) add(e lease.Event) {
	e.Mutex, e.Before, e.State = d.mutex, d.before, d.after
	d.events = append(d.events, e)
}

func (d *differ) owned(kind lease.EventKind, s lease.Snapshot) {
	d.add(lease.Event{Kind: kind, Owner: ownerOf(s), Info: s.Info, Fence: s.Fence})
}

func (d *differ) ownerGone(old, now lease.Snapshot, elapsed time.Duration) {
	kind := lease.EventExpired
	switch {
	case now.Last == old.Owner && old.Owner != "":
		if now.Released {
			kind = lease.EventReleased
		}
	case stateName(now) == stateCooldown: // a store that was emptied: nobody let go
	case old.Lease == lease.Forever:
		if ownerOf(now) != "" {
			return
		}
	case elapsed < old.Lease:
		kind = lease.EventReleased
	}
	d.owned(kind, old)
}

func (d *differ) ownerStays(old, now lease.Snapshot) {
	if now.Revoked && !old.Revoked {
		d.owned(lease.EventRevoked, now)
	}
	switch {
	case d.before == stateHeld && d.after == stateTransition:
		d.owned(lease.EventTransition, now)
	case d.before == stateTransition && d.after == stateHeld:
		d.owned(lease.EventRecovered, now)
	}
}

// waitersGone: those that own the mutex now have not left.
func (d *differ) waitersGone(old, now lease.Snapshot, owner string) {
	still := ids(now.Waiters)
	for _, w := range old.Waiters {
		if !still[w.ID] && w.ID != owner {
			d.add(lease.Event{Kind: lease.EventLeft, Owner: w.ID, Info: w.Info})
		}
	}
}

func (d *differ) waitersCame(old, now lease.Snapshot) {
	before := ids(old.Waiters)
	for _, w := range now.Waiters {
		if !before[w.ID] {
			d.add(lease.Event{Kind: lease.EventWaiting, Owner: w.ID, Info: w.Info})
		}
	}
}

func ids(waiters []lease.Waiter) map[string]bool {
	m := make(map[string]bool, len(waiters))
	for _, w := range waiters {
		m[w.ID] = true
	}
	return m
}
