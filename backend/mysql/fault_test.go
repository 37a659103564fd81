package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// holding runs an owner that works until it is told to end.
func (a *arena) holding(b lease.Backend) (end func() error) {
	a.t.Helper()
	done := make(chan struct{})
	result := make(chan error, 1)
	in := make(chan struct{})
	go func() {
		result <- a.do(a.ctx, b, "owner", func(ctx context.Context, _ *lease.Holder) error {
			close(in)
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	select {
	case <-in:
	case err := <-result:
		a.t.Fatalf("owner: %v", err)
	}
	var once sync.Once
	a.t.Cleanup(func() { once.Do(func() { close(done) }) })
	return func() error {
		once.Do(func() { close(done) })
		select {
		case err := <-result:
			return err
		case <-time.After(30 * time.Second):
			return errors.New("the owner does not end")
		}
	}
}

// waiting starts waiters one after the other and returns what waits for them.
func (a *arena) waiting(t testing.TB, watch lease.Backend, each func() lease.Backend, n int) (names []string, wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		who := fmt.Sprint(i)
		names = append(names, who)
		b := each()
		wg.Go(func() {
			if err := a.run(a.ctx, b, who, 5*time.Millisecond); err != nil {
				t.Errorf("%s: %v", who, err)
			}
			_ = b.Close()
		})
		queued(t, watch, i+1)
	}
	return names, wg.Wait
}

// Connections that are killed all the time cost an owner nothing, nobody its
// place, and nobody is told of it.
func TestKilledConnections(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	name, _ := m.Database(t)
	a := newArena(t, 2*time.Second, 2*time.Second)
	each := func() lease.Backend { return open(t, m.URL(name)) }
	owner := each()
	end := a.holding(owner)
	names, wait := a.waiting(t, owner, each, 4)
	for range 12 {
		m.KillClients(backendtest.MySQLUser)
		time.Sleep(250 * time.Millisecond)
	}
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
	for range 8 {
		m.KillClients(backendtest.MySQLUser)
		time.Sleep(250 * time.Millisecond)
	}
	wait()
	if got := a.come(); !slices.Equal(got, append([]string{"owner"}, names...)) {
		t.Errorf("the order is %v", got)
	}
	a.rising()
	for _, line := range a.trouble {
		for _, chatter := range []string{"invalid connection", "busy buffer", "bad connection", "EOF"} {
			if strings.Contains(line, chatter) {
				t.Error(line)
			}
		}
	}
}

// The server dies and comes back: the lease goes on, the queue stays.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	name, _ := m.Database(t)
	a := newArena(t, 4*time.Second, 8*time.Second)
	each := func() lease.Backend { return open(t, m.URL(name)) }
	owner := each()
	end := a.holding(owner)
	names, wait := a.waiting(t, owner, each, 3)
	watcher := each()
	rings := make(chan lease.Ring, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watching := make(chan error, 1)
	go func() { watching <- watcher.Watch(ctx, []string{mutex}, func(r lease.Ring) { rings <- r }) }()
	if r := <-rings; r != lease.Ready {
		t.Errorf("first ring %v", r)
	}
	m.Restart()
	m.Stop()
	time.Sleep(500 * time.Millisecond)
	m.Cont()
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
	wait()
	select {
	case err := <-watching: // it may end, to be begun again
		if err == nil || lease.IsPermanent(err) {
			t.Errorf("watch: %v", err)
		}
	case <-rings: // or go on
	case <-time.After(10 * time.Second):
		t.Error("a watcher hears nothing after the restart")
	}
	if got := a.come(); !slices.Equal(got, append([]string{"owner"}, names...)) {
		t.Errorf("the order is %v", got)
	}
	a.rising()
}

// A network that swallows everything: the owner ends before the next begins,
// and what it sent late takes nothing from that one.
func TestBlackhole(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	relay := backendtest.StartRelay(t, m.Addr)
	cut := open(t, strings.Replace(m.URL(name), m.Addr, relay.Addr, 1))
	next := open(t, m.URL(name))
	a := newArena(t, 600*time.Millisecond, 600*time.Millisecond)
	end := a.holding(cut)
	done := make(chan error, 1)
	entered := make(chan struct{})
	leave := make(chan struct{})
	go func() {
		done <- a.do(a.ctx, next, "next", func(ctx context.Context, _ *lease.Holder) error {
			close(entered)
			select {
			case <-leave:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	queued(t, next, 1)
	relay.Set(backendtest.Blackhole)
	select {
	case <-entered:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody took over")
	}
	relay.Set(backendtest.Pass)
	if err := end(); !errors.Is(err, lease.ErrLost) {
		t.Errorf("owner: %v", err)
	}
	time.Sleep(a.terms.Lease()) // the next one renews meanwhile
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("next: %v", err)
	}
	a.rising()
}

// Connections that are dead without a sign, while new ones work: what the
// doorbell asks over the dead one holds up no renewal.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	freeze, addr := freezer(t, m.Addr)
	b := open(t, strings.Replace(m.URL(name), m.Addr, addr, 1))
	a := newArena(t, 1200*time.Millisecond, 1800*time.Millisecond)
	end := a.holding(b)
	for i := range 4 {
		freeze()
		time.Sleep(a.terms.TTL + time.Duration(i)*100*time.Millisecond)
	}
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
	if n := a.saw(lease.EventStopping); n != 0 {
		t.Error("it was told to stop")
	}
}

// The server becomes read-only, as one does that another took over from: the
// connections to it are given up, and the new one is found at the old address.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	name, _ := m.Database(t)
	relay := backendtest.StartRelay(t, m.Addr)
	b := open(t, strings.Replace(m.URL(name), m.Addr, relay.Addr, 1))
	a := newArena(t, time.Second, 3*time.Second)
	end := a.holding(b)
	connections := func() int {
		var n int
		if err := m.Admin.QueryRow("SELECT MAX(id) FROM information_schema.processlist WHERE user = 'app'").Scan(&n); err != nil {
			return 0
		}
		return n
	}
	before := connections()
	m.Exec(t, "SET GLOBAL read_only = 1")
	until(t, "a new connection", func() error {
		if connections() == before {
			return errors.New("it sticks to the old one")
		}
		return nil
	})
	m.Exec(t, "SET GLOBAL read_only = 0")
	until(t, "renewed", func() error {
		s, err := b.Inspect(t.Context(), mutex)
		if err == nil && s.TTL <= a.terms.TTL/2 {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	if err := end(); err != nil {
		t.Errorf("owner: %v", err)
	}
}
