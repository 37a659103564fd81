package backendtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

const (
	testLease = 5 * time.Second
	testTTL   = 3 * time.Second
)

func contender(id string) lease.Contender { return lease.Contender{ID: id} }

// stepper runs operations of one mutex against a store at a time of its own.
type stepper struct {
	t   *testing.T
	s   *Store
	now time.Duration
}

func (x *stepper) try(id string, queue bool, seen lease.Seen) (lease.Answer, []string) {
	x.t.Helper()
	a, rings, err := x.s.Try(x.now, "m", contender(id), lease.TryRequest{Lease: testLease, TTL: testTTL, Queue: queue, Seen: seen})
	if err != nil {
		x.t.Fatalf("try %s: %v", id, err)
	}
	return a, rings
}

func (x *stepper) want(a lease.Answer, st lease.State, owner string) {
	x.t.Helper()
	if a.State != st || a.Owner != owner {
		x.t.Fatalf("answer is state %v owner %q, want %v %q", a.State, a.Owner, st, owner)
	}
}

func TestStoreQueue(t *testing.T) {
	x := &stepper{t, NewStore("b1"), time.Second}
	a, _ := x.try("a", true, lease.Seen{})
	x.want(a, lease.Mine, "a")
	fence := a.Fence
	for i, id := range []string{"b", "c", "d"} {
		if a, _ := x.try(id, true, lease.Seen{}); a.State != lease.Held || a.Rank != i+1 || a.Remaining != testLease {
			t.Fatalf("%s: %+v", id, a)
		}
	}
	if rings := x.s.Release(x.now, "m", "a", lease.ReleaseRequest{}); !slices.Equal(rings, []string{"b"}) {
		t.Fatalf("rings %v", rings)
	}
	a, _ = x.try("new", false, lease.Seen{})
	x.want(a, lease.Promised, "")
	if a.Remaining != lease.PromiseLife || a.Rank != 0 {
		t.Fatalf("%+v", a)
	}
	x.now += lease.PromiseLife // b is dead
	a, rings := x.try("d", true, lease.Seen{})
	x.want(a, lease.Promised, "")
	if !slices.Equal(rings, []string{"c"}) || a.Rank != 2 {
		t.Fatalf("rings %v, rank %d", rings, a.Rank)
	}
	if rings := x.s.Release(x.now, "m", "c", lease.ReleaseRequest{Tombstone: true}); !slices.Equal(rings, []string{"d"}) {
		t.Fatalf("c left, rings %v", rings)
	}
	a, _ = x.try("b", true, lease.Seen{})
	x.want(a, lease.Promised, "")
	a, _ = x.try("d", true, lease.Seen{})
	x.want(a, lease.Mine, "d")
	if a.Fence <= fence {
		t.Fatal("the fence did not rise")
	}
	if _, _, err := x.s.Try(x.now, "m", contender("c"), lease.TryRequest{}); !errors.Is(err, lease.ErrSpent) {
		t.Fatalf("c left: %v", err)
	}
}

func TestStoreRenew(t *testing.T) {
	x := &stepper{t, NewStore("b1"), time.Second}
	a, _ := x.try("a", true, lease.Seen{})
	renew := func(id string, r lease.RenewRequest) lease.Answer {
		r.Lease, r.TTL, r.Fence = testLease, testTTL, a.Fence
		ans, _, err := x.s.Renew(x.now, "m", contender(id), r)
		if err != nil {
			t.Fatal(err)
		}
		return ans
	}
	x.now += 4 * time.Second
	x.want(renew("a", lease.RenewRequest{}), lease.Mine, "a")
	x.want(renew("z", lease.RenewRequest{}), lease.Held, "a")

	if _, err := x.s.Revoke(x.now, "m", "z"); !errors.Is(err, lease.ErrNotOwner) {
		t.Fatal(err)
	}
	if rings, err := x.s.Revoke(x.now, "m", "a"); err != nil || !slices.Equal(rings, []string{"a"}) {
		t.Fatal(rings, err)
	}
	x.now += time.Second
	if got := renew("a", lease.RenewRequest{}); !got.Revoked || got.Remaining != testLease-time.Second {
		t.Fatalf("%+v", got)
	}
	if got := renew("a", lease.RenewRequest{Dying: true}); !got.Revoked || got.Remaining != testLease {
		t.Fatalf("%+v", got)
	}
	x.now += testLease
	x.want(renew("a", lease.RenewRequest{}), lease.Gone, "")
	x.want(renew("a", lease.RenewRequest{Reassert: true}), lease.Mine, "a")
	x.s.Release(x.now, "m", "a", lease.ReleaseRequest{})
	x.want(renew("a", lease.RenewRequest{Reassert: true}), lease.Gone, "")
}

