package zookeeper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// The server stands still past the session, and goes on: whoever owned the
// mutex has stopped before, and its old node is nobody's.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	a := &arena{t: t, mutex: "m", terms: terms(t, 1200*time.Millisecond, 1200*time.Millisecond)}
	for round := range 3 {
		b1, b2 := open(t, "zk://"+z.Addr), open(t, "zk://"+z.Addr)
		owner := a.run(b1, "owner")
		h := owner.owns()
		waiter := a.run(b2, "waiter")
		waiter.waits()
		deadline := h.Deadlines()
		if round%2 == 0 {
			z.Stop()
		} else {
			z.Kill()
		}
		await(t, "the owner stops though nothing answers", owner.ended)
		if _, over := owner.times(); over > deadline.End+a.terms.Lease() {
			t.Errorf("it stopped at %v, the lease that it had ended at %v", over, deadline.End)
		}
		if round%2 == 0 {
			time.Sleep(a.terms.Lease()) // past the session, which is what is to be tried
			z.Cont()
		} else {
			z.Restart()
		}
		owner.lost()
		waiter.ends() // the owner may have released when the server was back
	}
}

// A server that comes back with its data in time costs nothing.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	a := &arena{t: t, mutex: "m", terms: terms(t, 10*time.Second, 6*time.Second)}
	owner := a.run(b, "owner")
	h := owner.owns()
	waiter := a.run(b, "waiter")
	waiter.waits()
	for range 2 {
		before := h.Deadlines()
		z.Kill()
		z.Restart()
		eventually(t, "the lease is renewed", func() bool { return h.Deadlines().End > before.End })
	}
	owner.keeps(100 * time.Millisecond)
	owner.ends()
	began := time.Now()
	waiter.ends()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the waiter came after %v", took)
	}
}

// A store that comes back empty: the waiter saw an owner and waits out its
// lease, and the fence does not go back.
func TestEmptied(t *testing.T) {
	for _, hold := range []time.Duration{0, 500 * time.Millisecond} {
		t.Run(hold.String(), func(t *testing.T) {
			t.Parallel()
			testEmptied(t, hold)
		})
	}
}

func testEmptied(t *testing.T, hold time.Duration) {
	z := serve(t, backendtest.ZooKeeperOptions{})
	a := &arena{t: t, mutex: "m", terms: terms(t, 1500*time.Millisecond, 1500*time.Millisecond), hold: hold}
	owner := a.run(open(t, "zk://"+z.Addr), "owner")
	fence := owner.owns().Fence()
	waiter := a.run(open(t, "zk://"+z.Addr), "waiter")
	waiter.waits()
	z.Kill()
	z.Wipe(t)
	z.Restart()
	emptied := lease.BootClock{}.Now()
	owner.lost()
	// Somebody who gives up and somebody new obey, too.
	b := open(t, "zk://"+z.Addr)
	eventually(t, "the owner of before is known", func() bool {
		s, err := b.Inspect(t.Context(), "m")
		return err == nil && s.State == lease.Held && strings.Contains(s.Detail, "emptied")
	})
	late := a.run(b, "late")
	if h := waiter.owns(); h.Fence() <= fence {
		t.Errorf("fence %d after %d", h.Fence(), fence)
	}
	if began, _ := waiter.times(); began < emptied+a.terms.Lease()-500*time.Millisecond {
		t.Errorf("the waiter began %v after the store was emptied", began-emptied)
	}
	waiter.ends()
	late.ends()
}

// A node that somebody deleted is a loss, at once.
func TestOwnNodeDeleted(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	c := raw(t, z.Addr)
	a := &arena{t: t, mutex: "m", terms: terms(t, 4*time.Second, 4*time.Second)}
	owner := a.run(b, "owner")
	owner.owns()
	await(t, "its doorbell is there", owner.hears)
	began := time.Now()
	if err := deleteOwner(c, b.queueDir("m")); err != nil {
		t.Fatal(err)
	}
	owner.lost()
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	if !strings.Contains(owner.err.Error(), "vanished") {
		t.Error(owner.err)
	}
	next := a.run(b, "next")
	next.ends()
}

// A claim that somebody deleted decides nothing, and is written anew.
func TestClaimDeleted(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	c := raw(t, z.Addr)
	a := &arena{t: t, mutex: "m", terms: terms(t, 4*time.Second, 4*time.Second)}
	owner := a.run(b, "owner")
	h := owner.owns()
	waiter := a.run(b, "waiter")
	waiter.waits()
	for range 2 {
		names, _, err := c.Children(states)
		if err != nil || len(names) != 1 {
			t.Fatal(names, err)
		}
		if err := c.Delete(states+"/"+names[0], -1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is there again", func() bool {
			s, err := b.Inspect(t.Context(), "m")
			return err == nil && s.State == lease.Held && s.Fence == h.Fence()
		})
	}
	if err := b.Revoke(t.Context(), "m", h.ID()); err != nil {
		t.Fatal(err)
	}
	owner.lost()
	waiter.ends()
}

