package mysql_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// A waiter that is frozen is served by the server like any other; it costs the
// ones behind it no more than a promise, and one that is dead no more either.
// The frozen one finds out when it thaws.
func TestFrozenAndKilledWaiters(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	a := newArena(t, 5*time.Second, 5*time.Second)
	owner := open(t, m.URL(name))
	end := a.holding(owner)
	m.Exec(t, "CREATE USER frozen IDENTIFIED BY 'ice'; GRANT SELECT, INSERT, UPDATE ON *.* TO frozen")
	t.Cleanup(func() { m.Exec(t, "DROP USER frozen") })
	frozen := waiterProcess(t, strings.Replace(m.URL(name), "app:s3cr%25t", "frozen:ice", 1))
	queued(t, owner, 1)
	killed := waiterProcess(t, m.URL(name))
	queued(t, owner, 2)
	listening(t, m, name, 2)
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b := open(t, m.URL(name))
	go func() {
		done <- a.do(a.ctx, b, "live", func(ctx context.Context, _ *lease.Holder) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	queued(t, owner, 3)
	listening(t, m, name, 3)
	if err := frozen.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "the server has missed the killed one", func() error { return countBells(m, name, 2) })
	began := time.Now()
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
	select {
	case <-entered:
	case <-time.After(20 * time.Second):
		t.Fatal("the live one is not served")
	}
	if took := time.Since(began); took > 2*lease.PromiseLife+2*time.Second {
		t.Errorf("served after %v", took)
	} else {
		t.Logf("served after %v", took)
	}
	// It was granted what it waited for and said nothing: its session is gone.
	var sessions int
	if err := m.Admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'frozen'").Scan(&sessions); err != nil || sessions != 0 {
		t.Errorf("%d sessions of the frozen one, %v", sessions, err)
	}
	if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	queued(t, b, 1)
	select {
	case line := <-frozen.lines:
		t.Errorf("the thawed one says %q while another owns the mutex", line)
	default:
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("live: %v", err)
	}
	frozen.says(t, "mine", "end <nil>")
}

// Waiters that died together cost those behind them one promise or two, not one each.
func TestManyKilledWaiters(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	a := newArena(t, 5*time.Second, 5*time.Second)
	owner := open(t, m.URL(name))
	end := a.holding(owner)
	const dead = 6
	var killed []*process
	for i := range dead {
		killed = append(killed, waiterProcess(t, m.URL(name)))
		queued(t, owner, i+1)
	}
	for _, p := range killed {
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
	}
	began := time.Now()
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
	if err := a.run(a.ctx, open(t, m.URL(name)), "next", 0); err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	t.Logf("served after %v", took)
	if took > 2*lease.PromiseLife+2*time.Second {
		t.Errorf("%d dead waiters cost %v", dead, took)
	}
	queued(t, owner, 0)
}

// Waiters that were asked to go, or killed, leave nothing for the next to wait for.
func TestDepartedWaiters(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	a := newArena(t, 3*time.Second, 3*time.Second)
	owner := open(t, m.URL(name))
	end := a.holding(owner)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 6 {
		b := open(t, m.URL(name))
		wg.Go(func() {
			defer func() { _ = b.Close() }()
			if err := a.run(ctx, b, fmt.Sprint(i), 0); err == nil {
				t.Errorf("%d got the mutex", i)
			}
		})
	}
	queued(t, owner, 6)
	cancel()
	wg.Wait()
	queued(t, owner, 0)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := a.run(t.Context(), owner, "next", 0); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the next one waited %v", took)
	}
}

