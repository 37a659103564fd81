package backendtest

import (
	"slices"
	"time"

	"github.com/simba-lock/simba/lease"
)

func (m *mutex) owned(now time.Duration) bool {
	return m.record.owner != "" && !m.record.released && m.record.end > now
}

// cooling: nobody owns it, and nobody may yet.
func (m *mutex) cooling(now time.Duration) bool { return !m.owned(now) && m.record.hold > now }

func (m *mutex) embargoed(now time.Duration) bool {
	return m.embargo.owner != "" && m.embargo.until > now
}

// spent: the id has left and said that a call of its own may still be on its
// way, or it owned the mutex last and gave it back.
func (m *mutex) spent(now time.Duration, id string) bool {
	return m.tombs[id] > now || m.record.owner == id && m.record.released
}

func (m *mutex) bury(now time.Duration, id string) {
	if m.tombs == nil {
		m.tombs = make(map[string]time.Duration)
	}
	for old, until := range m.tombs {
		if until <= now {
			delete(m.tombs, old)
		}
	}
	m.tombs[id] = now + lease.TombstoneLife
}

// settle drops a waiter that did not come while the mutex was promised to it:
// it is dead or frozen. Time spent under an owner or an embargo is not held
// against it, since no promise runs then.
func (m *mutex) settle(now time.Duration) {
	if m.promise.id == "" || m.promise.until > now {
		return
	}
	m.leave(m.promise.id)
}

// first is whose turn it is; empty if nobody waits.
func (m *mutex) first() string {
	if m.promise.id != "" {
		return m.promise.id
	}
	if len(m.queue) > 0 {
		return m.queue[0].id
	}
	return ""
}

// wake promises the mutex to the first waiter, unless it is promised already.
// The caller has made sure that nobody owns it.
func (m *mutex) wake(now time.Duration) []string {
	if m.promise.id != "" || len(m.queue) == 0 {
		return nil
	}
	m.promise = promise{id: m.queue[0].id, until: now + lease.PromiseLife}
	m.version++
	return []string{m.promise.id}
}

func (m *mutex) join(c lease.Contender, queue bool) {
	if !queue || m.rank(c.ID) > 0 {
		return
	}
	m.queue = append(m.queue, waiter{id: c.ID, info: c.Info})
	m.version++
}

// leave ends a place in the queue and a promise.
func (m *mutex) leave(id string) {
	if i := m.rank(id) - 1; i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		m.version++
	}
	if m.promise.id == id {
		m.promise = promise{}
		m.version++
	}
}

func (m *mutex) rank(id string) int {
	for i := range m.queue {
		if m.queue[i].id == id {
			return i + 1
		}
	}
	return 0
}
