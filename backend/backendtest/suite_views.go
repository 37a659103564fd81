package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/simba-lock/simba/lease"
)

func namesThatDifferInOneByte(x *bench) {
	long := strings.Repeat("a/B.", 32)[:127]
	names := []string{
		"job", "Job", "JOB", "job.", "job-", "job0", "a/b", "a:b", "a.b", "a@b", "a=b", "a+b", "a_b", "a-b", "A/b",
		long, long + "x", long + "X", strings.Repeat("A", 128), strings.Repeat("A", 127) + "B", strings.Repeat("a", 128),
	}
	for _, n := range names {
		if err := lease.CheckName(n); err != nil {
			x.Fatal(err)
		}
		x.contenderFor(n, n).own()
	}
	for _, n := range names {
		s, err := x.b.Inspect(x.Context(), n)
		if err != nil || s.State != lease.Held || s.Info.Note != n {
			x.Errorf("%s: %+v, %v", n, s, err)
		}
	}
	slices.Sort(names)
	if got, err := x.b.List(x.Context()); err != nil || !slices.Equal(got, names) {
		x.Errorf("list: %v\n%v\nwant %v", err, got, names)
	}
}

func inspectionWritesNothing(x *bench) {
	look := func(when string) lease.Snapshot {
		x.Helper()
		before := x.h.Fingerprint(x.T, x.b)
		s := x.inspect()
		if _, err := x.b.List(x.Context()); err != nil {
			x.Error(err)
		}
		if other, err := x.b.Inspect(x.Context(), "suite/unknown"); err != nil || other.State != lease.Free {
			x.Errorf("unknown: %+v, %v", other, err)
		}
		if after := x.h.Fingerprint(x.T, x.b); after != before {
			x.Errorf("%s: before\n%s\nafter\n%s", when, before, after)
		}
		return s
	}
	if s := look("empty"); s.State != lease.Free {
		x.Errorf("%+v", s)
	}
	owner, first, second := x.contender("owner"), x.contender("first"), x.contender("second")
	owner.own()
	first.try(true)
	second.try(true)
	s := look("held")
	if s.State != lease.Held || s.Owner != owner.id || len(s.Waiters) != 2 ||
		s.Waiters[0].ID != first.id || s.Waiters[1].ID != second.id || s.Waiters[0].Info.Note != "first" {
		x.Errorf("%+v", s)
	}
	owner.release()
	if s := look("free with waiters"); s.State == lease.Held || len(s.Waiters) != 2 {
		x.Errorf("%+v", s)
	}
	first.own()
	first.release()
	second.own()
	second.release()
	if s := look("free"); s.State != lease.Free || len(s.Waiters) != 0 {
		x.Errorf("%+v", s)
	}
}

func revoke(x *bench) {
	owner, other := x.contender("owner"), x.contender("other")
	if err := x.b.Revoke(x.Context(), x.mutex, owner.id); !errors.Is(err, lease.ErrNotOwner) {
		x.Errorf("nobody's: %v", err)
	}
	mine := owner.own()
	rings := owner.hear()
	if err := x.b.Revoke(x.Context(), x.mutex, other.id); !errors.Is(err, lease.ErrNotOwner) {
		x.Errorf("another's: %v", err)
	}
	if a := owner.renew(mine.Fence, lease.RenewRequest{}); a.State != lease.Mine || a.Revoked {
		x.Errorf("before: %+v", a)
	}
	if err := x.b.Revoke(x.Context(), x.mutex, owner.id); err != nil {
		x.Fatal(err)
	}
	select {
	case <-rings:
	case <-time.After(patience):
		x.Error("the owner's bell does not ring")
	}
	first := owner.renew(mine.Fence, lease.RenewRequest{})
	if first.State != lease.Mine || !first.Revoked {
		x.Errorf("after: %+v", first)
	}
	if s := x.inspect(); !s.Revoked || s.State != lease.Held {
		x.Errorf("%+v", s)
	}
	if !x.h.Endless {
		x.eventually("a revoked lease is not extended", func() bool {
			a := owner.renew(mine.Fence, lease.RenewRequest{})
			return a.State == lease.Mine && a.Revoked && a.Remaining < first.Remaining
		})
		if a := owner.renew(mine.Fence, lease.RenewRequest{Dying: true}); a.State != lease.Mine || a.Remaining <= x.h.Terms.Lease()/2 {
			x.Errorf("dying: %+v", a)
		}
	}
	owner.release()
	if a := other.own(); a.Revoked {
		x.Errorf("the next one is revoked: %+v", a)
	}
	if a := other.renew(0, lease.RenewRequest{}); a.Revoked {
		x.Errorf("the next one is revoked: %+v", a)
	}
}

