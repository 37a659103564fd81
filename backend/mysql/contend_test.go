package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

const mutex = "team/job"

func terms(t testing.TB, ttl, transition time.Duration) lease.Terms {
	t.Helper()
	tm, err := lease.NewTerms(ttl, transition, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return tm
}

// arena checks that no two are inside, and notes who came in which order.
type arena struct {
	t      testing.TB
	ctx    context.Context // longer than any test needs
	terms  lease.Terms
	inside atomic.Int32
	count  int // guarded by the mutex under test, and by nothing else

	mu      sync.Mutex
	order   []string
	fences  []uint64
	trouble []string
	events  map[lease.EventKind]int
}

func newArena(t testing.TB, ttl, transition time.Duration) *arena {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return &arena{t: t, ctx: ctx, terms: terms(t, ttl, transition), events: make(map[lease.EventKind]int)}
}

func (a *arena) saw(k lease.EventKind) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.events[k]
}

func (a *arena) come() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.order...)
}

// run contends once and works for a while.
func (a *arena) run(ctx context.Context, b lease.Backend, who string, work time.Duration) error {
	return a.do(ctx, b, who, func(ctx context.Context, _ *lease.Holder) error {
		timer := time.NewTimer(work)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

func (a *arena) do(ctx context.Context, b lease.Backend, who string, work lease.Work) error {
	return lease.Do(ctx, a.config(b, who), func(ctx context.Context, h *lease.Holder) error {
		if n := a.inside.Add(1); n != 1 {
			a.t.Errorf("%s: %d inside", who, n)
		}
		a.count++
		a.mu.Lock()
		a.order = append(a.order, who)
		a.fences = append(a.fences, h.Fence())
		a.mu.Unlock()
		defer a.inside.Add(-1)
		return work(ctx, h)
	})
}

func (a *arena) config(b lease.Backend, who string) lease.Config {
	return lease.Config{
		Backend: b, Mutex: mutex, Terms: a.terms, Wait: lease.Forever, Info: lease.Info{Note: who},
		Observe: func(e lease.Event) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.events[e.Kind]++
			if e.Kind == lease.EventTrouble {
				a.trouble = append(a.trouble, fmt.Sprintf("%s: %v", who, e.Err))
			}
		},
	}
}

// queued waits until so many stand in the queue.
func queued(t testing.TB, b lease.Backend, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d in the queue", n), func() error {
		s, err := b.Inspect(t.Context(), mutex)
		if err == nil && len(s.Waiters) != n {
			err = fmt.Errorf("%d are: %+v", len(s.Waiters), s)
		}
		return err
	})
}

func until(t testing.TB, what string, f func() error) {
	t.Helper()
	if err := backendtest.Eventually(20*time.Second, f); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (a *arena) rising() {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 1; i < len(a.fences); i++ {
		if a.fences[i] <= a.fences[i-1] {
			a.t.Errorf("fence %d after %d", a.fences[i], a.fences[i-1])
		}
	}
}

// Many at once, each with connections of its own, where there is no table yet.
func TestStampede(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	a := newArena(t, 3*time.Second, 2*time.Second)
	const contenders = 30
	var wg sync.WaitGroup
	for i := range contenders {
		b := open(t, m.URL(name))
		wg.Go(func() {
			defer func() { _ = b.Close() }()
			if err := a.run(t.Context(), b, fmt.Sprint(i), time.Millisecond); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if a.count != contenders {
		t.Errorf("counted %d, not %d", a.count, contenders)
	}
	a.rising()
	for _, line := range a.trouble {
		t.Errorf("trouble was told: %s", line)
	}
}

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
