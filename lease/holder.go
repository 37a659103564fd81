package lease

import (
	"context"
	"os"
	"sync"
)

// Holder is what the work knows of its lease. Safe for concurrent use.
type Holder struct {
	mutex, id  string
	fence      uint64
	unreleased []string
	session    Session
	changes    chan Deadlines

	mu        sync.Mutex
	deadlines Deadlines
}

func newHolder(mutex, id string, a Answer, s Session, d Deadlines) *Holder {
	return &Holder{
		mutex: mutex, id: id, fence: a.Fence, unreleased: a.Unreleased,
		session: s, deadlines: d, changes: make(chan Deadlines, 1),
	}
}

// Mutex is the name of the mutex.
func (h *Holder) Mutex() string { return h.mutex }

// ID is the whole id of the contender that owns it.
func (h *Holder) ID() string { return h.id }

// Fence is the fencing token of this ownership.
func (h *Holder) Fence() uint64 { return h.fence }

// Unreleased are the ids of previous owners if what they started may still be
// alive and has to be ended before anything is begun; otherwise none.
func (h *Holder) Unreleased() []string { return h.unreleased }

// Deadlines are those of the lease as it was last renewed.
func (h *Holder) Deadlines() Deadlines {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadlines
}

// Changes brings the deadlines after each renewal; only the latest is kept.
func (h *Holder) Changes() <-chan Deadlines { return h.changes }

// Anchors are the files in which the ownership lives, if it lives in files; see
// [Anchored]. There may be more after a renewal.
func (h *Holder) Anchors() []*os.File {
	if s, ok := h.session.(Anchored); ok {
		return s.Anchors()
	}
	return nil
}

// Checkpoint is that of the session, see [Session].
func (h *Holder) Checkpoint(ctx context.Context, from, to string) (string, error) {
	return h.session.Checkpoint(ctx, from, to)
}

// extend is called by one goroutine only.
func (h *Holder) extend(d Deadlines) {
	h.mu.Lock()
	h.deadlines = d
	h.mu.Unlock()
	select {
	case <-h.changes: // an older one that nobody took
	default:
	}
	h.changes <- d
}
