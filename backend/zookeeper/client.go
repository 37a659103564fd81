package zookeeper

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// maxRequests is how many requests one client has under way.
const maxRequests = 16

// client is one ZooKeeper session, with the connections that carry it one after
// the other. It ends with the session: the library would go on with a new one,
// in which requests would run that were meant for the old.
type client struct {
	set     *settings
	dialer  *dialer
	asked   time.Duration
	clock   lease.Clock
	onEvent func(path string) // a watch fired

	conn    *zk.Conn
	started chan struct{} // conn is set
	events  <-chan zk.Event
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	slots   chan struct{}

	mu       sync.Mutex
	changed  chan struct{} // closed at the next change of what follows
	wire     *wire
	gen      int // counts connections that shook hands
	up       bool
	authed   bool
	expired  bool
	closed   bool
	fatal    error
	session  int64
	lostAt   lease.Instant // when the last connection of the session was lost
	proof    proof
	lastSent lease.Instant
	failures int // attempts to connect that failed, ever
	lastErr  error
	attempts int // to connect, since a request was answered
	next     int // server
}

func newClient(set *settings, d *dialer, asked time.Duration, onEvent func(string)) *client {
	c := &client{
		set: set, dialer: d, clock: lease.BootClock{}, onEvent: onEvent,
		// ZooKeeper counts in milliseconds.
		asked:   (asked + time.Millisecond - 1).Truncate(time.Millisecond),
		started: make(chan struct{}), slots: make(chan struct{}, maxRequests),
		changed: make(chan struct{}), authed: set.user == "",
		next: rand.IntN(len(set.hosts)),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// start begins to connect.
func (c *client) start() error {
	conn, events, err := zk.Connect(c.set.hosts, c.asked,
		zk.WithDialer(c.dial), zk.WithHostProvider((*rotation)(c)),
		zk.WithEventCallback(c.event), zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	c.conn, c.events = conn, events
	close(c.started)
	return nil
}

// silent is where the library's chatter goes.
type silent struct{}

func (silent) Printf(string, ...any) {}

// change is made under the lock; whoever waits for one looks again.
func (c *client) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// event is called by the library and must not block. Its channels may drop
// events, among them that the session has expired; this does not.
func (c *client) event(e zk.Event) {
	switch {
	case e.Type == zk.EventNotWatching:
	case e.Type != zk.EventSession:
		c.onEvent(e.Path)
	case e.State == zk.StateHasSession:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.authed {
			c.up = !c.expired && !c.closed
			c.change()
			return
		}
		c.goLocked(c.authenticate)
	case e.State == zk.StateDisconnected:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.up = false
		c.change()
	}
}

// authenticate is for the first connection; on later ones the library says who
// we are before anything else.
func (c *client) authenticate() {
	<-c.started
	c.mu.Lock()
	gen := c.gen
	c.mu.Unlock()
	err := c.conn.AddAuth("digest", []byte(c.set.user+":"+c.set.password))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.authed = true
		c.up = gen == c.gen && c.wire != nil && !c.expired && !c.closed
	case isLoss(err):
	default:
		c.fatal = sorted("authenticate", err)
	}
	c.change()
}

// goLocked starts a goroutine that ends before close does.
func (c *client) goLocked(f func()) bool {
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// spawn is goLocked without the lock.
func (c *client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goLocked(f)
}

// ready waits until requests can be sent, and names the connection. It fails
// when each server was tried in vain.
func (c *client) ready(ctx context.Context) (gen int, err error) {
	c.mu.Lock()
	limit := c.failures + len(c.set.hosts)
	for {
		changed := c.changed
		done := true
		switch {
		case c.expired:
			err = errExpired
		case c.closed:
			err = errClosed
		case c.fatal != nil:
			err = c.fatal
		case c.up:
			gen = c.gen
		case c.failures >= limit:
			err = fmt.Errorf("zookeeper: no server answers: %w", c.lastErr)
		default:
			done = false
		}
		lastErr := c.lastErr
		c.mu.Unlock()
		if done {
			return gen, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if lastErr != nil {
				return 0, fmt.Errorf("zookeeper: %w (%w)", ctx.Err(), lastErr)
			}
			return 0, ctx.Err()
		}
		c.mu.Lock()
	}
}

// state is the present connection: its number, whether it is up, and a channel
// that is closed when that changes.
func (c *client) state() (gen int, up bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gen, c.up && !c.expired && !c.closed, c.changed
}

// hangUp ends a connection, so that another server is tried.
func (c *client) hangUp(gen int) {
	c.mu.Lock()
	var w *wire
	if gen == c.gen {
		w = c.wire
	}
	c.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}

func (c *client) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.expired {
		c.expired, c.up = true, false
		c.change()
	}
}

// flushAfter is how long the library needs to queue its farewell.
const flushAfter = 5 * time.Millisecond

// close ends the session, if politely by telling the server, and waits for all
// that belongs to it.
func (c *client) close(politely bool) {
	c.mu.Lock()
	first, polite := !c.closed, politely && c.up
	c.closed, c.up = true, false
	c.change()
	c.mu.Unlock()
	if first {
		c.shut(polite)
	}
	for range c.events {
	}
	c.wg.Wait()
}

func (c *client) shut(polite bool) {
	hangUp := func() {
		c.mu.Lock()
		w := c.wire
		c.mu.Unlock()
		if w != nil {
			_ = w.Close()
		}
	}
	if polite {
		c.conn.Close()
		c.cancel()
		hangUp()
		return
	}
	hangUp()
	told := make(chan struct{})
	c.wg.Go(func() {
		defer close(told)
		c.conn.Close()
	})
	// Without a connection the library waits a second for an answer, unless its
	// loop, which our dialer holds up, finds the farewell queued when it ends.
	select {
	case <-told:
	case <-time.After(flushAfter):
	}
	c.cancel()
	hangUp()
	<-told
}
