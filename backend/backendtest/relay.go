package backendtest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// RelayMode is what a [Relay] does to the connections through it.
type RelayMode int

const (
	// Pass forwards. What was held back before is forwarded now, as TCP does
	// when a cut network is mended.
	Pass RelayMode = iota
	// Blackhole holds everything back, ends of connections too.
	Blackhole
	// EatReplies forwards requests and throws replies away.
	EatReplies
	// Refuse ends the connections there are and lets nobody connect.
	Refuse
	// Reset resets the connections there are, and each new one.
	Reset
)

// Relay is a TCP relay on loopback with switchable faults.
type Relay struct {
	Addr string // where it listens

	mu     sync.Mutex
	moved  *sync.Cond // of all fields below
	target string
	mode   RelayMode
	delay  time.Duration
	ln     net.Listener
	conns  map[*net.TCPConn]bool
	closed bool

	wg       sync.WaitGroup
	up, down atomic.Int64
}

// StartRelay starts a relay to target. It ends with the test.
func StartRelay(t testing.TB, target string) *Relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Addr: ln.Addr().String(), target: target, ln: ln, conns: make(map[*net.TCPConn]bool)}
	r.moved = sync.NewCond(&r.mu)
	r.wg.Go(func() { r.accept(ln) })
	t.Cleanup(r.close)
	return r
}

// Set changes the mode.
func (r *Relay) Set(m RelayMode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = m
	r.moved.Broadcast()
	if m == Refuse || m == Reset {
		for c := range r.conns {
			reset(c)
		}
	}
	switch {
	case m == Refuse && r.ln != nil:
		_ = r.ln.Close()
		r.ln = nil
	case m != Refuse && r.ln == nil && !r.closed:
		r.listenAgain()
	}
}

// listenAgain needs the port that was just given up; nobody is given it by
// chance within a test, but the kernel may need a moment.
func (r *Relay) listenAgain() {
	for range 100 {
		ln, err := net.Listen("tcp", r.Addr)
		if err == nil {
			r.ln = ln
			r.wg.Go(func() { r.accept(ln) })
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic("relay: the port " + r.Addr + " is taken")
}

// Delay holds every piece back for d, in both directions.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Retarget leads new connections elsewhere.
func (r *Relay) Retarget(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

// Cut resets the connections there are.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		reset(c)
	}
}

// Bytes is how much came from clients and from the server so far.
func (r *Relay) Bytes() (up, down int64) { return r.up.Load(), r.down.Load() }

func (r *Relay) close() {
	r.mu.Lock()
	r.closed = true
	if r.ln != nil {
		_ = r.ln.Close()
	}
	for c := range r.conns {
		reset(c)
	}
	r.moved.Broadcast()
	r.mu.Unlock()
	r.wg.Wait()
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (r *Relay) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(c.(*net.TCPConn)) })
	}
}

// keep registers a connection, or says that it must not be.
func (r *Relay) keep(c *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.mode == Reset || r.mode == Refuse {
		reset(c)
		return false
	}
	r.conns[c] = true
	return true
}

func (r *Relay) drop(c *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	_ = c.Close()
}

func (r *Relay) serve(client *net.TCPConn) {
	if !r.keep(client) {
		return
	}
	defer r.drop(client)
	if _, _, on := r.gate(); !on {
		return
	}
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	s, err := net.Dial("tcp", target)
	if err != nil {
		reset(client)
		return
	}
	server := s.(*net.TCPConn)
	if !r.keep(server) {
		return
	}
	defer r.drop(server)
	var both sync.WaitGroup
	both.Go(func() { r.pump(client, server, &r.up, false) })
	r.pump(server, client, &r.down, true)
	both.Wait()
}

// gate waits out a blackhole.
func (r *Relay) gate() (mode RelayMode, delay time.Duration, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.mode == Blackhole && !r.closed {
		r.moved.Wait()
	}
	return r.mode, r.delay, !r.closed
}

func (r *Relay) pump(from, to *net.TCPConn, count *atomic.Int64, replies bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		came := time.Now()
		mode, delay, on := r.gate()
		if !on {
			return
		}
		count.Add(int64(n))
		time.Sleep(delay - time.Since(came))
		if n > 0 && !(replies && mode == EatReplies) {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}