func spentIDs(x *bench) {
	owner, waiter, fresh := x.contender("owner"), x.contender("waiter"), x.contender("fresh")
	mine := owner.own()
	waiter.try(true)
	gone := func(p *party) {
		x.Helper()
		for range 2 {
			if a, err := p.Try(x.Context(), p.request(true)); !errors.Is(err, lease.ErrSpent) {
				x.Errorf("%s: %+v, %v", p.info.Note, a, err)
			}
		}
	}
	if err := waiter.Release(x.Context(), lease.ReleaseRequest{Tombstone: true}); err != nil {
		x.Fatal(err)
	}
	gone(waiter)
	owner.release()
	gone(owner)
	if a := owner.renew(mine.Fence, lease.RenewRequest{Reassert: true}); a.State == lease.Mine {
		x.Errorf("a released lease came back: %+v", a)
	}
	// One that never did anything may leave, too.
	if err := fresh.Release(x.Context(), lease.ReleaseRequest{Tombstone: true}); err != nil {
		x.Fatal(err)
	}
	gone(fresh)
	if s := x.inspect(); s.State != lease.Free || len(s.Waiters) != 0 {
		x.Errorf("%+v", s)
	}
}

func watchRings(x *bench) {
	owner, waiter := x.contender("owner"), x.contender("waiter")
	named := listen(x.T, func(ctx context.Context, ring func(lease.Ring)) error {
		return x.b.Watch(ctx, []string{"suite/other", x.mutex}, ring)
	})
	all := listen(x.T, func(ctx context.Context, ring func(lease.Ring)) error {
		return x.b.Watch(ctx, nil, ring)
	})
	// A ring is a hint, so one may come late: each step waits until what it
	// changed is seen after a ring.
	step := func(what string, do func(), seen func(lease.Snapshot) bool) {
		x.Helper()
		do()
		for _, rings := range []<-chan struct{}{named, all} {
			end := time.After(patience)
			for ok := false; !ok; {
				select {
				case <-rings:
					ok = seen(x.inspect())
				case <-end:
					x.Fatalf("%s: no ring", what)
				}
			}
		}
	}
	step("acquire", func() { owner.own() }, func(s lease.Snapshot) bool { return s.Owner == owner.id })
	step("wait", func() { waiter.try(true) }, func(s lease.Snapshot) bool { return len(s.Waiters) == 1 })
	step("leave", func() { waiter.release() }, func(s lease.Snapshot) bool { return len(s.Waiters) == 0 })
	step("release", func() { owner.release() }, func(s lease.Snapshot) bool { return s.State == lease.Free })
}

func vanishedRecord(x *bench) {
	if x.h.Vanish == nil {
		x.Log("nothing of this backend can vanish")
		return
	}
	owner := x.contender("owner")
	mine := owner.own()
	x.h.Vanish(x.T, x.b, x.mutex)
	a := owner.renew(mine.Fence, lease.RenewRequest{})
	if x.h.NoReassert {
		owner.is(a, lease.Gone)
		return
	}
	if a.State == lease.Gone {
		a = owner.renew(mine.Fence, lease.RenewRequest{Reassert: true})
	}
	if a.State != lease.Mine || a.Fence != mine.Fence {
		x.Fatalf("%+v, the fence was %d", a, mine.Fence)
	}
	if s := x.inspect(); s.State != lease.Held || s.Owner != owner.id || s.Fence != mine.Fence {
		x.Errorf("%+v", s)
	}
	rival := x.contender("rival")
	rival.is(rival.try(false), lease.Held)
	owner.release()
	rival.own()
}

// deadOwner: the next one gets the mutex when the lease has ended, not before;
// at once where ownership ends with its owner.
func deadOwner(x *bench) {
	owner, next := x.contender("owner"), x.contender("next")
	began := time.Now()
	owner.own()
	next.is(next.try(true), lease.Held)
	rings := next.hear()
	_ = owner.Close()
	ctx, cancel := context.WithTimeout(x.Context(), patience)
	defer cancel()
	if _, err := next.get(ctx, rings); err != nil {
		x.Fatal(err)
	}
	took := time.Since(began)
	if !x.h.Endless && took < x.h.Terms.Lease() {
		x.Errorf("it was taken over after %v", took)
	}
	x.Logf("taken over after %v", took)
}
