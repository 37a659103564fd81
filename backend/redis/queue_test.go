package redis

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// Nobody overtakes a waiter that was woken; only the first one is.
func TestWokenIsNotOvertaken(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	owner, first, second := w.contender("owner"), w.contender("first"), w.contender("second")
	owner.own()
	bell1, bell2 := first.wait(), second.wait()
	owner.release()
	bell1.rings()
	bell2.silent()
	a := is(t, w.contender("newcomer").once(), lease.Promised, "")
	between(t, "promise", a.Remaining, 500*time.Millisecond, time.Second)
	is(t, second.try(), lease.Promised, "")
	first.own()
	bell2.silent()
	is(t, second.try(), lease.Held, first.id)
}

// Each dead or frozen waiter in front costs at most about a second.
func TestDeadAndFrozenInFront(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high time.Duration
		front     func(w *world) // waits in front
		late      time.Duration  // how long the owner goes on after it
	}{
		// It hears but does not come.
		{"Frozen", 900 * time.Millisecond, 1500 * time.Millisecond, func(w *world) { w.contender("frozen").wait() }, 0},
		// It should have looked long ago, so it gets a quarter of that.
		{"LongFrozen", 200 * time.Millisecond, 700 * time.Millisecond, func(w *world) { w.contender("frozen").wait() }, 2200 * time.Millisecond},
		// Ten whose connections are gone are doubted together.
		{"Dead", 200 * time.Millisecond, 700 * time.Millisecond, func(w *world) {
			for range 10 {
				p := w.contender("dead")
				p.wait().end()
				w.deaf(p)
			}
		}, 0},
		{"LongDead", 0, 200 * time.Millisecond, func(w *world) {
			p := w.contender("dead")
			p.wait().end()
			w.deaf(p)
		}, 2200 * time.Millisecond},
		// It never listened: it has until after its next look.
		{"DeadPoller", 500 * time.Millisecond, 2500 * time.Millisecond, func(w *world) { w.contender("poller").try() }, 0},
		{"LongDeadPoller", 0, 200 * time.Millisecond, func(w *world) { w.contender("poller").try() }, 2200 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, backendtest.RedisOptions{})
			owner, live := w.contender("owner"), w.contender("live")
			owner.own()
			c.front(w)
			live.wait()
			for end := time.Now().Add(c.late); time.Now().Before(end); time.Sleep(c.late / 10) {
				live.try()
			}
			owner.release()
			between(t, "the one behind waited", live.get(), c.low, c.high)
		})
	}
}

// Killed connections of waiters cost nobody its place.
func TestKilledSubscriptionsReorderNobody(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	owner := w.contender("owner")
	owner.own()
	var waiters []*party
	var bells []*bells
	for range 4 {
		p := w.contender("waiter")
		waiters, bells = append(waiters, p), append(bells, p.wait())
	}
	w.r.Do("CLIENT", "KILL", "TYPE", "pubsub")
	for i, b := range bells {
		if err := b.ends(); err == nil || lease.IsPermanent(err) {
			t.Errorf("waiter %d: %v", i, err)
		}
	}
	owner.release()
	for i := len(waiters) - 1; i >= 0; i-- { // they come back, the last one first
		waiters[i].hear()
		if i > 0 {
			is(t, waiters[i].try(), lease.Promised, "")
		}
	}
	for i, p := range waiters {
		p.own()
		for _, q := range waiters[i+1:] {
			is(t, q.try(), lease.Held, p.id)
		}
		p.release()
	}
}

// One that was dropped although it lives claims its place; one that was frozen
// goes to the end.
func TestPlaceIsClaimedAgain(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	owner, first, second, third := w.contender("owner"), w.contender("first"), w.contender("second"), w.contender("third")
	owner.own()
	for _, p := range []*party{first, second, third} {
		p.wait()
	}
	owner.release()
	second.get() // first was dropped for it
	if a := is(t, first.try(), lease.Held, second.id); a.Rank != 1 {
		t.Errorf("%+v", a)
	}
	r := third.request()
	r.StartOver = true
	if a, err := third.Try(t.Context(), r); err != nil || a.Rank != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	r = first.request()
	r.StartOver = true
	if a, err := first.Try(t.Context(), r); err != nil || a.Rank != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	// The order outlives the set, from which others take without asking.
	w.r.Do("DEL", queueKey("m"))
	s, err := w.b.Inspect(t.Context(), "m")
	if err != nil || len(s.Waiters) != 2 || s.Waiters[0].ID != third.id {
		t.Errorf("%+v, %v", s, err)
	}
	if a := third.try(); a.Rank != 1 {
		t.Errorf("%+v", a)
	}
	// And it outlives the hash.
	w.r.Do("DEL", leaseKey("m"), queueKey("m"))
	first.try()
	if a := third.try(); a.Rank != 1 {
		t.Errorf("%+v", a)
	}
}

// Waiters that cannot be woken get their turn in order beside those that can.
func TestPollersAreNotStarved(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{ACL: "user default on nopass ~* &* +@all\n" +
		"user app on >secret ~* resetchannels +@all\n"})
	polling := open(t, "redis://app:secret@"+w.r.Addr)
	if err := contender(t, polling, "m", "").Listen(t.Context(), func(lease.Ring) {}); !errors.Is(err, lease.ErrNoPush) {
		t.Fatal(err)
	}
	terms := terms(t, 3*time.Second)
	owner := w.contender("owner")
	owner.own()
	order := make(chan int, 6)
	for i := range 6 {
		b := w.b
		if i%2 == 0 {
			b = polling
		}
		go func() {
			err := lease.Do(t.Context(), lease.Config{Backend: b, Mutex: "m", Terms: terms, Wait: lease.Forever}, func(ctx context.Context, h *lease.Holder) error {
				order <- i
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		eventually(t, "it does not queue", func() bool {
			s, err := w.b.Inspect(t.Context(), "m")
			return err == nil && len(s.Waiters) == i+1
		})
	}
	owner.release()
	var got []int
	began := time.Now()
	for range 6 {
		select {
		case i := <-order:
			got = append(got, i)
		case <-time.After(soon):
			t.Fatal(got)
		}
	}
	if !slices.IsSorted(got) {
		t.Error(got)
	}
	between(t, "six jobs", time.Since(began), 0, 8*time.Second)
}
