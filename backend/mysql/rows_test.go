package mysql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/mysql"
	"github.com/simba-lock/simba/lease"
)

// The row is deleted, or emptied: put back with the same fence.
func TestRowDeleted(t *testing.T) {
	t.Parallel()
	m := server(t)
	for _, loss := range []string{
		"DELETE FROM simba_mutex", "DELETE FROM simba_lease", "DELETE FROM simba_mutex; DELETE FROM simba_lease",
		"UPDATE simba_mutex SET owner_id = '', acquired_at = 0, ttl_at = 0, transition_at = 0",
		"DROP TABLE simba_lease", "DROP TABLE simba_mutex; DROP TABLE simba_lease",
	} {
		t.Run(loss, func(t *testing.T) {
			t.Parallel()
			name, root := m.Database(t)
			b, rival := open(t, m.URL(name)), open(t, m.URL(name))
			a := newArena(t, 900*time.Millisecond, 1200*time.Millisecond)
			end := a.holding(b)
			done := make(chan error, 1)
			go func() { done <- a.run(a.ctx, rival, "rival", time.Millisecond) }()
			queued(t, rival, 1)
			exec(t, root, loss)
			if strings.HasPrefix(loss, "UPDATE") || loss == "DELETE FROM simba_mutex" {
				// The other table still knows the owner, and a newcomer asks it.
				if ans, err := tryOnce(t, rival, mutex); err != nil || ans.State != lease.Held {
					t.Errorf("a newcomer: %+v, %v", ans, err)
				}
			}
			time.Sleep(a.terms.Lease() + a.terms.TTL)
			if err := end(); err != nil {
				t.Errorf("owner: %v", err)
			}
			if err := <-done; err != nil {
				t.Errorf("rival: %v", err)
			}
			if got := a.come(); len(got) != 2 {
				t.Errorf("came: %v", got)
			}
			a.rising()
		})
	}
}

