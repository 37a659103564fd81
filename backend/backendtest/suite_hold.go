package backendtest

import (
	"time"

	"github.com/simba-lock/simba/lease"
)

// keepsHold: an owner may have the mutex kept from everybody for longer than it
// owns it itself, whether it releases it or dies.
func keepsHold(x *bench) {
	hold := x.h.Terms.Lease() + time.Second
	for _, end := range []string{"release", "death"} {
		owner := x.contender(end)
		r := owner.request(true)
		r.Hold = hold
		before := time.Now()
		a, err := owner.Try(x.Context(), r)
		if err != nil {
			x.Fatal(err)
		}
		owner.is(a, lease.Mine)
		after := time.Now()
		first, second := x.contender("first"), x.contender("second")
		first.is(first.try(true), lease.Held)
		second.is(second.try(true), lease.Held)
		owner.is(owner.renew(a.Fence, lease.RenewRequest{Hold: hold}), lease.Mine)
		if end == "release" {
			owner.release()
			cools(x, owner.id, hold)
		} else if err := owner.Close(); err != nil {
			x.Error(err)
		}
		got := first.gets(before.Add(hold), after.Add(hold))
		if got.Fence <= a.Fence {
			x.Errorf("%s: fence %d after %d", end, got.Fence, a.Fence)
		}
		if len(got.Unreleased) > 0 && end == "release" {
			x.Errorf("unreleased: %v", got.Unreleased)
		}
		second.is(second.try(true), lease.Held)
		second.release()
		first.release()
		// The next owner had no such wish.
		next := x.contender("next")
		next.own()
		next.release()
	}
}

// holdsNothing: nothing ran under the ownership, so others need not wait.
func holdsNothing(x *bench) {
	owner := x.contender("late")
	r := owner.request(true)
	r.Hold = time.Hour
	a, err := owner.Try(x.Context(), r)
	if err != nil {
		x.Fatal(err)
	}
	owner.is(a, lease.Mine)
	waiter := x.contender("waiter")
	waiter.is(waiter.try(true), lease.Held)
	if err := owner.Release(x.Context(), lease.ReleaseRequest{Unused: true}); err != nil {
		x.Fatal(err)
	}
	if got := waiter.gets(time.Time{}, time.Now()); got.Fence <= a.Fence {
		x.Errorf("fence %d after %d", got.Fence, a.Fence)
	}
	waiter.release()
	if s := x.inspect(); s.State != lease.Free {
		x.Errorf("afterwards: %+v", s)
	}
}

// gets contends until the mutex is its own, which must not be before an instant
// and should be soon after another.
func (p *party) gets(notBefore, soonAfter time.Time) lease.Answer {
	p.x.Helper()
	// The clocks of a host and of a server, and milliseconds that are cut off.
	const grain = 20 * time.Millisecond
	a, err := p.get(p.x.Context(), p.hear())
	if err != nil {
		p.x.Fatal(err)
	}
	switch now := time.Now(); {
	case now.Before(notBefore.Add(-grain)):
		p.x.Errorf("%s has it %v too soon", p.info.Note, notBefore.Sub(now))
	case now.After(soonAfter.Add(patience)):
		p.x.Errorf("%s has it %v too late", p.info.Note, now.Sub(soonAfter))
	}
	return a
}

// cools looks at a mutex that was released and is kept back.
func cools(x *bench, last string, hold time.Duration) {
	x.Helper()
	if s := x.inspect(); s.State != lease.Cooldown || s.Owner != "" || s.Last != last || !s.Released ||
		s.Lease <= 0 || s.Lease > hold || len(s.Waiters) != 2 {
		x.Errorf("released: %+v", s)
	}
	newcomer := x.contender("newcomer")
	if a := newcomer.try(false); a.State != lease.Cooldown || a.Owner != "" || a.Remaining <= 0 || a.Remaining > hold {
		x.Errorf("newcomer: %+v", a)
	}
}
