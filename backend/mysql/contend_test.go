package mysql_test

import (
	"context"
	"fmt"
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