// Hand-over with a queue: prompt and in order.
func TestHandOver(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	a := newArena(t, 5*time.Second, 5*time.Second)
	owner := open(t, m.URL(name))
	var mu sync.Mutex
	var gaps []time.Duration
	var left time.Time
	for range 3 {
		end := a.holding(owner)
		var wg sync.WaitGroup
		var want []string
		from := len(a.come())
		for i := range 8 {
			who := fmt.Sprint(i)
			want = append(want, who)
			b := open(t, m.URL(name))
			wg.Go(func() {
				defer func() { _ = b.Close() }()
				err := a.do(a.ctx, b, who, func(context.Context, *lease.Holder) error {
					mu.Lock()
					defer mu.Unlock()
					if !left.IsZero() {
						gaps = append(gaps, time.Since(left))
					}
					time.Sleep(5 * time.Millisecond)
					left = time.Now()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			queued(t, owner, i+1)
		}
		listening(t, m, name, 8)
		left = time.Time{}
		if err := end(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if got := a.come()[from:]; !slices.Equal(got, want) {
			t.Errorf("the order is %v", got)
		}
	}
	slices.Sort(gaps)
	median := gaps[len(gaps)/2]
	t.Logf("median %v, longest %v of %d", median, gaps[len(gaps)-1], len(gaps))
	if median > 100*time.Millisecond { // 2 to 5 ms where nothing else runs
		t.Errorf("the median hand-over took %v", median)
	}
}

// More waiters than the server has connections for.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{"--max-connections=20"}})
	name, _ := m.Database(t)
	a := newArena(t, 10*time.Second, 10*time.Second)
	owner := open(t, m.URL(name))
	end := a.holding(owner)
	connected, err := m.Admin.Conn(t.Context()) // there is none to be had soon
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connected.Close() }()
	const waiters = 35
	var wg sync.WaitGroup
	for i := range waiters {
		b := open(t, m.URL(name))
		wg.Go(func() {
			defer func() { _ = b.Close() }()
			if err := a.run(t.Context(), b, fmt.Sprint(i), time.Millisecond); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	until(t, "many were turned away", func() error {
		if n := status(t, connected, "Connection_errors_max_connections"); n < waiters {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
	wg.Wait()
	if got := len(a.come()); got != waiters+1 {
		t.Errorf("%d of %d served", got, waiters+1)
	}
	// A single look is told the truth.
	var conns []interface{ Close() error }
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	_, root := m.Database(t)
	until(t, "the limit", func() error {
		c, err := root.Conn(t.Context())
		if err == nil {
			conns = append(conns, c)
			return fmt.Errorf("%d connections so far", len(conns))
		}
		return nil
	})
	one := open(t, m.URL(name)).Session(mutex, lease.Contender{ID: lease.NewID(lease.IDUUID)})
	defer func() { _ = one.Close() }()
	if _, err := one.Try(t.Context(), lease.TryRequest{Lease: time.Second, TTL: time.Second}); err == nil ||
		lease.IsPermanent(err) || !strings.Contains(err.Error(), "Too many connections") {
		t.Errorf("%v", err)
	}
	if got, err := one.Try(t.Context(), lease.TryRequest{Lease: time.Second, TTL: time.Second, Queue: true}); err != nil || got.State != lease.Promised {
		t.Errorf("%+v, %v", got, err)
	}
}

// Many waiters cost the server little.
func TestCalmQueue(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	name, _ := m.Database(t)
	a := newArena(t, 10*time.Second, 6*time.Second)
	owner := open(t, m.URL(name))
	end := a.holding(owner)
	const waiters = 100
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range waiters {
		b := open(t, m.URL(name))
		wg.Go(func() {
			defer func() { _ = b.Close() }()
			_ = a.run(ctx, b, fmt.Sprint(i), 0)
		})
	}
	queued(t, owner, waiters)
	listening(t, m, name, waiters)
	settled(t, m)
	const measured = 8 * time.Second
	before := status(t, m.Admin, "Questions")
	connected := status(t, m.Admin, "Threads_connected")
	time.Sleep(measured)
	rate := float64(status(t, m.Admin, "Questions")-before-2) / measured.Seconds()
	t.Logf("%.1f statements a second, %d connections", rate, connected)
	if rate > 10 {
		t.Errorf("%.1f statements a second", rate)
	}
	if connected > waiters+10 {
		t.Errorf("%d connections", connected)
	}
	cancel()
	wg.Wait()
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
}
