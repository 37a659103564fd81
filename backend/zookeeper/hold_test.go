package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// A hold stands beside the queue from the acquisition on, is marked at the release, and
// goes when it is over, with whoever comes next.
func holdNode(t *testing.T, x *stand) {
	const length = 1500 * time.Millisecond
	owner := x.session("owner")
	began := time.Now()
	x.try(owner, length, lease.Mine)
	made := x.holding()
	if made == nil || made.Owner != "owner" || made.length() != length || made.Released || made.Fence != owner.fence {
		t.Fatalf("%+v", made)
	}
	if names, _, err := x.c.Children(x.b.queueDir("m")); err != nil || len(names) != 1 || len(newQueue(names)) != 1 {
		t.Errorf("beside the latch node: %v, %v", names, err)
	}
	x.release(owner)
	if h := x.holding(); h == nil || !h.Released || h.stat.Czxid != made.stat.Czxid {
		t.Errorf("released: %+v", h)
	}
	before, _ := dump(x.c, x.b.set.chroot)
	s, err := x.b.Inspect(t.Context(), "m")
	if err != nil || s.State != lease.Cooldown || s.Owner != "" || s.Last != "owner" || !s.Released ||
		s.Lease <= 0 || s.Lease > length {
		t.Errorf("%+v, %v", s, err)
	}
	if names, err := x.b.List(t.Context()); err != nil || len(names) != 1 || names[0] != "m" {
		t.Errorf("%v, %v", names, err)
	}
	if after, _ := dump(x.c, x.b.set.chroot); after != before {
		t.Errorf("looking changed\n%s\nto\n%s", before, after)
	}

	next := x.session("next")
	x.try(next, 0, lease.Cooldown)
	if at := x.free(next, 0); at.Before(began.Add(length)) || at.After(began.Add(length+time.Second)) {
		t.Errorf("the next one has it after %v", at.Sub(began))
	}
	if h := x.holding(); h != nil {
		t.Errorf("the next one, that wishes none: %+v", h)
	}
	x.release(next)

	third := x.session("third")
	x.try(third, 10*time.Millisecond, lease.Mine)
	time.Sleep(15 * time.Millisecond) // the hold ends
	x.release(third)
	if h := x.holding(); h != nil {
		t.Errorf("one that was over at the release: %+v", h)
	}
}

