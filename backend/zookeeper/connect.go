package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/simba-lock/simba/lease"
)

// rotation tells the library which server comes next. Names are resolved when
// they are dialed.
type rotation client

func (r *rotation) Init([]string) error { return nil }
func (r *rotation) Len() int            { return len(r.set.hosts) }
func (r *rotation) Connected()          {}

// Next says "from the start" only when it is over, since the library looks
// whether it was closed, and sleeps for a second, only then.
func (r *rotation) Next() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = (r.next + 1) % len(r.set.hosts)
	return r.set.hosts[r.next], r.ctx.Err() != nil
}

// patience is how long a server may take to answer: a sixth of the lease leaves
// time for others.
func (c *client) patience() time.Duration {
	if c.gen == 0 {
		return min(max(c.asked/6, firstPatience), maxPatience)
	}
	return min(max(c.proof.granted/6, minPatience), maxPatience)
}

// dial is called by the library for one attempt after the other.
func (c *client) dial(_, addr string, _ time.Duration) (net.Conn, error) {
	if err := c.pause(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	old, patience := c.wire, c.patience()
	c.mu.Unlock()
	if old != nil {
		// The library does so a moment too late, and forgets it when a session
		// has expired.
		_ = old.Close()
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	conn, err := c.dialer.dial(ctx, addr)
	if err != nil {
		c.failed(err)
		return nil, err
	}
	w := &wire{Conn: conn, addr: addr, clock: c.clock, patience: patience, shook: c.shook, ended: c.ended}
	c.mu.Lock()
	c.wire = w
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = w.Close()
	}
	return w, nil
}

// pause keeps servers that refuse from being asked without end. Each is asked
// once right away; after that, pauses grow to an eighth of the session.
func (c *client) pause() error {
	c.mu.Lock()
	over := c.expired || c.closed
	rounds := c.attempts / len(c.set.hosts)
	c.attempts++
	limit := min(c.asked/8, time.Second)
	c.mu.Unlock()
	if over {
		<-c.ctx.Done() // the library would begin a new session
	}
	if rounds > 0 {
		d := min(10*time.Millisecond<<min(rounds, 10), limit)
		timer := time.NewTimer(d/2 + rand.N(d/2+1))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ctx.Done():
		}
	}
	return c.ctx.Err()
}

// failed is told of an attempt to connect in vain. A session that no server has
// taken back for as long as it lasts is given up: a store that was emptied
// refuses for ever who has seen more of it than it has.
func (c *client) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	c.lastErr = err
	if c.session != 0 && c.clock.Now()-c.lostAt > c.proof.granted {
		c.expired = true
	}
	c.change()
}

// ended is told when a connection was closed.
func (c *client) ended(w *wire, shaken bool, err error) {
	if shaken {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lostAt = c.clock.Now()
		if c.wire == w {
			c.up, c.wire = false, nil
			c.change()
		}
		return
	}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		err = fmt.Errorf("%s accepts connections, but does not answer", w.addr)
	case err == nil:
		err = errLost
	default:
		err = fmt.Errorf("%s closes the connection at once (%s): %w", w.addr, c.suspicion(), err)
	}
	c.failed(err)
}

// suspicion is why a server hangs up without a word.
func (c *client) suspicion() string {
	s := "too many connections, or its data is older than what was seen"
	if !c.set.tls.on {
		s += ", or it wants TLS"
	}
	return s
}

// shook is told of the reply to a handshake before the library is.
func (c *client) shook(w *wire, sent lease.Instant, granted time.Duration, session int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if session == 0 || c.session != 0 && c.session != session {
		c.expired, c.up = true, false
		c.change()
		return
	}
	c.session = session
	c.gen++
	c.proof = proof{granted: granted, handshake: sent}
	c.lastErr = nil
	w.be(c.patience())
}
