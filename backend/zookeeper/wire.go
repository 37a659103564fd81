package zookeeper

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/simba-lock/simba/lease"
)

const (
	// minPatience is the shortest time that a server has to answer: a pause of
	// its garbage collector is no reason to leave it.
	minPatience = 50 * time.Millisecond
	// maxPatience is the longest: a lease of hours is no reason to wait for one.
	maxPatience = 5 * time.Second
	// firstPatience is what it has as long as no session hangs on it.
	firstPatience = time.Second
)

// wire is a connection to one server. It reads the granted timeout and the
// session from the reply to the handshake, which the library does not tell, and
// has deadlines of its own: the library waits for two thirds of the session,
// and ten times that during the handshake, which leaves no time to try another
// server within the lease. Deadlines run only while an answer is awaited.
type wire struct {
	net.Conn
	addr  string
	clock lease.Clock
	shook func(w *wire, sent lease.Instant, granted time.Duration, session int64)
	ended func(w *wire, shaken bool, err error)

	mu       sync.Mutex
	patience time.Duration
	awaiting bool
	sent     lease.Instant // the handshake
	head     []byte        // of its reply, until that is known
	shaken   bool
	err      error
	closing  sync.Once
}

// replyHead is length, protocol version, granted timeout and session.
const replyHead = 4 + 4 + 4 + 8

func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	if w.sent == 0 {
		w.sent = w.clock.Now()
	}
	if !w.awaiting {
		w.awaiting = true
		_ = w.Conn.SetReadDeadline(time.Now().Add(w.patience))
	}
	_ = w.Conn.SetWriteDeadline(time.Now().Add(w.patience))
	w.mu.Unlock()
	n, err := w.Conn.Write(b)
	w.failed(err)
	return n, err
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.failed(err)
	if n <= 0 {
		return n, err
	}
	w.mu.Lock()
	w.awaiting = false
	_ = w.Conn.SetReadDeadline(time.Time{})
	complete := false
	if !w.shaken {
		w.head = append(w.head, b[:min(n, replyHead-len(w.head))]...)
		complete = len(w.head) == replyHead
		w.shaken = complete
	}
	w.mu.Unlock()
	if complete {
		granted := time.Duration(int32(binary.BigEndian.Uint32(w.head[8:]))) * time.Millisecond
		w.shook(w, w.sent, granted, int64(binary.BigEndian.Uint64(w.head[12:])))
	}
	return n, err
}

func (w *wire) failed(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// be sets how long an answer may take.
func (w *wire) be(patience time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patience = patience
}

func (w *wire) Close() error {
	err := w.Conn.Close()
	w.closing.Do(func() {
		w.mu.Lock()
		shaken, cause := w.shaken, w.err
		w.mu.Unlock()
		w.ended(w, shaken, cause)
	})
	return err
}

// The library's own deadlines are not those that are wanted.

func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