func TestStoreEmptied(t *testing.T) {
	x := &stepper{t, NewStore("b1"), time.Second}
	a, _ := x.try("a", true, lease.Seen{})
	seen := lease.Seen{Owner: "a", Fence: a.Fence, Birth: "b1", Lease: testLease}
	x.s.Empty("b2")
	x.now += time.Second
	got, _ := x.try("b", true, seen)
	x.want(got, lease.Held, "a")
	if got.Remaining != testLease || got.Birth != "b2" {
		t.Fatalf("%+v", got)
	}
	got, _ = x.try("new", false, lease.Seen{})
	x.want(got, lease.Held, "a")

	lifted := *x.s.mutexes["m"] // the same story with and without the owner
	lifted.queue = slices.Clone(lifted.queue)
	x.now += testLease
	got, _ = x.try("c", true, seen) // a late look does not impose it again
	x.want(got, lease.Promised, "")
	got, _ = x.try("b", true, seen)
	x.want(got, lease.Mine, "b")
	if got.Fence <= a.Fence {
		t.Fatal("the fence fell")
	}

	x.s.mutexes["m"] = &lifted
	x.now -= time.Second
	r := lease.RenewRequest{Lease: testLease, TTL: testTTL, Fence: a.Fence, Reassert: true}
	ans, _, _ := x.s.Renew(x.now, "m", contender("a"), r)
	x.want(ans, lease.Mine, "a")
	if ans.Fence != a.Fence {
		t.Fatalf("fence %d, was %d", ans.Fence, a.Fence)
	}
	if rings := x.s.Release(x.now, "m", "a", lease.ReleaseRequest{}); !slices.Equal(rings, []string{"b"}) {
		t.Fatal(rings)
	}
}

// Any sequence of operations keeps what everything rests on: an owner stays the
// owner until its lease has ended or it left, and fences rise.
func TestStoreRandom(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s, now := NewStore("b"), time.Duration(0)
		ids := []string{"a", "b", "c", "d", "e"}
		fences := map[string]uint64{}
		owner, end, high := "", time.Duration(0), uint64(0)
		for i := range 400 {
			now += time.Duration(rnd.IntN(1500)) * time.Millisecond
			k := rnd.IntN(len(ids))
			id := ids[k]
			var a lease.Answer
			switch rnd.IntN(5) {
			case 0, 1:
				r := lease.TryRequest{Lease: testLease, TTL: testTTL, Queue: rnd.IntN(2) == 0, StartOver: rnd.IntN(5) == 0}
				a, _, _ = s.Try(now, "m", contender(id), r)
			case 2:
				r := lease.RenewRequest{Lease: testLease, TTL: testTTL, Fence: fences[id], Reassert: rnd.IntN(2) == 0 && fences[id] > 0}
				a, _, _ = s.Renew(now, "m", contender(id), r)
			case 3:
				s.Release(now, "m", id, lease.ReleaseRequest{Tombstone: rnd.IntN(2) == 0})
				if owner == id {
					owner = ""
				}
				ids[k] = fmt.Sprint(seed, i) // an id is never used again
			case 4:
				s.Inspect(now, "m")
			}
			if a.State != lease.Mine {
				continue
			}
			if owner != "" && owner != id && now < end {
				t.Fatalf("seed %d: %s owns it beside %s", seed, id, owner)
			}
			if owner != id && fences[id] != a.Fence && a.Fence <= high {
				t.Fatalf("seed %d: fence %d after %d", seed, a.Fence, high)
			}
			owner, end, high = id, now+a.Remaining, max(high, a.Fence)
			fences[id] = a.Fence
		}
	}
}

func BenchmarkStore(b *testing.B) {
	s, now := NewStore("b"), time.Duration(0)
	c := contender("a")
	for b.Loop() {
		now += time.Millisecond
		_, _, _ = s.Try(now, "m", c, lease.TryRequest{Lease: testLease, TTL: testTTL, Queue: true})
		s.Release(now, "m", "b", lease.ReleaseRequest{})
	}
}
