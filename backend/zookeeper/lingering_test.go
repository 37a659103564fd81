package zookeeper

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// Whoever deletes the node of an owner, or the whole queue, ends its work and
// frees the mutex; but a waiter does not start beside work that takes its time
// to end.
func TestDeletedBesideWaiters(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	c := raw(t, z.Addr)
	for _, whole := range []bool{false, true} {
		b := open(t, "zk://"+z.Addr)
		a := &arena{t: t, mutex: "m", terms: terms(t, 6*time.Second, 6*time.Second), slow: 700 * time.Millisecond}
		owner := a.run(b, "owner")
		owner.owns()
		first := a.run(b, "first")
		first.waits()
		second := a.run(b, "second")
		second.waits()
		eventually(t, "two wait", func() bool {
			s, err := b.Inspect(t.Context(), "m")
			return err == nil && len(s.Waiters) == 2
		})
		await(t, "its doorbell is there", owner.hears)
		began := lease.BootClock{}.Now()
		if whole {
			deleteAll(t, c, b.queueDir("m"))
		} else if err := deleteOwner(c, b.queueDir("m")); err != nil {
			t.Fatal(err)
		}
		owner.lost()
		_, over := owner.times()
		if took := over - began; took > a.slow+500*time.Millisecond {
			t.Errorf("its work was over after %v", took)
		}
		next := first
		select {
		case <-first.started:
		case <-second.started:
			next = second
		case <-time.After(patience):
			t.Fatal("none of them goes on")
		}
		began, _ = next.times()
		t.Logf("the next began %v after the work of the owner", began-over)
		if gap := began - over; gap > 2*time.Second {
			t.Errorf("the next began %v after the work of the owner", gap)
		}
		next.ends()
		if next == first {
			second.ends()
		} else {
			first.ends()
		}
	}
}

// deleteAll is deleteall of the server's own tool. Who has been in the queue may
// be back before.
func deleteAll(t *testing.T, c *zk.Conn, dir string) {
	t.Helper()
	names, _, err := c.Children(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		_ = c.Delete(dir+"/"+n, -1)
	}
	_ = c.Delete(dir, -1)
}

// A look that is under way while the node is deleted does not see it by the watch.
func TestDeletedBesideALook(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	owner := b.Session("m", lease.Contender{ID: "owner"})
	waiter := newSession(b, "m", lease.Contender{ID: "waiter"})
	defer func() { _, _ = owner.Close(), waiter.Close() }()
	r := lease.TryRequest{Lease: 8 * time.Second, TTL: 4 * time.Second, Queue: true}
	for _, s := range []lease.Session{owner, waiter} {
		if _, err := s.Try(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	pred := func() string {
		waiter.mu.Lock()
		defer waiter.mu.Unlock()
		return waiter.pred
	}
	watched := pred()
	if err := deleteOwner(raw(t, z.Addr), b.queueDir("m")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch fires", func() bool { return pred() == "" })
	waiter.mu.Lock()
	waiter.pred = watched // as if it had not fired yet
	waiter.mu.Unlock()
	if a, err := waiter.Try(t.Context(), r); err != nil || a.State != lease.Held || a.Owner != "owner" || a.Remaining <= 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// An owner that does not end is waited for as long as its lease.
func TestLingeringEnds(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	owner := b.Session("m", lease.Contender{ID: "owner"})
	waiter := b.Session("m", lease.Contender{ID: "waiter"})
	defer func() { _, _ = owner.Close(), waiter.Close() }()
	r := lease.TryRequest{Lease: 2 * time.Second, TTL: time.Second, Queue: true}
	if a, err := owner.Try(t.Context(), r); err != nil || a.State != lease.Mine {
		t.Fatal(a, err)
	}
	if a, err := waiter.Try(t.Context(), r); err != nil || a.State != lease.Held {
		t.Fatal(a, err)
	}
	c := raw(t, z.Addr)
	if err := deleteOwner(c, b.queueDir("m")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	// Before the node is known to be gone, the answer has no end.
	eventually(t, "the owner is known to be ending", func() bool {
		a, err := waiter.Try(t.Context(), r)
		return err == nil && a.State == lease.Held && a.Owner == "owner" && a.Remaining > 0 && a.Remaining <= r.Lease
	})
	if claims, _, err := c.Children(states); err != nil || len(claims) != 1 {
		t.Errorf("claims beside that of the owner: %v, %v", claims, err)
	}
	eventually(t, "it is over", func() bool {
		a, err := waiter.Try(t.Context(), r)
		return err == nil && a.State == lease.Mine
	})
	if took := time.Since(began); took < r.Lease-100*time.Millisecond || took > r.Lease+time.Second {
		t.Errorf("it was waited for %v", took)
	}
}
