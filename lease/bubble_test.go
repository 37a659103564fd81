package lease_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// bubble is a store with contenders in virtual time. Its terms are ttl 10s and
// transition 6s: renewals from 3.33s on, stop at 10.34s, kill at 15.34s.
type bubble struct {
	t     *testing.T
	mem   *backendtest.Memory
	back  lease.Backend // mem, or a wrapper around it
	terms lease.Terms
	begin time.Time

	mu     sync.Mutex
	events []lease.Event
}

func inBubble(t *testing.T, test func(b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		terms, err := lease.NewTerms(10*time.Second, 6*time.Second, lease.Unset)
		if err != nil {
			t.Fatal(err)
		}
		b := &bubble{t: t, mem: backendtest.NewMemory("m", backendtest.BubbleClock{}), terms: terms, begin: time.Now()}
		b.back = b.mem
		test(b)
	})
}

func (b *bubble) config() lease.Config {
	return lease.Config{
		Backend: b.back, Mutex: "m", Terms: b.terms, Wait: lease.Forever,
		Clock: backendtest.BubbleClock{}, Observe: b.observe,
	}
}

func (b *bubble) observe(e lease.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bubble) saw(kind lease.EventKind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.events, func(e lease.Event) bool { return e.Kind == kind })
}

// since is the time since the beginning.
func (b *bubble) since() time.Duration { return time.Since(b.begin) }

// run contends in the background; the result comes from wait.
type contending struct {
	cancel context.CancelCauseFunc
	done   chan error
	h      chan *lease.Holder
}

func (b *bubble) run(cfg lease.Config, work lease.Work) *contending {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &contending{cancel: cancel, done: make(chan error, 1), h: make(chan *lease.Holder, 10)}
	go func() {
		c.done <- lease.Do(ctx, cfg, func(ctx context.Context, h *lease.Holder) error {
			c.h <- h
			return work(ctx, h)
		})
		cancel(nil)
	}()
	return c
}

// holdFor works until the time is over or it must stop, and says which.
func holdFor(d time.Duration) lease.Work {
	return func(ctx context.Context, _ *lease.Holder) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// holder waits until the contender owns the mutex.
func (c *contending) holder(t *testing.T) *lease.Holder {
	t.Helper()
	select {
	case h := <-c.h:
		return h
	case err := <-c.done:
		t.Fatalf("ended before it owned the mutex: %v", err)
	case <-time.After(time.Hour):
		t.Fatal("never owned the mutex")
	}
	return nil
}

// tampered is a session whose answers a test changes on their way.
type tampered struct {
	lease.Backend
	try, renew func(*lease.Answer)
	noPush     bool
}

func (b tampered) Session(mutex string, c lease.Contender) lease.Session {
	return tamperedSession{b.Backend.Session(mutex, c), b}
}

type tamperedSession struct {
	lease.Session
	by tampered
}

func (s tamperedSession) Try(ctx context.Context, r lease.TryRequest) (lease.Answer, error) {
	a, err := s.Session.Try(ctx, r)
	if err == nil && s.by.try != nil {
		s.by.try(&a)
	}
	return a, err
}

func (s tamperedSession) Renew(ctx context.Context, r lease.RenewRequest) (lease.Answer, error) {
	a, err := s.Session.Renew(ctx, r)
	if err == nil && s.by.renew != nil {
		s.by.renew(&a)
	}
	return a, err
}

func (s tamperedSession) Listen(ctx context.Context, ring func(lease.Ring)) error {
	if s.by.noPush {
		return lease.ErrNoPush
	}
	return s.Session.Listen(ctx, ring)
}

func (b *bubble) inspect() lease.Snapshot {
	s, err := b.mem.Inspect(context.Background(), "m")
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// within checks that the time since the beginning is between the two.
func (b *bubble) within(low, high time.Duration) {
	b.t.Helper()
	if d := b.since(); d < low || d > high {
		b.t.Fatalf("at %v; it should be between %v and %v", d, low, high)
	}
}
