package backendtest

import (
	"context"
	"sync"
	"time"

	"github.com/simba-lock/simba/lease"
)

func startAndRelease(x *bench) {
	if s := x.inspect(); s.State != lease.Free || s.Owner != "" {
		x.Fatalf("an unknown mutex is %+v", s)
	}
	p := x.contender("a")
	a := p.own()
	if a.Fence == 0 || a.Owner != p.id {
		x.Errorf("%+v", a)
	}
	if x.h.Endless != (a.Granted == lease.Forever) {
		x.Errorf("granted %v", a.Granted)
	}
	s := x.inspect()
	if s.State != lease.Held || s.Owner != p.id || s.Info.Note != "a" || s.Fence != a.Fence || s.Acquired.IsZero() {
		x.Errorf("held: %+v", s)
	}
	if s.Lease <= 0 || x.h.Endless != (s.Lease == lease.Forever) {
		x.Errorf("a lease of %v remains", s.Lease)
	}
	p.release()
	if s := x.inspect(); s.State != lease.Free || s.Owner != "" || s.Last != "" && (s.Last != p.id || !s.Released) {
		x.Errorf("released: %+v", s)
	}
	p.release() // again, at any time
}

func stopAndStartAgain(x *bench) {
	fence := uint64(0)
	for _, note := range []string{"a", "b", "c"} {
		p := x.contender(note)
		a := p.own()
		if a.Fence <= fence {
			x.Errorf("fence %d after %d", a.Fence, fence)
		}
		if len(a.Unreleased) != 0 {
			x.Errorf("unreleased: %v", a.Unreleased)
		}
		fence = a.Fence
		p.release()
	}
}

func onlyTheOwner(x *bench) {
	a, b := x.contender("a"), x.contender("b")
	mine := a.own()
	if ans := b.renew(mine.Fence, lease.RenewRequest{}); ans.State != lease.Held || ans.Owner != a.id {
		x.Errorf("renewed by another: %+v", ans)
	}
	if ans := b.renew(mine.Fence, lease.RenewRequest{Reassert: true}); ans.State != lease.Held {
		x.Errorf("re-asserted by another: %+v", ans)
	}
	b.release()
	if ans := a.renew(mine.Fence, lease.RenewRequest{}); ans.State != lease.Mine || ans.Fence != mine.Fence {
		x.Errorf("released by another: %+v", ans)
	}
	if s := x.inspect(); s.Owner != a.id {
		x.Errorf("%+v", s)
	}
}

func sameLeaseAgain(x *bench) {
	a := x.contender("a")
	first := a.own()
	if again := a.own(); again.Fence != first.Fence {
		x.Errorf("fence %d, was %d", again.Fence, first.Fence)
	}
	if s := x.inspect(); len(s.Waiters) != 0 {
		x.Errorf("the owner waits for itself: %+v", s)
	}
	a.release()
	b := x.contender("b") // one release is enough
	b.own()
}

func cancelledCalls(x *bench) {
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	owner, p := x.contender("owner"), x.contender("p")
	mine := owner.own()
	calls := map[string]func() error{
		"try":     func() error { _, err := p.Try(ctx, p.request(true)); return err },
		"renew":   func() error { _, err := owner.Renew(ctx, lease.RenewRequest{Fence: mine.Fence}); return err },
		"listen":  func() error { return p.Listen(ctx, func(lease.Ring) {}) },
		"inspect": func() error { _, err := x.b.Inspect(ctx, x.mutex); return err },
		"list":    func() error { _, err := x.b.List(ctx); return err },
		"revoke":  func() error { return x.b.Revoke(ctx, x.mutex, owner.id) },
		"watch":   func() error { return x.b.Watch(ctx, nil, func(lease.Ring) {}) },
	}
	for name, call := range calls {
		began := time.Now()
		if err := call(); err == nil {
			x.Errorf("%s: no error", name)
		}
		if took := time.Since(began); took > time.Second {
			x.Errorf("%s: took %v", name, took)
		}
	}
	began := time.Now()
	_ = p.Release(ctx, lease.ReleaseRequest{}) // what can still be done may be
	if took := time.Since(began); took > time.Second {
		x.Errorf("release: took %v", took)
	}
	if s := x.inspect(); s.Owner != owner.id || len(s.Waiters) != 0 || s.Revoked {
		x.Errorf("afterwards: %+v", s)
	}
	// A doorbell ends with its context while it blocks, too.
	ctx, cancel = context.WithCancel(x.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = x.contender("q").Listen(ctx, func(lease.Ring) { cancel() })
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		x.Error("listen does not end")
	}
	cancel()
}

