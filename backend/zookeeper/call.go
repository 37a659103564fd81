package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// effect is what a request does.
type effect bool

const (
	reads  effect = false
	writes effect = true // it is confirmed by a quorum
)

type result[T any] struct {
	value T
	err   error
}

// call makes one request under a context, which the library does not know. The
// request runs in a goroutine of the client's, which ends with the connection at
// the latest. What it returns late is dropped.
func call[T any](ctx context.Context, c *client, e effect, what string, f func(*zk.Conn) (T, error)) (T, error) {
	var none T
	gen, err := c.ready(ctx)
	if err != nil {
		return none, err
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	done := make(chan result[T], 1)
	sent := c.clock.Now()
	ok := c.spawn(func() {
		defer func() { <-c.slots }()
		v, err := f(c.conn)
		c.record(gen, sent, e, err)
		done <- result[T]{v, err}
	})
	if !ok {
		<-c.slots
		return none, errClosed
	}
	select {
	case r := <-done:
		return r.value, c.judge(gen, what, r.err)
	case <-ctx.Done():
		c.abandon(gen, sent)
		return none, fmt.Errorf("zookeeper: %s: no answer: %w", what, ctx.Err())
	}
}

// judge sorts what a request returned.
func (c *client) judge(gen int, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrSessionExpired):
		c.expire()
		return errExpired
	case errors.Is(err, zk.ErrSessionMoved):
		c.hangUp(gen)
	}
	if isLoss(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.expired {
			return errExpired
		}
		return fmt.Errorf("zookeeper: %s: %w", what, errLost)
	}
	return sorted(what, err)
}

// abandon is for a request that got no answer in time. If that was as long as a
// server may take, it is not worth staying with: it may be cut off from the
// others, and still answer what it can by itself. A shorter time is no reason:
// on a loaded host connecting anew takes longer than waiting, and an answer that
// comes late still proves something.
func (c *client) abandon(gen int, sent lease.Instant) {
	c.mu.Lock()
	long := c.clock.Now()-sent >= c.patience()
	c.mu.Unlock()
	if long {
		c.hangUp(gen)
	}
}

// record takes an answer as a sign of life, if it came by the connection that
// the request was sent on: that one was the present one before and after.
func (c *client) record(gen int, sent lease.Instant, e effect, err error) {
	if !isAnswer(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if gen != c.gen || !c.up {
		return
	}
	c.attempts = 0
	c.lastSent = max(c.lastSent, sent)
	c.proof.answered(beat{sent: sent, answered: c.clock.Now()})
	if e == writes && err == nil {
		c.proof.confirmed(sent)
	}
}

// heartbeats keeps a request at hand that is old enough to prove something.
func (c *client) heartbeats() {
	for {
		c.mu.Lock()
		every, patience := c.proof.granted/8, c.patience()
		wait := c.lastSent + every - c.clock.Now()
		up, changed := c.up, c.changed
		c.mu.Unlock()
		if !up {
			select {
			case <-changed:
			case <-c.ctx.Done():
				return
			}
			continue
		}
		if wait <= 0 {
			ctx, cancel := context.WithTimeout(c.ctx, patience)
			_, err := call(ctx, c, reads, "heartbeat", exists("/"))
			cancel()
			if err == nil {
				continue
			}
			wait = every / 8
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

func exists(path string) func(*zk.Conn) (*zk.Stat, error) {
	return func(c *zk.Conn) (*zk.Stat, error) {
		ok, stat, err := c.Exists(path)
		if err == nil && !ok {
			err = zk.ErrNoNode
		}
		return stat, err
	}
}

// existsW also watches, for the node to come if it is not there.
func existsW(path string) func(*zk.Conn) (*zk.Stat, error) {
	return func(c *zk.Conn) (*zk.Stat, error) {
		ok, stat, _, err := c.ExistsW(path)
		if err == nil && !ok {
			err = zk.ErrNoNode
		}
		return stat, err
	}
}

type node struct {
	data []byte
	stat *zk.Stat
}

func get(path string) func(*zk.Conn) (node, error) {
	return func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(path)
		return node{data, stat}, err
	}
}

// getW watches the node only if it is there, and leaves no watch behind else.
func getW(path string) func(*zk.Conn) (node, error) {
	return func(c *zk.Conn) (node, error) {
		data, stat, _, err := c.GetW(path)
		return node{data, stat}, err
	}
}

func children(path string) func(*zk.Conn) ([]string, error) {
	return func(c *zk.Conn) ([]string, error) {
		names, _, err := c.Children(path)
		return names, err
	}
}

func childrenW(path string) func(*zk.Conn) ([]string, error) {
	return func(c *zk.Conn) ([]string, error) {
		names, _, _, err := c.ChildrenW(path)
		return names, err
	}
}

// flush makes the server catch up with its leader, so that what is read next is
// no older than this call.
func flush(path string) func(*zk.Conn) (struct{}, error) {
	return func(c *zk.Conn) (struct{}, error) {
		_, err := c.Sync(path)
		return struct{}{}, err
	}
}

func remove(path string) func(*zk.Conn) (struct{}, error) {
	return func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) }
}
