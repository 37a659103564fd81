package redis

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// A new owner that waited hears revocation and theft although it went on with
// the same doorbell; a waiter hears nothing that does not concern it.
func TestOwnerHears(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	owner, next, third := w.contender("owner"), w.contender("next"), w.contender("third")
	owner.own()
	bells := next.wait()
	third.wait()
	owner.release()
	bells.rings()
	next.own()
	eventually(t, "the owner does not listen for revocation", func() bool {
		n := w.r.Do("PUBSUB", "NUMSUB", leaseKey("m")).([]any)
		return n[1] == int64(1)
	})
	bells.rings() // that it listens now
	if err := w.b.Revoke(t.Context(), "m", owner.id); !errors.Is(err, lease.ErrNotOwner) {
		t.Error(err)
	}
	w.contender("fourth").try()
	bells.silent()
	if err := w.b.Revoke(t.Context(), "m", next.id); err != nil {
		t.Error(err)
	}
	bells.rings()
	if a := next.renew(lease.RenewRequest{}); !a.Revoked {
		t.Errorf("%+v", a)
	}
	w.r.Do("PUBLISH", ownerKey("m"), "acquired@@thief")
	bells.rings()
}

// Doorbells and watchers end with their context and leave nothing running.
func TestListenersLeaveNothing(t *testing.T) {
	r := backendtest.StartRedis(t, backendtest.RedisOptions{})
	relay := backendtest.StartRelay(t, r.Addr)
	b := open(t, "redis://"+relay.Addr)
	p := contender(t, b, "m", "")
	p.own()
	before := runtime.NumGoroutine()
	for _, m := range []backendtest.RelayMode{backendtest.Pass, backendtest.Blackhole, backendtest.Pass} {
		var all []*bells
		for range 5 {
			all = append(all, contender(t, b, "m", "").hear(), p.hear(),
				hears(t, func(ctx context.Context, ring func(lease.Ring)) error { return b.Watch(ctx, nil, ring) }))
		}
		relay.Set(m)
		for _, x := range all {
			began := time.Now()
			x.stop()
			if err := x.ends(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			between(t, "ending", time.Since(began), 0, time.Second)
		}
		relay.Set(backendtest.Pass)
	}
	relay.Cut()
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= before+1 })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "connections are left", func() bool {
		return strings.Contains(r.Text("INFO", "clients"), "connected_clients:1\r")
	})
}

// A call that is given up ends at once, and the next one does not inherit its
// connection.
func TestCallsEndWithTheirContext(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	relay := backendtest.StartRelay(t, w.r.Addr)
	b := open(t, "redis://"+relay.Addr)
	p := contender(t, b, "m", "")
	p.own()
	for _, m := range []backendtest.RelayMode{backendtest.Blackhole, backendtest.EatReplies} {
		relay.Set(m)
		calls := map[string]func(context.Context) error{
			"try": func(ctx context.Context) error { _, err := p.Try(ctx, p.request()); return err },
			"renew": func(ctx context.Context) error {
				_, err := p.Renew(ctx, lease.RenewRequest{Lease: testLease})
				return err
			},
			"inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "m"); return err },
			"list":    func(ctx context.Context) error { _, err := b.List(ctx); return err },
			"revoke":  func(ctx context.Context) error { return b.Revoke(ctx, "m", "x") },
			"listen":  func(ctx context.Context) error { return p.Listen(ctx, func(lease.Ring) {}) },
		}
		for name, call := range calls {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(30*time.Millisecond, cancel)
			began := time.Now()
			if err := call(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			between(t, name, time.Since(began), 25*time.Millisecond, time.Second)
		}
		relay.Set(backendtest.Pass)
		is(t, p.renew(lease.RenewRequest{}), lease.Mine, p.id)
	}
	// Idle connections that the server closed cost no attempt.
	near := w.contender("near")
	near.try()
	w.r.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	is(t, near.renew(lease.RenewRequest{}), lease.Held, p.id)
}
