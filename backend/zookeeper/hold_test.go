package zookeeper

import (
	"context"
	"encoding/json"
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

// stand is one mutex on one server, with sessions that a test moves step by step.
type stand struct {
	t *testing.T
	b *Backend
	c *zk.Conn // beside
}

func newStand(t *testing.T) *stand {
	z := serve(t, backendtest.ZooKeeperOptions{})
	return &stand{t, open(t, "zk://"+z.Addr), raw(t, z.Addr)}
}

func (x *stand) session(id string) *session {
	return x.sessionBy(x.b, id)
}

func (x *stand) sessionBy(b *Backend, id string) *session {
	s := newSession(b, "m", lease.Contender{ID: id})
	x.t.Cleanup(func() { _ = s.Close() })
	return s
}

func asking(hold time.Duration) lease.TryRequest {
	return lease.TryRequest{Lease: 8 * time.Second, TTL: 4 * time.Second, Queue: true, Hold: hold}
}

func (x *stand) try(s *session, hold time.Duration, want lease.State) lease.Answer {
	x.t.Helper()
	a, err := s.Try(x.t.Context(), asking(hold))
	if err != nil || a.State != want {
		x.t.Fatalf("%s: %+v, %v; want state %d", s.c.ID, a, err, want)
	}
	return a
}

func (x *stand) release(s *session) {
	x.t.Helper()
	if err := s.Release(x.t.Context(), lease.ReleaseRequest{}); err != nil {
		x.t.Fatal(err)
	}
}

// holding is what the hold node says; nil if there is none.
func (x *stand) holding() *hold {
	x.t.Helper()
	data, stat, err := x.c.Get(x.b.holdPath("m"))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	h := &hold{}
	if err == nil {
		err = json.Unmarshal(data, h)
	}
	if err != nil || stat.EphemeralOwner != 0 {
		x.t.Fatalf("%s: %v, %+v", data, err, stat)
	}
	h.stat = stat
	return h
}

// free waits until a contender gets the mutex, and tells when.
func (x *stand) free(s *session, hold time.Duration) time.Time {
	x.t.Helper()
	eventually(x.t, s.c.ID+" gets it", func() bool {
		a, err := s.Try(x.t.Context(), asking(hold))
		if err != nil {
			x.t.Fatal(err)
		}
		return a.State == lease.Mine
	})
	return time.Now()
}

// A hold stands beside the queue from the acquisition on, is marked at the release, and
// goes when it is over, with whoever comes next.
func TestHoldNode(t *testing.T) {
	t.Parallel()
	x := newStand(t)
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
	before, _ := dump(x.c, "/")
	s, err := x.b.Inspect(t.Context(), "m")
	if err != nil || s.State != lease.Cooldown || s.Owner != "" || s.Last != "owner" || !s.Released || s.Lease <= 0 || s.Lease > length {
		t.Errorf("%+v, %v", s, err)
	}
	if names, err := x.b.List(t.Context()); err != nil || len(names) != 1 || names[0] != "m" {
		t.Errorf("%v, %v", names, err)
	}
	if after, _ := dump(x.c, "/"); after != before {
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
					mu.Lock()
					defer mu.Unlock()
					starts = append(starts, time.Now())
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
	// Each is told that it owns the mutex a little after it does.
	if len(starts) < 15 || shortest < length-20*time.Millisecond {
		t.Errorf("%d starts, the closest %v apart", len(starts), shortest)
	}
}

// An owner that dies right after it was given the mutex leaves its hold.
func TestHoldOfADeadOwner(t *testing.T) {
	t.Parallel()
	x := newStand(t)
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
func TestHoldWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	before := x.session("before")
	x.try(before, 0, lease.Mine) // the trees are there
	x.release(before)
	for _, leaves := range []bool{false, true} {
		relay := backendtest.StartRelay(t, x.b.set.hosts[0])
		s := x.sessionBy(open(t, "zk://"+relay.Addr), fmt.Sprint(leaves))
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
func TestHoldDeleted(t *testing.T) {
	t.Parallel()
	x := newStand(t)
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

// What ends an owner otherwise does not end its hold: a revocation, the loss of its node.
func TestHoldOutlivesALoss(t *testing.T) {
	t.Parallel()
	const length = 3 * time.Second
	z := serve(t, backendtest.ZooKeeperOptions{})
	c := raw(t, z.Addr)
	for _, how := range []string{"revoked", "deleted"} {
		b := open(t, "zk://"+z.Addr+"/"+how)
		a := &arena{t: t, mutex: "m", terms: terms(t, 4*time.Second, 4*time.Second), hold: length}
		owner := a.run(b, "owner")
		h := owner.owns()
		waiter := a.run(b, "waiter")
		waiter.waits()
		await(t, "its doorbell is there", owner.hears)
		if how == "revoked" {
			if err := b.Revoke(t.Context(), "m", h.ID()); err != nil {
				t.Fatal(err)
			}
		} else if err := deleteOwner(c, b.queueDir("m")); err != nil {
			t.Fatal(err)
		}
		await(t, "it ends", owner.done)
		if !errors.Is(owner.err, lease.ErrRevoked) && !errors.Is(owner.err, lease.ErrLost) {
			t.Error(how, owner.err)
		}
		waiter.ends()
		first, _ := owner.times()
		second, _ := waiter.times()
		t.Logf("%s: the next began %v after", how, second-first)
		if d := second - first; d < length-20*time.Millisecond || d > length+3*time.Second {
			t.Errorf("%s: the next began %v after", how, d)
		}
	}
}

// A JVM knows of latch nodes only: it may own the mutex as soon as its owner has gone. What
// is left of the hold is kept from ours behind it.
func TestHoldBesideTheJVM(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	const length = 2 * time.Second
	owner := x.session("owner")
	began := time.Now()
	x.try(owner, length, lease.Mine)
	jvm := startCurator(t, x.b.set.hosts[0], x.b.queueDir("m"), "0:1@jvm")
	next := x.session("next")
	x.try(next, 0, lease.Held)
	x.release(owner)
	jvm.getsIt(t)
	if a := x.try(next, 0, lease.Held); a.Owner != "0:1@jvm" {
		t.Errorf("%+v", a)
	}
	jvm.stop(t)
	x.try(next, 0, lease.Cooldown)
	if at := x.free(next, 0); at.Before(began.Add(length)) {
		t.Errorf("the next one has it after %v", at.Sub(began))
	}
}

// The servers' clock was set back after a hold was made: it is made anew, so that it
// lasts once more as long, not as long as the clock was set back.
func TestHoldOfTheFuture(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	const length = time.Second
	owner, next := x.session("owner"), x.session("next")
	x.try(owner, length, lease.Mine)
	x.release(owner)
	x.try(next, 0, lease.Cooldown)
	h := x.holding()
	old := h.stat.Czxid
	h.stat.Ctime += time.Hour.Milliseconds()
	r := asking(0)
	if a, again, err := next.obeyHold(t.Context(), next.cl, &r, *h); err != nil || !again {
		t.Fatalf("%+v, %v, %v", a, again, err)
	}
	made := time.Now()
	if h := x.holding(); h == nil || h.stat.Czxid == old || h.Owner != "owner" || !h.Released {
		t.Errorf("%+v", h)
	}
	if a := x.try(next, 0, lease.Cooldown); a.Remaining > length {
		t.Errorf("%+v", a)
	}
	if at := x.free(next, 0); at.Before(made.Add(length-20*time.Millisecond)) || at.After(made.Add(length+time.Second)) {
		t.Errorf("the next one has it after %v", at.Sub(made))
	}
}

// Who has waited for long reckons by a clock that may be faster than the servers'. It asks
// them before it believes that a hold is over.
func TestOldReadingOfTheTime(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	s := x.session("s")
	x.try(s, 0, lease.Mine)
	if err := s.readClock(t.Context(), s.cl); err != nil {
		t.Fatal(err)
	}
	if d := time.Until(time.UnixMilli(s.clock.told.Milliseconds())).Abs(); d > time.Second {
		t.Errorf("the server, which is on this host, is %v away", d)
	}
	now := s.clock
	// A thousand seconds, of which the servers counted five fewer.
	s.clock = reading{told: now.told - 995*time.Second, at: now.at - lease.Instant(1000*time.Second)}
	left, err := s.left(t.Context(), s.cl, now.told+2*time.Second)
	if err != nil || left < time.Second || left > 2100*time.Millisecond {
		t.Errorf("%v left, %v", left, err)
	}
	// What is over for certain costs nothing.
	s.clock = reading{told: now.told - 995*time.Second, at: now.at - lease.Instant(1000*time.Second)}
	if left, err := s.left(t.Context(), s.cl, now.told-20*time.Second); err != nil || left > 0 || s.clock.at > now.at-lease.Instant(time.Second) {
		t.Errorf("%v left, %v", left, err)
	}
	if names, _, err := x.c.Children(states); err != nil || strings.Contains(strings.Join(names, " "), "clock") {
		t.Errorf("left: %v, %v", names, err)
	}
}

// A hold that cannot be read is reported, and not overwritten.
func TestUnreadableHold(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	x.try(x.session("other"), 0, lease.Mine) // the tree is there
	for _, garbage := range []string{"", "1", `{"hold_ms":-1}`, `{"hold_ms":9223372036854775807}`, "\x00"} {
		path := x.b.statePath(holdPrefix, "m")
		if _, err := x.c.Create(path, []byte(garbage), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		s := x.session("x")
		if a, err := s.Try(t.Context(), asking(time.Second)); !lease.IsPermanent(err) || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("%q: %+v, %v", garbage, a, err)
		}
		x.release(s)
		if data, _, err := x.c.Get(path); err != nil || string(data) != garbage {
			t.Errorf("%q: %q, %v", garbage, data, err)
		}
		if err := x.c.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
}

// A hold goes on under another leader.
func TestHoldThroughAnElection(t *testing.T) {
	t.Parallel()
	const length = 12 * time.Second
	e := serveThree(t, backendtest.ZooKeeperOptions{})
	var addrs []string
	for _, m := range e.Members {
		addrs = append(addrs, m.Addr)
	}
	b := open(t, "zk://"+strings.Join(addrs, ","))
	a := &arena{t: t, mutex: "m", terms: terms(t, 12*time.Second, 10*time.Second), hold: length}
	owner := a.run(b, "owner")
	owner.owns()
	waiter := a.run(b, "waiter")
	waiter.waits()
	owner.ends()
	e.Members[e.Leader(t)].Kill()
	waiter.ends()
	first, _ := owner.times()
	second, _ := waiter.times()
	t.Logf("the next began %v after", second-first)
	if d := second - first; d < length-20*time.Millisecond || d > length+8*time.Second {
		t.Errorf("the next began %v after", d)
	}
}
