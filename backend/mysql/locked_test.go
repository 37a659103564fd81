package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

// A row or a table that an administrator locked delays renewals, and nothing else.
func TestLockedByAdministrator(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	a := newArena(t, 1500*time.Millisecond, 3*time.Second)
	b, other := open(t, m.URL(name)), open(t, m.URL(name))
	end := a.holding(b)
	run := administrator(t, root)
	inspect := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := other.Inspect(ctx, name)
			return err
		}
	}
	run("START TRANSACTION")
	run("UPDATE simba_mutex SET version = version + 1 WHERE mutex = '" + mutex + "'")
	run("UPDATE simba_lease SET rev = rev + 1 WHERE mutex = '" + mutex + "'")
	began := time.Now()
	prompt(t, "status", time.Second, inspect(mutex))
	prompt(t, "status of another", time.Second, inspect("another"))
	prompt(t, "another mutex", 3*time.Second, func(ctx context.Context) error {
		s := other.Session("another", lease.Contender{ID: lease.NewID(lease.IDUUID)})
		defer func() { _ = s.Close() }()
		a, err := s.Try(ctx, lease.TryRequest{Lease: time.Second, TTL: time.Second})
		if err == nil && a.State != lease.Mine {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	endsWithItsContext(t, "a try", func(ctx context.Context) error {
		s := other.Session(mutex, lease.Contender{ID: lease.NewID(lease.IDUUID)})
		defer func() { _ = s.Close() }()
		_, err := s.Try(ctx, lease.TryRequest{Lease: time.Second, TTL: time.Second, Queue: true})
		return err
	})
	time.Sleep(2500*time.Millisecond - time.Since(began))
	run("ROLLBACK")
	// Renewed in the transition.
	until(t, "renewed", func() error {
		if a.saw(lease.EventRecovered) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
}

func TestTableLockedByAdministrator(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	a := newArena(t, 1500*time.Millisecond, 3*time.Second)
	b, other := open(t, m.URL(name)), open(t, m.URL(name))
	end := a.holding(b)
	run := administrator(t, root)
	run("LOCK TABLES simba_mutex WRITE, simba_lease WRITE")
	endsWithItsContext(t, "status", func(ctx context.Context) error {
		_, err := other.Inspect(ctx, mutex)
		return err
	})
	run("UNLOCK TABLES")
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
}

// administrator runs statements in one session.
func administrator(t testing.TB, root *sql.DB) (run func(text string)) {
	t.Helper()
	conn, err := root.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(text string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

func prompt(t testing.TB, what string, limit time.Duration, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Errorf("%s within %v: %v", what, limit, err)
	}
}

// endsWithItsContext: what cannot be answered is not, and keeps nobody.
func endsWithItsContext(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if f(ctx) == nil {
		t.Errorf("%s got by the lock", what)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("%s ended %v after its begin", what, took)
	}
}
