package lease

import "sync"

// teller brings events to an observer in order without ever waiting for it.
type teller struct {
	mu     sync.Mutex
	queue  []Event
	more   chan struct{}
	closed bool
	done   chan struct{}
}

func newTeller(observe func(Event)) *teller {
	t := &teller{more: make(chan struct{}, 1), done: make(chan struct{})}
	if observe == nil {
		observe = func(Event) {}
	}
	go t.run(observe)
	return t
}

func (t *teller) run(observe func(Event)) {
	defer close(t.done)
	for range t.more {
		for {
			t.mu.Lock()
			batch := t.queue
			t.queue = nil
			closed := t.closed
			t.mu.Unlock()
			for _, e := range batch {
				observe(e)
			}
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
		}
	}
}

func (t *teller) tell(e Event) {
	t.mu.Lock()
	t.queue = append(t.queue, e)
	t.mu.Unlock()
	t.ring()
}

func (t *teller) ring() {
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// close waits until the observer was told everything.
func (t *teller) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.ring()
	<-t.done
}