// Waiters whose nodes are deleted, with the parent, make them again and go on.
func TestParentDeleted(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	c := raw(t, z.Addr)
	a := &arena{t: t, mutex: "deep/er", terms: terms(t, 4*time.Second, 4*time.Second)}
	jvm := startCurator(t, z.Addr, b.queueDir(a.mutex), "0:1@jvm")
	jvm.getsIt(t)
	waiters := []*job{a.run(b, "first"), a.run(b, "second"), a.run(b, "third")}
	for _, w := range waiters {
		w.waits()
	}
	for _, dir := range []string{b.queueDir(a.mutex), b.queueDir("deep")} {
		names, _, err := c.Children(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			_ = c.Delete(dir+"/"+n, -1)
		}
		_ = c.Delete(dir, -1) // a waiter may be back before
	}
	for range waiters {
		select {
		case <-waiters[0].started:
			waiters[0].ends()
		case <-waiters[1].started:
			waiters[1].ends()
		case <-waiters[2].started:
			waiters[2].ends()
		case <-time.After(patience):
			t.Fatal("none of them goes on")
		}
		for _, w := range waiters {
			if w.err == nil {
				select {
				case <-w.done:
					w.started = nil
				default:
				}
			}
		}
	}
}

// The server grants what it likes: that is the lease then.
func TestGranted(t *testing.T) {
	for _, c := range []struct {
		name        string
		options     backendtest.ZooKeeperOptions
		asked, want time.Duration
	}{
		{"more", backendtest.ZooKeeperOptions{MinSession: 3 * time.Second}, time.Second, 3 * time.Second},
		{"less", backendtest.ZooKeeperOptions{MaxSession: 1500 * time.Millisecond}, 8 * time.Second, 1500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			z := serve(t, c.options)
			relay := backendtest.StartRelay(t, z.Addr)
			b := open(t, "zk://"+relay.Addr)
			a := &arena{t: t, mutex: "m", terms: terms(t, c.asked/2, c.asked/2)}
			owner := a.run(b, "owner")
			owner.owns()
			eventually(t, "it is told", func() bool {
				e, ok := owner.event(lease.EventGranted)
				return ok && e.After == c.want
			})
			next := a.run(open(t, "zk://"+z.Addr), "next")
			next.waits()
			owner.keeps(2 * c.want)
			s, err := open(t, "zk://"+z.Addr).Inspect(t.Context(), "m")
			if err != nil || s.Lease != c.want || s.TTL != c.want/2 {
				t.Errorf("%+v, %v", s, err)
			}
			relay.Set(backendtest.Blackhole)
			await(t, "the owner stops", owner.ended)
			next.owns() // the arena sees whether that was too early
			next.after(owner)
			relay.Set(backendtest.Pass)
			next.ends()
		})
	}
}

// A run that does not wait is told at once who has the mutex, and leaves nothing.
func TestOnce(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	c := raw(t, z.Addr)
	a := &arena{t: t, mutex: "m", terms: terms(t, 10*time.Second, 6*time.Second)}
	once := func() error {
		began := time.Now()
		err := lease.Do(t.Context(), lease.Config{Backend: b, Mutex: "m", Terms: a.terms}, func(context.Context, *lease.Holder) error { return nil })
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		return err
	}
	busy := func(owner string) {
		t.Helper()
		before, _ := dump(c, queues)
		var e *lease.BusyError
		if err := once(); !errors.As(err, &e) || e.Answer.Owner != owner {
			t.Errorf("held by %s: %v", owner, err)
		}
		if after, _ := dump(c, queues); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	}
	if err := once(); err != nil {
		t.Error(err)
	}
	owner := a.run(b, "owner")
	busy(owner.owns().ID())
	jvm := startCurator(t, z.Addr, b.queueDir("m"), "0:1@jvm")
	owner.ends()
	jvm.getsIt(t)
	busy("0:1@jvm")
	jvm.stop(t)
	if err := once(); err != nil {
		t.Error(err)
	}
}

// A waiter that was out of the world for longer than its session has lost its
// place, whatever it believes: it comes back with a new id, at the end.
func TestFrozenWaiter(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	relay := backendtest.StartRelay(t, z.Addr)
	direct := open(t, "zk://"+z.Addr)
	a := &arena{t: t, mutex: "m", terms: terms(t, 3*time.Second, 3*time.Second)}
	owner := a.run(direct, "owner")
	owner.owns()
	frozen := a.run(open(t, "zk://"+relay.Addr), "frozen")
	frozen.waits()
	place := func() (ids []string) {
		s, err := direct.Inspect(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range s.Waiters {
			ids = append(ids, w.ID)
		}
		return ids
	}
	old := place()
	if len(old) != 1 {
		t.Fatal(old)
	}
	relay.Set(backendtest.Blackhole)
	next := a.run(direct, "next")
	next.waits()
	eventually(t, "its session has ended", func() bool { p := place(); return len(p) == 1 && p[0] != old[0] })
	owner.ends()
	next.owns()
	relay.Set(backendtest.Pass)
	eventually(t, "it waits anew", func() bool { p := place(); return len(p) == 1 && p[0] != old[0] })
	next.keeps(500 * time.Millisecond) // the arena sees whether it starts
	next.ends()
	if h := frozen.owns(); h.ID() == old[0] {
		t.Error("it owns the mutex under its old id")
	}
	frozen.ends()
}
