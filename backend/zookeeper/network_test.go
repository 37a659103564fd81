package zookeeper

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// A release that a waiter cannot hear of is found when it is back.
func TestLostWatch(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	for _, duringTheGap := range []bool{true, false} {
		relay := backendtest.StartRelay(t, z.Addr)
		a := &arena{t: t, mutex: "m", terms: terms(t, 5*time.Second, 5*time.Second)}
		owner := a.run(open(t, "zk://"+z.Addr), "owner")
		owner.owns()
		waiter := a.run(open(t, "zk://"+relay.Addr), "waiter")
		waiter.waits()
		watch := watchFor(t, open(t, "zk://"+relay.Addr), "m")
		if duringTheGap {
			relay.Set(backendtest.Refuse)
			owner.ends()
			relay.Set(backendtest.Pass)
		} else {
			relay.Cut()
			owner.ends()
		}
		back := time.Now()
		waiter.owns()
		if took := time.Since(back); took > 4*time.Second {
			t.Errorf("it came %v after the connection was back", took)
		}
		waiter.mu.Lock()
		id := waiter.holder.ID()
		waiter.mu.Unlock()
		eventually(t, "whoever watches sees the new owner", func() bool { return watch.Load().(string) == id })
		waiter.ends()
		eventually(t, "whoever watches sees the end", func() bool { return watch.Load().(string) == "" })
	}
}

// watchFor watches as the command does: it looks when it is told to, and watches
// anew when the connection was lost. It keeps the owner that it last saw.
func watchFor(t *testing.T, b *Backend, mutex string) *atomic.Value {
	var owner atomic.Value
	owner.Store("?")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	ready := make(chan struct{}, 1000)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = b.Watch(ctx, []string{mutex}, func(r lease.Ring) {
				for ctx.Err() == nil {
					if s, err := b.Inspect(ctx, mutex); err == nil {
						owner.Store(s.Owner)
						break
					}
				}
				if r == lease.Ready {
					ready <- struct{}{}
				}
			})
		}
	}()
	await(t, "it watches", ready)
	return &owner
}

// A reply that was lost, a request that runs late: there is one node in the end,
// and none after the release.
func TestGhosts(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	direct := open(t, "zk://"+z.Addr)
	x := terms(t, 4*time.Second, 4*time.Second)
	holder := direct.Session("m", lease.Contender{ID: "holder"})
	defer func() { _ = holder.Close() }()
	request := lease.TryRequest{Lease: x.Lease(), TTL: x.TTL, Queue: true}
	if a, err := holder.Try(t.Context(), request); err != nil || a.State != lease.Mine {
		t.Fatal(a, err)
	}
	waiters := func() int {
		s, err := direct.Inspect(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Waiters)
	}
	for _, c := range []struct {
		name string
		mode backendtest.RelayMode
		mend func(*backendtest.Relay)
	}{
		{"the reply is lost", backendtest.EatReplies, func(r *backendtest.Relay) { r.Cut(); r.Set(backendtest.Pass) }},
		{"it runs late", backendtest.Blackhole, func(r *backendtest.Relay) { r.Set(backendtest.Pass) }},
		{"it runs late and the connection breaks", backendtest.Blackhole, func(r *backendtest.Relay) { r.Set(backendtest.Pass); r.Cut() }},
	} {
		for _, again := range []bool{true, false} {
			relay := backendtest.StartRelay(t, z.Addr)
			b := open(t, "zk://"+relay.Addr)
			s := newSession(b, "m", lease.Contender{ID: "waiter"})
			cl, err := s.connect(x.Lease())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cl.ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			relay.Set(c.mode)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if a, err := s.Try(ctx, request); err == nil {
				t.Errorf("%s: %+v", c.name, a)
			}
			cancel()
			c.mend(relay)
			if again {
				eventually(t, "it waits", func() bool {
					a, err := s.Try(t.Context(), request)
					return err == nil && a.State == lease.Held && a.Rank == 1
				})
				if n := waiters(); n != 1 {
					t.Errorf("%s: %d nodes", c.name, n)
				}
			}
			eventually(t, "it leaves", func() bool {
				return s.Release(t.Context(), lease.ReleaseRequest{Tombstone: true}) == nil
			})
			if n := waiters(); n != 0 {
				t.Errorf("%s: %d nodes are left", c.name, n)
			}
			if _, err := s.Try(t.Context(), request); !errors.Is(err, lease.ErrSpent) {
				t.Error(err)
			}
			_ = s.Close()
		}
	}
}

// A call that ends between the making of the node and its first look at it: the
// next one finds that node.
func TestNodeOfAnAbandonedCall(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	s := newSession(b, "m", lease.Contender{ID: "x"})
	defer func() { _ = s.Close() }()
	cl, err := s.connect(8 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.find(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Try(t.Context(), lease.TryRequest{Lease: 8 * time.Second, TTL: 4 * time.Second, Queue: true})
	if err != nil || a.State != lease.Mine || s.own.name != l.name {
		t.Errorf("%+v, %v", a, err)
	}
	names, _, err := raw(t, z.Addr).Children(s.dir)
	if err != nil || len(names) != 1 {
		t.Error(names, err)
	}
}

// Servers that cannot be reached, each in its way, beside one that can.
func TestBadServers(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{Config: []string{"maxClientCnxns=2"}})
	silentPort, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silentPort.Close() }()
	bad := []string{"nosuch.invalid:2181", silentPort.Addr().String(), "127.0.0.1:1"}
	request := lease.TryRequest{Lease: 16 * time.Second, TTL: 10 * time.Second}

	for range 4 { // the order is by chance
		b := open(t, "zk://"+strings.Join(append(bad, z.Addr), ","))
		s := b.Session("m", lease.Contender{ID: "x"})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		a, err := s.Try(ctx, request)
		if err != nil || a.State != lease.Mine {
			t.Errorf("%+v, %v", a, err)
		}
		if err := s.Release(ctx, lease.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
		cancel()
		_ = s.Close()
	}

	b := open(t, "zk://"+strings.Join(bad, ","))
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error {
			s := b.Session("m", lease.Contender{ID: "x"})
			defer func() { _ = s.Close() }()
			_, err := s.Try(ctx, request)
			return err
		},
		func(ctx context.Context) error { _, err := b.Inspect(ctx, "m"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		if err := call(ctx); err == nil || lease.IsPermanent(err) || ctx.Err() != nil {
			t.Errorf("all bad: %v (%v)", err, ctx.Err())
		}
		cancel()
	}

	// A server that takes no more connections.
	var full []*Backend
	var last error
	for range 3 {
		b := open(t, "zk://"+z.Addr)
		full = append(full, b)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, last = b.Inspect(ctx, "m")
		cancel()
	}
	if last == nil || lease.IsPermanent(last) {
		t.Errorf("one connection too many: %v", last)
	}
	b = full[2]
	b.mu.Lock()
	c := b.reader
	b.mu.Unlock()
	c.mu.Lock()
	before := c.attempts
	c.mu.Unlock()
	time.Sleep(2 * time.Second)
	c.mu.Lock()
	tries := c.attempts - before
	c.mu.Unlock()
	if tries > 8 {
		t.Errorf("%d attempts in two seconds", tries)
	}
}