// Another name in the row is a loss at once, and the row stays as it is.
func TestRowOverwritten(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	a := newArena(t, 2*time.Second, 2*time.Second)
	end := a.holding(b)
	exec(t, root, "UPDATE simba_mutex SET owner_id = 'someone-else', transition_at = transition_at + 60000, ttl_at = ttl_at + 60000")
	began := time.Now()
	until(t, "lost", func() error {
		if a.saw(lease.EventLost) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if took := time.Since(began); took > a.terms.TTL {
		t.Errorf("noticed after %v", took)
	}
	if err := end(); !errors.Is(err, lease.ErrLost) || !strings.Contains(err.Error(), "someone-else") {
		t.Errorf("owner: %v", err)
	}
	if s, err := b.Inspect(t.Context(), mutex); err != nil || s.Owner != "someone-else" || s.Fence != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A waiter that saw an owner keeps everybody out for that one's lease when both
// tables come back empty, and no fence comes twice.
func TestEmptiedStore(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b, j := open(t, m.URL(name)), &jvm{db: root, mutex: mutex, id: "0:17@jvm", ttl: 1000, transition: 1000}
	session := func() lease.Session {
		s := b.Session(mutex, lease.Contender{ID: lease.NewID(lease.IDUUID)})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	const l = 3 * time.Second
	try := func(s lease.Session, seen lease.Seen) lease.Answer {
		t.Helper()
		a, err := s.Try(t.Context(), lease.TryRequest{Lease: l, TTL: l / 2, Queue: true, Seen: seen})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	owner, waiter, newcomer := session(), session(), session()
	mine := try(owner, lease.Seen{})
	saw := try(waiter, lease.Seen{})
	if mine.State != lease.Mine || saw.Owner != mine.Owner || saw.Birth == "" {
		t.Fatalf("%+v\n%+v", mine, saw)
	}
	exec(t, root, "DELETE FROM simba_mutex; DELETE FROM simba_lease")
	// Somebody made the rows anew, and nothing else yet.
	j.init(t)
	exec(t, root, "INSERT INTO simba_lease (mutex, birth, info, waiters, spent) VALUES (?, 'another', '{}', '', '')", mutex)
	began := time.Now()
	seen := lease.Seen{Owner: saw.Owner, Fence: saw.Fence, Birth: saw.Birth, Lease: saw.Lease}
	// Also if it asks to take the mutex before it looks, as one does that was woken.
	waiter = session()
	if a := try(waiter, seen); a.State != lease.Held || a.Owner != mine.Owner {
		t.Errorf("the waiter: %+v", a)
	}
	if a := try(newcomer, lease.Seen{}); a.State != lease.Held || a.Owner != mine.Owner {
		t.Errorf("a newcomer: %+v", a)
	}
	if got, err := j.take(); got || err != nil {
		t.Errorf("a JVM: %v, %v", got, err)
	}
	if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Held || s.Owner != mine.Owner || s.Detail == "" {
		t.Errorf("%+v, %v", s, err)
	}
	var a lease.Answer
	until(t, "the waiter's turn", func() error {
		if a = try(waiter, seen); a.State != lease.Mine {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	if took := time.Since(began); took < l {
		t.Errorf("taken after %v", took)
	}
	if a.Fence <= mine.Fence {
		t.Errorf("fence %d after %d", a.Fence, mine.Fence)
	}
}

// The rows are lost after a newcomer has seen the owner, and before it was answered.
func TestEmptiedWhileJoining(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	owner := newKeeper(t, open(t, m.URL(name)), 5*time.Second, 0)
	mine := owner.own()
	var joined, lost bool
	relay := between(t, m.Addr, func(_ int64, sent []byte) []byte {
		switch {
		case !lost && strings.Contains(string(sent), "SET l.waiters = CONCAT("):
			joined = true
		case joined: // the look that follows
			joined, lost = false, true
			if _, err := root.Exec("DELETE FROM simba_mutex; DELETE FROM simba_lease"); err != nil {
				t.Error(err)
			}
		}
		return sent
	})
	waiter := newKeeper(t, open(t, strings.Replace(m.URL(name), m.Addr, relay, 1)), 5*time.Second, 0)
	if a := waiter.try(); a.State != lease.Held || a.Owner != owner.id {
		t.Errorf("the newcomer: %+v", a)
	}
	a := owner.renew(lease.RenewRequest{Fence: mine.Fence})
	if a.State == lease.Gone {
		a = owner.renew(lease.RenewRequest{Fence: mine.Fence, Reassert: true})
	}
	if a.State != lease.Mine || a.Fence != mine.Fence {
		t.Errorf("the owner: %+v", a)
	}
}

// An id that has left finds its grave, whichever session asks under it, and
// whether it looks first or not.
func TestSpentID(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	for _, owned := range []bool{true, false} {
		c := lease.Contender{ID: lease.NewID(lease.IDUUID)}
		request := lease.TryRequest{Lease: time.Second, TTL: time.Second, Queue: true}
		s := b.Session(mutex, c)
		if owned {
			if a, err := s.Try(t.Context(), request); err != nil || a.State != lease.Mine {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		if err := s.Release(t.Context(), lease.ReleaseRequest{Tombstone: !owned}); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		late := b.Session(mutex, c)
		for range 2 {
			if a, err := late.Try(t.Context(), request); !errors.Is(err, lease.ErrSpent) {
				t.Errorf("owned %v: %+v, %v", owned, a, err)
			}
		}
		if a, err := late.Renew(t.Context(), lease.RenewRequest{Lease: time.Second, TTL: time.Second, Fence: 1 << 52, Reassert: true}); err != nil || a.State != lease.Gone {
			t.Errorf("owned %v: re-asserted: %+v, %v", owned, a, err)
		}
		_ = late.Close()
	}
	if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Free || len(s.Waiters) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	// Graves do not pile up.
	exec(t, root, "UPDATE simba_lease SET spent_until = 1")
	if _, err := tryOnce(t, b, mutex); err != nil {
		t.Fatal(err)
	}
	var spent string
	if err := root.QueryRow("SELECT spent FROM simba_lease").Scan(&spent); err != nil || spent != "" {
		t.Errorf("%q, %v", spent, err)
	}
}

// A grave is dug also where nothing but a JVM's row is there yet.
func TestGraveBesideJVM(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	exec(t, root, mysql.Schema())
	b, c := open(t, m.URL(name)), lease.Contender{ID: lease.NewID(lease.IDUUID)}
	(&jvm{db: root, mutex: mutex}).init(t)
	s := b.Session(mutex, c)
	defer func() { _ = s.Close() }()
	if err := s.Release(t.Context(), lease.ReleaseRequest{Tombstone: true}); err != nil {
		t.Fatal(err)
	}
	late := b.Session(mutex, c)
	defer func() { _ = late.Close() }()
	a, err := late.Try(t.Context(), lease.TryRequest{Lease: time.Second, TTL: time.Second})
	if !errors.Is(err, lease.ErrSpent) {
		t.Errorf("it arrived late and got %+v, %v", a, err)
	}
}

// A revoked lease runs out, unless its owner is on the way to end.
func TestRevokedRunsOut(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	b := open(t, m.URL(name))
	c := lease.Contender{ID: lease.NewID(lease.IDUUID)}
	s := b.Session(mutex, c)
	defer func() { _ = s.Close() }()
	const l = 20 * time.Second
	a, err := s.Try(t.Context(), lease.TryRequest{Lease: l, TTL: l / 2})
	if err != nil || a.State != lease.Mine {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := b.Revoke(t.Context(), mutex, c.ID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	r := lease.RenewRequest{Lease: l, TTL: l / 2, Fence: a.Fence}
	if a, err := s.Renew(t.Context(), r); err != nil || !a.Revoked || a.Remaining > l-100*time.Millisecond {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := s.Try(t.Context(), lease.TryRequest{Lease: l, TTL: l / 2}); err != nil || !a.Revoked || a.Remaining > l-100*time.Millisecond {
		t.Errorf("%+v, %v", a, err)
	}
	r.Dying = true
	if a, err := s.Renew(t.Context(), r); err != nil || !a.Revoked || a.Remaining < l-100*time.Millisecond {
		t.Errorf("dying: %+v, %v", a, err)
	}
}
