package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

// jvm is a contender as the JVM library is one.
type jvm struct {
	db              *sql.DB
	mutex, id       string
	ttl, transition int64 // ms
}

const jvmNow = "CAST(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(3)) * 1000 AS UNSIGNED)"

func (j *jvm) init(t testing.TB) {
	exec(t, j.db, strings.Replace(jvmTable, "TABLE", "TABLE IF NOT EXISTS", 1))
	_, err := j.db.Exec("INSERT INTO simba_mutex VALUES (?, 0, 0, 0, '', 0)", j.mutex)
	if err != nil && !strings.Contains(err.Error(), "1062") {
		t.Fatal(err)
	}
}

// take acquires or renews.
func (j *jvm) take() (bool, error) {
	r, err := j.db.Exec(`UPDATE simba_mutex SET acquired_at = `+jvmNow+`, ttl_at = `+jvmNow+` + ?,
		transition_at = `+jvmNow+` + ?, owner_id = ?, version = version + 1
		WHERE mutex = ? AND (transition_at < `+jvmNow+` OR (owner_id = ? AND transition_at > `+jvmNow+`))`,
		j.ttl, j.ttl+j.transition, j.id, j.mutex, j.id)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

func (j *jvm) release() error {
	_, err := j.db.Exec(`UPDATE simba_mutex SET acquired_at = 0, ttl_at = 0, transition_at = 0, owner_id = ''
		WHERE mutex = ? AND owner_id = ?`, j.mutex, j.id)
	return err
}

// Both kinds of contenders exclude each other, and each gets its turns.
func TestJVMContenders(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	exec(t, root, "ALTER DATABASE COLLATE utf8mb4_general_ci")
	a := newArena(t, time.Second, time.Second)
	const each, rounds = 3, 6
	var wg sync.WaitGroup
	for i := range each {
		j := &jvm{db: root, mutex: mutex, id: fmt.Sprintf("%d:17@jvm", i), ttl: 1000, transition: 1000}
		j.init(t)
		wg.Go(func() {
			for n := 0; n < rounds; {
				got, err := j.take()
				if err != nil {
					t.Error(err)
					return
				}
				if got {
					if n := a.inside.Add(1); n != 1 {
						t.Errorf("JVM: %d inside", n)
					}
					a.count++
					n++
					time.Sleep(10 * time.Millisecond)
					a.inside.Add(-1)
					if err := j.release(); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(15 * time.Millisecond)
			}
		})
		b := open(t, m.URL(name))
		wg.Go(func() {
			defer func() { _ = b.Close() }()
			for range rounds {
				if err := a.run(t.Context(), b, fmt.Sprint(i), 10*time.Millisecond); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if a.count != 2*each*rounds {
		t.Errorf("counted %d", a.count)
	}
	a.rising()
}

// What is shown of a JVM that owns the mutex, and what it means for others.
func TestJVMOwner(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	j := &jvm{db: root, mutex: mutex, id: "0:17@jvm", ttl: 400, transition: 400}
	j.init(t)
	inspect := func() lease.Snapshot {
		t.Helper()
		s, err := b.Inspect(t.Context(), mutex)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := inspect(); s.State != lease.Free {
		t.Errorf("with no table but the JVM's: %+v", s)
	}
	if got, err := j.take(); !got || err != nil {
		t.Fatal(got, err)
	}
	if s := inspect(); s.State != lease.Held || s.Owner != j.id || s.Fence != 0 || s.Acquired.IsZero() || s.TTL <= 0 || s.TTL >= s.Lease {
		t.Errorf("%+v", s)
	}
	if names, err := b.List(t.Context()); err != nil || len(names) != 1 || names[0] != mutex {
		t.Errorf("%v, %v", names, err)
	}
	s := b.Session(mutex, lease.Contender{ID: lease.NewID(lease.IDHost)})
	defer func() { _ = s.Close() }()
	try := func() lease.Answer {
		t.Helper()
		a, err := s.Try(t.Context(), lease.TryRequest{Lease: time.Second, TTL: 500 * time.Millisecond, Queue: true})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := try(); a.State != lease.Held || a.Owner != j.id || a.Fence != 0 || a.Lease != 800*time.Millisecond || a.Remaining > a.Lease+time.Millisecond {
		t.Errorf("%+v", a)
	}
	if err := b.Revoke(t.Context(), mutex, j.id); !errors.Is(err, lease.ErrForeign) {
		t.Errorf("revoke: %v", err)
	}
	var a lease.Answer
	until(t, "it takes over", func() error {
		if a = try(); a.State != lease.Mine {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	if got, err := j.take(); got || err != nil {
		t.Errorf("the JVM took it as well: %v, %v", got, err)
	}
	if a.Fence == 0 {
		t.Error("no fence")
	}
}

// A JVM that releases knows of no waiters. A newcomer finds them all the same,
// also one that asks to take the mutex before it looks.
func TestNewcomerAfterJVM(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	j := &jvm{db: root, mutex: mutex, id: "0:17@jvm", ttl: 9000, transition: 9000}
	j.init(t)
	for range 2 {
		if got, err := j.take(); !got || err != nil {
			t.Fatal(got, err)
		}
		waiter := b.Session(mutex, lease.Contender{ID: lease.NewID(lease.IDUUID)})
		request := lease.TryRequest{Lease: time.Second, TTL: time.Second, Queue: true}
		if a, err := waiter.Try(t.Context(), request); err != nil || a.State != lease.Held || a.Rank != 1 {
			t.Errorf("%+v, %v", a, err)
		}
		if err := j.release(); err != nil {
			t.Fatal(err)
		}
		if a, err := tryOnce(t, b, mutex); err != nil || a.State != lease.Promised {
			t.Errorf("newcomer: %+v, %v", a, err)
		}
		// A promise that a JVM overtook is void, and held against nobody.
		if got, err := j.take(); !got || err != nil {
			t.Fatal(got, err)
		}
		time.Sleep(lease.PromiseLife + 50*time.Millisecond)
		if err := j.release(); err != nil {
			t.Fatal(err)
		}
		if a, err := tryOnce(t, b, mutex); err != nil || a.State != lease.Promised {
			t.Errorf("newcomer: %+v, %v", a, err)
		}
		if a, err := waiter.Try(t.Context(), request); err != nil || a.State != lease.Mine {
			t.Errorf("%+v, %v", a, err)
		}
		if err := waiter.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
		_ = waiter.Close()
	}
}
