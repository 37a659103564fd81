package redis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

// ownAfter is how long a new owner waits before it also listens for revocation:
// work that is over sooner is not worth the traffic.
const ownAfter = time.Second

// ear is the subscription of one contender. A waiter hears only its own channel,
// so that a change wakes nobody whom it does not concern; an owner hears also
// who takes the mutex from it, and revocation.
type ear struct {
	ctx    context.Context
	sub    *goredis.PubSub
	conn   *conn
	events []string // the channels for an owner

	mu    sync.Mutex
	ready bool
	owner *time.Timer
	ended bool
}

// hears says that the server has confirmed the subscription.
func (e *ear) hears() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready && !e.ended
}

// own adds what an owner hears, in a while.
func (e *ear) own() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owner == nil && !e.ended {
		e.owner = time.AfterFunc(ownAfter, func() {
			if e.sub.Subscribe(e.ctx, e.events...) != nil {
				e.close()
			}
		})
	}
}

// close ends the listening, whose caller is then told that it is deaf.
func (e *ear) close() { e.conn.kill() }

func (e *ear) end() {
	e.mu.Lock()
	e.ended = true
	if e.owner != nil {
		e.owner.Stop()
	}
	e.mu.Unlock()
	e.conn.close()
	_ = e.sub.Close()
}

// Listen is [lease.Session.Listen].
func (s *session) Listen(ctx context.Context, ring func(lease.Ring)) error {
	own := bell(s.mutex, s.id)
	c, err := s.b.toServerOf(ctx, s.mutex)
	if err != nil {
		return ended(ctx, err)
	}
	e := &ear{ctx: ctx, conn: c, sub: c.lib.Subscribe(ctx), events: []string{ownerKey(s.mutex), leaseKey(s.mutex)}}
	s.mu.Lock()
	s.ear = e
	channels := []string{own}
	if s.owns {
		channels = append(channels, e.events...)
		e.owner = time.NewTimer(0) // nothing is left to be added
	}
	s.mu.Unlock()
	defer func() {
		e.end()
		s.mu.Lock()
		if s.ear == e {
			s.ear = nil
		}
		s.mu.Unlock()
	}()
	err = hear(ctx, c, e.sub, channels, nil, func(channel, payload string) {
		switch {
		case channel == "":
			e.mu.Lock()
			first := !e.ready
			e.ready = true
			e.mu.Unlock()
			if first {
				ring(lease.Ready)
			} else {
				ring(lease.Look) // it became an owner; what was said meanwhile was not heard
			}
		case channel == own,
			channel == ownerKey(s.mutex) && payload != "acquired@@"+s.id,
			channel == leaseKey(s.mutex) && payload == "revoked@@"+s.id:
			ring(lease.Look)
		}
	})
	if ctx.Err() == nil {
		s.b.known.Store(nil)
	}
	return err
}

// toServerOf dials the server that has the mutex: only there it is known who
// listens.
func (b *Backend) toServerOf(ctx context.Context, mutex string) (*conn, error) {
	if b.set.kind == cluster {
		// Subscriptions are not sent on, so ask for a key first.
		err := b.on(ctx, mutex, func(lib *goredis.Client) error {
			return lib.PTTL(ctx, ownerKey(mutex)).Err()
		})
		if err != nil {
			return nil, err
		}
	}
	addr := b.routes.find(mutex)
	c, err := b.connectToHear(ctx, addr)
	if err != nil {
		b.failed(addr)
	}
	return c, err
}

// hear subscribes and calls heard for each message, and with no channel
// whenever all that was asked for so far is confirmed. The library's own
// keeping of a subscription (a PING every few seconds) is not used: it would be
// most of the traffic of those who wait.
func hear(ctx context.Context, c *conn, sub *goredis.PubSub, channels, patterns []string, heard func(channel, payload string)) error {
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	if len(channels) > 0 {
		if err := sub.Subscribe(ctx, channels...); err != nil {
			return ended(ctx, err)
		}
	}
	if len(patterns) > 0 {
		if err := sub.PSubscribe(ctx, patterns...); err != nil {
			return ended(ctx, err)
		}
	}
	confirmed, awaited := 0, len(channels)+len(patterns)
	for {
		m, err := sub.ReceiveTimeout(ctx, 0)
		if err != nil {
			return ended(ctx, err)
		}
		switch m := m.(type) {
		case *goredis.Subscription:
			if confirmed++; confirmed == awaited || confirmed > awaited && strings.HasSuffix(m.Channel, ":lease") {
				heard("", "")
			}
		case *goredis.Message:
			heard(m.Channel, m.Payload)
		}
	}
}

// ended is the error of a doorbell.
func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case refused(err):
		return lease.ErrNoPush
	case errors.Is(err, errGone):
		return errLost
	}
	return sorted(outOfTime(ctx, err))
}

var errLost = errors.New("the connection was lost")