// Each of those who come one after the other makes a hold, and none starts within the
// one before: those that queue, those that try once, on any backend.
func TestHoldsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const length = 150 * time.Millisecond
	z := serve(t, backendtest.ZooKeeperOptions{})
	var mu sync.Mutex
	var starts []time.Time
	var wg sync.WaitGroup
	for i := range 6 {
		b := open(t, "zk://"+z.Addr)
		wg.Go(func() {
			for range 5 {
				cfg := lease.Config{
					Backend: b, Mutex: "m", Terms: terms(t, 5*time.Second, 5*time.Second), Wait: lease.Forever, Hold: length,
				}
				if i%2 == 1 {
					cfg.Wait = 0
				}
				err := lease.Do(t.Context(), cfg, func(context.Context, *lease.Holder) error {
					at := acquired(t, b)
					mu.Lock()
					defer mu.Unlock()
					starts = append(starts, at)
					return nil
				})
				var busy *lease.BusyError
				if err != nil && (cfg.Wait != 0 || !errors.As(err, &busy)) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	shortest := time.Hour
	for i := 1; i < len(starts); i++ {
		shortest = min(shortest, starts[i].Sub(starts[i-1]))
	}
	t.Logf("%d starts, the closest %v apart", len(starts), shortest)
	if len(starts) < 15 || shortest < length {
		t.Errorf("%d starts, the closest %v apart", len(starts), shortest)
	}
}

// An owner that dies right after it was given the mutex leaves its hold.
func holdOfADeadOwner(t *testing.T, x *stand) {
	const length = 3 * time.Second
	owner := x.session("owner")
	began := time.Now()
	x.try(owner, length, lease.Mine)
	if err := owner.Close(); err != nil { // its nodes end at once, which is the harder case
		t.Fatal(err)
	}
	s, err := x.b.Inspect(t.Context(), "m")
	if err != nil || s.State != lease.Cooldown || s.Last != "owner" || s.Released {
		t.Errorf("%+v, %v", s, err)
	}
	if at := x.free(x.session("next"), 0); at.Before(began.Add(length)) {
		t.Errorf("the next one has it after %v", at.Sub(began))
	}
}

// The answer to a claim is lost: the contender finds what it made, or, if it leaves, takes
// the hold along, since nothing has run under it.
func holdWithoutAnAnswer(t *testing.T, x *stand) {
	before := x.session("before")
	x.try(before, 0, lease.Mine) // the trees are there
	x.release(before)
	for _, leaves := range []bool{false, true} {
		relay := backendtest.StartRelay(t, x.b.set.hosts[0])
		s := x.sessionBy(open(t, "zk://"+relay.Addr+x.b.set.chroot), fmt.Sprint(leaves))
		cl, err := s.connect(8 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.join(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		r := asking(time.Minute)
		relay.Set(backendtest.EatReplies)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		s.claiming = true
		if _, err := s.sendClaim(ctx, cl, 1, &r, hold{}); err == nil {
			t.Error("it is answered")
		}
		cancel()
		relay.Cut()
		relay.Set(backendtest.Pass)
		eventually(t, "it was carried out", func() bool { return x.holding() != nil })
		if !leaves {
			x.try(s, time.Minute, lease.Mine)
		}
		eventually(t, "it leaves", func() bool { return s.Release(t.Context(), lease.ReleaseRequest{Tombstone: true}) == nil })
		if h := x.holding(); (h == nil) != leaves {
			t.Errorf("leaves %v: %+v", leaves, h)
		}
		_ = x.c.Delete(x.b.holdPath("m"), -1)
	}
}

// A hold that somebody deletes is over, and the owner does not put it back.
func holdDeleted(t *testing.T, x *stand) {
	owner := x.session("owner")
	x.try(owner, time.Hour, lease.Mine)
	if err := x.c.Delete(x.b.holdPath("m"), -1); err != nil {
		t.Fatal(err)
	}
	a, err := owner.Renew(t.Context(), lease.RenewRequest{Lease: 8 * time.Second, TTL: 4 * time.Second, Hold: time.Hour})
	if err != nil || a.State != lease.Mine {
		t.Errorf("%+v, %v", a, err)
	}
	x.release(owner)
	if h := x.holding(); h != nil {
		t.Errorf("%+v", h)
	}
	x.try(x.session("next"), 0, lease.Mine)
}

// A contender that has not seen a hold, because it read at different times or on a server
// that lags behind, is refused by the transaction that claims the mutex.
func holdNotSeen(t *testing.T, x *stand) {
	owner, next := x.session("owner"), x.session("next")
	x.try(owner, time.Hour, lease.Mine)
	x.try(next, 0, lease.Held)
	x.release(owner)
	claims := func() (n int) {
		t.Helper()
		names, _, err := x.c.Children(x.b.set.chroot + states)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "claim-") {
				n++
			}
		}
		return n
	}
	held := x.holding()
	for _, length := range []time.Duration{0, time.Minute} {
		r := asking(length)
		// As if there were none, and as if there were an older one.
		older := *held
		older.stat = &zk.Stat{Version: held.stat.Version + 1}
		for _, before := range []hold{{}, older} {
			fence := uint64(next.own.czxid)
			done, err := next.sendClaim(t.Context(), next.cl, fence, &r, before)
			if a, again, err := next.taken(t.Context(), next.cl, &r, fence, done, err); err != nil || !again {
				t.Errorf("%+v, %v, %v", a, again, err)
			}
			if h := x.holding(); h == nil || h.stat.Czxid != held.stat.Czxid || claims() != 0 || next.claimed {
				t.Errorf("%+v, %d claims, claimed %v", h, claims(), next.claimed)
			}
		}
	}
	// The claim that is sent beside the questions.
	next.heir, next.kept = true, false
	x.try(next, 0, lease.Cooldown)
	if h := x.holding(); h == nil || h.stat.Czxid != held.stat.Czxid || claims() != 0 {
		t.Errorf("%+v, %d claims", h, claims())
	}
}
