package zookeeper

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

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
		first := acquired(t, b)
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
		waiter.owns()
		d := acquired(t, b).Sub(first)
		t.Logf("%s: the next one took it %v after", how, d)
		if d < length || d > length+3*time.Second {
			t.Errorf("%s: the next one took it %v after", how, d)
		}
		waiter.ends()
	}
}

// A JVM knows of latch nodes only: it may own the mutex as soon as its owner has gone. What
// is left of the hold is kept from ours behind it.
func holdBesideTheJVM(t *testing.T, x *stand) {
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
func holdOfTheFuture(t *testing.T, x *stand) {
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
func oldReadingOfTheTime(t *testing.T, x *stand) {
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
	s.clock = reading{told: now.told - 995*time.Second, at: now.at - 1000*time.Second}
	left, err := s.left(t.Context(), s.cl, now.told+2*time.Second)
	if err != nil || left < time.Second || left > 2100*time.Millisecond {
		t.Errorf("%v left, %v", left, err)
	}
	// What is over for certain costs nothing.
	s.clock = reading{told: now.told - 995*time.Second, at: now.at - 1000*time.Second}
	left, err = s.left(t.Context(), s.cl, now.told-20*time.Second)
	if err != nil || left > 0 || s.clock.at > now.at-time.Second {
		t.Errorf("%v left, %v", left, err)
	}
	if names, _, err := x.c.Children(x.b.set.chroot + states); err != nil || strings.Contains(strings.Join(names, " "), "clock") {
		t.Errorf("left: %v, %v", names, err)
	}
}

// A hold that cannot be read is reported, and not overwritten.
func unreadableHold(t *testing.T, x *stand) {
	x.try(x.session("other"), 0, lease.Mine) // the tree is there
	for _, garbage := range []string{"", "1", `{"hold_ms":-1}`, `{"hold_ms":9223372036854775807}`, "\x00"} {
		path := x.b.statePath(holdPrefix, "m")
		if _, err := x.c.Create(path, []byte(garbage), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		s := x.session("x")
		a, err := s.Try(t.Context(), asking(time.Second))
		if !lease.IsPermanent(err) || !strings.Contains(err.Error(), "delete it") {
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
	first := acquired(t, b)
	waiter := a.run(b, "waiter")
	waiter.waits()
	owner.ends()
	e.Members[e.Leader(t)].Kill()
	waiter.owns()
	d := acquired(t, b).Sub(first)
	t.Logf("the next one took it %v after", d)
	if d < length || d > length+8*time.Second {
		t.Errorf("the next one took it %v after", d)
	}
	waiter.ends()
}