func fenceRises(x *bench) {
	last := uint64(0)
	for i := range 6 {
		p := x.contender("owner")
		a, err := p.get(x.Context(), nil)
		if err != nil {
			x.Fatal(err)
		}
		if a.Fence <= last || a.Fence >= 1<<53 {
			x.Errorf("fence %d after %d", a.Fence, last)
		}
		last = a.Fence
		if i%2 == 0 {
			p.release()
		} else {
			_ = p.Close() // it dies
		}
	}
	p := x.contender("one that saw a higher one")
	r := p.request(true)
	r.Seen.Fence = last + 1_000_000_000
	a, err := p.Try(x.Context(), r)
	for err == nil && a.State != lease.Mine {
		time.Sleep(5 * time.Millisecond)
		a, err = p.Try(x.Context(), r)
	}
	if err != nil || a.Fence <= r.Seen.Fence {
		x.Errorf("fence %d, %d was seen (%v)", a.Fence, r.Seen.Fence, err)
	}
}

func firstComeFirstServed(x *bench) {
	owner := x.contender("owner")
	mine := owner.own()
	const waiters = 8
	order := make(chan int, waiters)
	ctx, cancel := context.WithTimeout(x.Context(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range waiters {
		p := x.contender("waiter")
		if a := p.try(true); a.State != lease.Held || a.Rank != i+1 {
			x.Fatalf("waiter %d: %+v", i, a)
		}
		rings := p.hear()
		wg.Go(func() {
			if _, err := p.get(ctx, rings); err != nil {
				x.Errorf("waiter %d: %v", i, err)
			}
			order <- i
			if err := p.Release(ctx, lease.ReleaseRequest{}); err != nil {
				x.Errorf("waiter %d: %v", i, err)
			}
		})
	}
	if a := owner.renew(mine.Fence, lease.RenewRequest{}); a.State != lease.Mine {
		x.Fatalf("%+v", a)
	}
	began := time.Now()
	owner.release()
	for i := range waiters {
		select {
		case got := <-order:
			if got != i {
				x.Errorf("waiter %d came in place %d", got, i)
			}
		case <-time.After(patience):
			x.Fatalf("nobody came in place %d", i)
		}
	}
	x.Logf("%d hand-overs in %v", waiters, time.Since(began))
}

func newcomersDoNotOvertake(x *bench) {
	owner, first := x.contender("owner"), x.contender("first")
	owner.own()
	first.try(true)
	owner.release()
	for range 3 {
		n := x.contender("newcomer")
		if a := n.try(false); a.State != lease.Promised || a.Remaining <= 0 || a.Remaining > lease.PromiseLife || a.Rank != 0 {
			x.Errorf("newcomer: %+v", a)
		}
	}
	if s := x.inspect(); s.State == lease.Held || len(s.Waiters) != 1 || s.Waiters[0].ID != first.id {
		x.Errorf("%+v", s)
	}
	first.own()
}

func startOver(x *bench) {
	owner, first, second := x.contender("owner"), x.contender("first"), x.contender("second")
	owner.own()
	first.try(true)
	second.try(true)
	r := first.request(true)
	r.StartOver = true
	if a, err := first.Try(x.Context(), r); err != nil || a.Rank != 2 {
		x.Fatalf("%+v, %v", a, err)
	}
	owner.release()
	first.is(first.try(true), lease.Promised)
	second.own()
}

func deadAndDepartedInFront(x *bench) {
	owner := x.contender("owner")
	mine := owner.own()
	dead, frozen, departed, live := x.contender("dead"), x.contender("frozen"), x.contender("departed"), x.contender("live")
	for _, p := range []*party{dead, frozen, departed, live} {
		p.is(p.try(true), lease.Held)
	}
	rings := live.hear()
	_ = dead.Close()
	departed.release()
	owner.renew(mine.Fence, lease.RenewRequest{})
	owner.release()
	began := time.Now()
	ctx, cancel := context.WithTimeout(x.Context(), patience)
	defer cancel()
	if _, err := live.get(ctx, rings); err != nil {
		x.Fatal(err)
	}
	// Each of the two costs a promise; the ranks' own looks come on top.
	if took := time.Since(began); took > 2*lease.PromiseLife+4*time.Second {
		x.Errorf("the one behind them waited %v", took)
	}
	if a := frozen.try(true); a.State != lease.Held || a.Rank != 1 {
		x.Errorf("one that thawed: %+v", a)
	}
}
