package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/simba-lock/simba/lease"
)

var (
	_ lease.Backend  = (*Backend)(nil)
	_ lease.Examiner = (*Backend)(nil)
)

const (
	queues = "/simba"       // the JVM library's tree
	states = "/simba-state" // ours
)

// readerTimeout is the session timeout asked for by those that only read. No
// node hangs on it.
const readerTimeout = 10 * time.Second

// Options are what does not stand in the URL.
type Options struct {
	// Password of the user in the URL; if empty, the one in the URL.
	Password string
}

// Backend is a ZooKeeper ensemble.
type Backend struct {
	set    *settings
	dialer *dialer

	mu     sync.Mutex
	reader *client // lazily made: Inspect, List, Revoke
	closed bool
	wg     sync.WaitGroup // clients that are being closed
}

// Open takes the URL apart. It does no input or output. The error contains no
// part of the URL.
func Open(raw string, o Options) (*Backend, error) {
	set, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("zk://[user[:password]@]host[:port],…[/path]: %w", err)
	}
	if o.Password != "" {
		if set.user == "" {
			return nil, errors.New("zk://user@host: a password needs a user")
		}
		set.password = o.Password
	}
	return &Backend{set: set, dialer: newDialer(set.tls)}, nil
}

// Name is the URL without its password.
func (b *Backend) Name() string { return b.set.name }

// queueDir is where the latch nodes of a mutex are; a name with slashes is nested.
func (b *Backend) queueDir(mutex string) string { return b.set.chroot + queues + "/" + mutex }

func (b *Backend) claimPath(guid string) string { return b.set.chroot + states + "/claim-" + guid }

// statePath is a node of ours for one mutex; they all are in one directory.
func (b *Backend) statePath(kind, mutex string) string {
	return b.set.chroot + states + "/" + kind + url.PathEscape(mutex)
}

func (b *Backend) emptiedPath(mutex string) string { return b.statePath("emptied-", mutex) }

func (b *Backend) holdPath(mutex string) string { return b.statePath(holdPrefix, mutex) }

func (b *Backend) checkpointPath(mutex string) string { return b.statePath("checkpoint-", mutex) }

// Session prepares a contender; it connects when it is first used.
func (b *Backend) Session(mutex string, c lease.Contender) lease.Session {
	return newSession(b, mutex, c)
}

// read is the client of those who only look. One that is not connected any more
// is replaced.
func (b *Backend) read(ctx context.Context) (*client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	if b.reader != nil {
		b.reader.mu.Lock()
		// Nothing hangs on its session: a new one is sooner there than it is back.
		over := b.reader.expired || b.reader.fatal != nil || b.reader.session != 0 && !b.reader.up
		b.reader.mu.Unlock()
		if !over {
			return b.reader, nil
		}
		b.retire(b.reader)
		b.reader = nil
	}
	c := newClient(b.set, b.dialer, readerTimeout, func(string) {})
	if err := c.start(); err != nil {
		return nil, err
	}
	b.reader = c
	return c, nil
}

// retire closes a client and lets Close wait for it.
func (b *Backend) retire(c *client) (done <-chan struct{}) {
	ended := make(chan struct{})
	b.wg.Go(func() {
		defer close(ended)
		c.close(true)
	})
	return ended
}

// Close ends what the backend has; then no goroutine of it is left.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	if b.reader != nil {
		b.retire(b.reader)
		b.reader = nil
	}
	b.mu.Unlock()
	b.wg.Wait()
	return nil
}
