package cmd

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// messages is simba's own standard error. Writing to it never blocks and never
// fails: whoever reads it may be gone (a closed pipe) or asleep (a full one),
// and neither may hold up the lease, the job or the exit. What does not fit is
// dropped and counted.
type messages struct {
	to    *os.File
	start sync.Once
	queue chan func()

	mu      sync.Mutex
	dropped int
	used    bool // something was written
}

const (
	// queuedMessages are kept for a slow reader: more than a run says in
	// hours, little in memory.
	queuedMessages = 256
	// lastWords is how long the exit waits for a reader: a live one needs far
	// less, a blocked one must not be felt.
	lastWords = 250 * time.Millisecond
)

func newMessages(to *os.File) *messages {
	return &messages{to: to, queue: make(chan func(), queuedMessages)}
}

func (m *messages) enqueue(f func()) bool {
	m.mu.Lock()
	m.used = true
	m.mu.Unlock()
	m.start.Do(func() {
		// With its default action a closed pipe would end simba, not the write.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		go func() {
			for f := range m.queue {
				f()
			}
		}()
	})
	select {
	case m.queue <- f:
		return true
	default:
		return false
	}
}

// Write implements io.Writer; p is one whole message.
func (m *messages) Write(p []byte) (int, error) {
	text := append(m.droppedNote(), p...)
	if !m.enqueue(func() { _, _ = m.to.Write(text) }) {
		m.mu.Lock()
		m.dropped++
		m.mu.Unlock()
	}
	return len(p), nil
}

func (m *messages) droppedNote() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dropped == 0 || len(m.queue) == cap(m.queue) {
		return nil
	}
	n := m.dropped
	m.dropped = 0
	return fmt.Appendf(nil, "simba: %d messages were dropped, since nobody read them\n", n)
}

// flush returns when all that was written so far has arrived, or after lastWords.
func (m *messages) flush() {
	m.mu.Lock()
	used := m.used
	m.mu.Unlock()
	if !used {
		return
	}
	done := make(chan struct{})
	if !m.enqueue(func() { close(done) }) {
		return
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
