package mysql_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

// Either row is deleted, while the owner lives or after it has gone: the other one
// tells of the hold, or the owner does.
func TestHoldOfDeletedRows(t *testing.T) {
	t.Parallel()
	m := server(t)
	const hold = 20 * time.Second
	emptied := "UPDATE simba_mutex SET owner_id = '', acquired_at = 0, ttl_at = 0, transition_at = 0"
	for _, loss := range []string{"DELETE FROM simba_mutex", "DELETE FROM simba_lease", emptied} {
		for _, when := range []string{"before a release", "after a release", "after death", "before a renewal"} {
			t.Run(loss+" "+when, func(t *testing.T) {
				t.Parallel()
				name, root := m.Database(t)
				b := open(t, m.URL(name))
				k := newKeeper(t, b, 2*time.Second, hold)
				a := k.own()
				if when == "after a release" {
					k.release(false)
				}
				if when == "after death" {
					_ = k.Close()
					exec(t, root, "UPDATE simba_lease SET end_at = 1")
				}
				exec(t, root, loss)
				switch when {
				case "before a renewal":
					if got := k.renew(lease.RenewRequest{Fence: a.Fence}); got.State == lease.Gone {
						k.renew(lease.RenewRequest{Fence: a.Fence, Reassert: true, Hold: hold})
					}
					k.release(false)
				case "before a release":
					k.release(false)
				}
				j := &jvm{db: root, mutex: mutex, id: "0:17@jvm", ttl: 1000, transition: 1000}
				if when == "before a release" {
					// The owner itself saw to it, before anybody else looked.
					if got, err := j.take(); got || err != nil {
						t.Errorf("a JVM took it at once: %v", err)
					}
				}
				if when == "after death" && loss == "DELETE FROM simba_lease" {
					// For all that is known a JVM owns it, until then.
					if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Held || s.Owner != k.id {
						t.Errorf("%+v, %v", s, err)
					}
				} else if other := newKeeper(t, b, time.Second, 0).try(); other.State != lease.Cooldown ||
					other.Remaining < hold-10*time.Second || other.Remaining > hold+time.Second {
					t.Errorf("another: %+v", other)
				}
				j.init(t)
				if got, err := j.take(); got || err != nil {
					t.Errorf("a JVM took it: %v", err)
				}
			})
		}
	}
}

// Both rows are deleted while the owner works: it puts them back with what is left of
// the hold.
func TestHoldPutBack(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	k := newKeeper(t, b, 2*time.Second, 20*time.Second)
	a := k.own()
	exec(t, root, "DELETE FROM simba_mutex; DELETE FROM simba_lease")
	if got := k.renew(lease.RenewRequest{Fence: a.Fence, Hold: 15 * time.Second}); got.State != lease.Gone {
		t.Errorf("%+v", got)
	}
	if got := k.renew(lease.RenewRequest{Fence: a.Fence, Reassert: true, Hold: 15 * time.Second}); got.State != lease.Mine || got.Fence != a.Fence {
		t.Errorf("%+v", got)
	}
	if v := readTimes(t, root); v.hold-v.acquired != 15_000 || v.transition != v.hold || v.end-v.acquired != 2000 {
		t.Errorf("%+v", v)
	}
}

// A hold and an embargo: the longer one counts, and the end of one is not that of the other.
func TestHoldAndEmbargo(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	k := newKeeper(t, b, 100*time.Millisecond, time.Minute)
	k.own()
	_ = k.Close()
	until(t, "the lease has ended", func() error {
		if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Cooldown {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	})
	// A waiter comes that saw an owner in a store that was emptied since.
	waiter := newKeeper(t, b, time.Second, 0)
	seen := lease.Seen{Owner: "from-before", Fence: 1 << 52, Birth: "another", Lease: 20 * time.Second}
	a, err := waiter.Try(t.Context(), lease.TryRequest{Lease: time.Second, TTL: time.Second, Queue: true, Seen: seen})
	if err != nil || a.State != lease.Held || a.Owner != seen.Owner {
		t.Fatalf("%+v, %v", a, err)
	}
	if v := readTimes(t, root); v.transition != v.hold {
		t.Errorf("a JVM waits for something else: %+v", v)
	}
	from := b.Session(mutex, lease.Contender{ID: seen.Owner})
	defer func() { _ = from.Close() }()
	if err := from.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	if v := readTimes(t, root); v.transition != v.hold {
		t.Errorf("a JVM waits for something else: %+v", v)
	}
	if a := waiter.try(); a.State != lease.Cooldown || a.Remaining < 50*time.Second {
		t.Errorf("%+v", a)
	}
}

// The statements for administrators in the documents do what is said of them.
func TestDocumentedStatements(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/mysql.md")
	if err != nil {
		t.Fatal(err)
	}
	statement := func(begins string) string {
		t.Helper()
		_, text, ok := strings.Cut(string(page), "```sql\n"+begins)
		text, _, _ = strings.Cut(text, "```")
		if !ok {
			t.Fatalf("no statement begins with %s", begins)
		}
		return begins + strings.ReplaceAll(text, "nightly-job", mutex)
	}
	clean, end := statement("DELETE m, l"), statement("UPDATE simba_mutex AS m JOIN")
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	left := func(want int) {
		t.Helper()
		exec(t, root, clean)
		var n int
		if err := root.QueryRow("SELECT COUNT(*) FROM simba_mutex JOIN simba_lease USING (mutex)").Scan(&n); err != nil || n != want {
			t.Errorf("%d rows are left, not %d; %v", n, want, err)
		}
	}
	for _, released := range []bool{true, false} {
		k := newKeeper(t, b, 10*time.Second, time.Hour)
		k.own()
		if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Held {
			t.Errorf("%+v, %v", s, err)
		}
		exec(t, root, end)
		left(1)
		if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Held {
			t.Errorf("an owner's lease was touched: %+v, %v", s, err)
		}
		if released {
			k.release(false)
		} else {
			exec(t, root, "UPDATE simba_lease SET end_at = 1")
		}
		left(1)
		exec(t, root, end)
		if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Free {
			t.Errorf("%+v, %v", s, err)
		}
		if released {
			left(0)
		}
	}
	k := newKeeper(t, b, 10*time.Second, 0)
	k.own()
	k.text("", "tick", "tick")
	k.release(false)
	left(1)
}
