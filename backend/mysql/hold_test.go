package mysql_test

import (
	"context"
	"database/sql"
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

// keeper is a contender that wants the mutex kept.
type keeper struct {
	lease.Session
	t    testing.TB
	id   string
	ttl  time.Duration
	l    time.Duration
	hold time.Duration
}

func newKeeper(t testing.TB, b lease.Backend, l, hold time.Duration) *keeper {
	k := &keeper{t: t, id: lease.NewID(lease.IDUUID), ttl: l / 2, l: l, hold: hold}
	k.Session = b.Session(mutex, lease.Contender{ID: k.id})
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func (k *keeper) try() lease.Answer {
	k.t.Helper()
	a, err := k.Try(k.t.Context(), lease.TryRequest{Lease: k.l, TTL: k.ttl, Hold: k.hold, Queue: true})
	if err != nil {
		k.t.Fatal(err)
	}
	return a
}

// own takes the mutex. What the owner is told is of the lease alone.
func (k *keeper) own() lease.Answer {
	k.t.Helper()
	a := k.try()
	if a.State != lease.Mine || a.Granted != 0 || a.Remaining <= 0 || a.Remaining > k.l+time.Millisecond || a.Lease != k.l {
		k.t.Fatalf("%+v", a)
	}
	return a
}

func (k *keeper) renew(r lease.RenewRequest) lease.Answer {
	k.t.Helper()
	r.Lease, r.TTL = k.l, k.ttl
	a, err := k.Renew(k.t.Context(), r)
	if err != nil {
		k.t.Fatal(err)
	}
	if a.State == lease.Mine && (a.Granted != 0 || a.Remaining > k.l+time.Millisecond) {
		k.t.Errorf("renewed: %+v", a)
	}
	return a
}

func (k *keeper) release(tombstone bool) {
	k.t.Helper()
	if err := k.Release(k.t.Context(), lease.ReleaseRequest{Tombstone: tombstone}); err != nil {
		k.t.Fatal(err)
	}
}

// times are those in the two rows, and the server's.
type times struct{ acquired, transition, since, end, hold, now int64 }

func readTimes(t testing.TB, root *sql.DB) (v times) {
	t.Helper()
	err := root.QueryRow(`SELECT m.acquired_at, m.transition_at, l.acquired_at, l.end_at, l.hold_until,
		CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)
		FROM simba_mutex AS m JOIN simba_lease AS l USING (mutex) WHERE mutex = ?`, mutex).
		Scan(&v.acquired, &v.transition, &v.since, &v.end, &v.hold, &v.now)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// To the millisecond: a hold begins with the acquisition and is written once, and the
// row that JVMs read says the larger of it and of the lease.
func TestHoldInTheRows(t *testing.T) {
	t.Parallel()
	m := server(t)
	const l = 16 * time.Second
	for _, hold := range []time.Duration{0, 1500 * time.Millisecond, l, 90*time.Second + 1, 8784 * time.Hour} {
		t.Run(hold.String(), func(t *testing.T) {
			t.Parallel()
			name, root := m.Database(t)
			b := open(t, m.URL(name))
			k := newKeeper(t, b, l, hold)
			a := k.own()
			want := (hold + time.Millisecond - 1).Milliseconds() // a part of one is a whole one
			check := func(what string, v times, transition int64) {
				t.Helper()
				held := v.hold - v.since
				if hold == 0 {
					held = v.hold
				}
				if held != want || v.transition != transition {
					t.Errorf("%s: %+v; the hold is %d ms, want %d; transition_at is %d, want %d", what, v, held, want, v.transition, transition)
				}
			}
			v := readTimes(t, root)
			first := v
			if v.end-v.since != l.Milliseconds() {
				t.Errorf("the lease is %d ms", v.end-v.since)
			}
			check("taken", v, v.since+max(l.Milliseconds(), want))
			for what, again := range map[string]func(){
				// The answer may have been lost; the hold is not begun anew.
				"asked again": func() { k.own() },
				// Whatever it takes for the rest of its hold.
				"renewed": func() { k.renew(lease.RenewRequest{Fence: a.Fence, Hold: hold / 2}) },
			} {
				time.Sleep(2 * time.Millisecond)
				again()
				v = readTimes(t, root)
				if v.since != first.since || v.end-v.acquired != l.Milliseconds() || v.acquired == first.acquired {
					t.Errorf("%s: %+v after %+v", what, v, first)
				}
				check(what, v, max(v.end, v.hold))
			}
			k.release(false)
			v = readTimes(t, root)
			if hold == 0 {
				check("released", v, 0)
			} else {
				check("released", v, v.hold)
			}
		})
	}
}

// However an owner ends, nobody of either kind owns the mutex before its hold has ended.
func TestHoldKeepsBothKindsOut(t *testing.T) {
	t.Parallel()
	m := server(t)
	const l, hold = 600 * time.Millisecond, 1500 * time.Millisecond
	for _, end := range []string{"released", "released with a grave", "dead", "revoked and dead", "revoked and released"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			name, root := m.Database(t)
			b := open(t, m.URL(name))
			j := &jvm{db: root, mutex: mutex, id: "0:17@jvm", ttl: 1000, transition: 1000}
			k := newKeeper(t, b, l, hold)
			k.own()
			if strings.HasPrefix(end, "revoked") {
				if err := b.Revoke(t.Context(), mutex, k.id); err != nil {
					t.Error(err)
				}
			}
			released := strings.Contains(end, "released")
			if released {
				k.release(strings.HasSuffix(end, "grave"))
			}
			_ = k.Close()
			until := readTimes(t, root).hold
			// A JVM asks all the time, one of ours when it is told to, and people look.
			other := newKeeper(t, b, l, 0)
			cooled := false
			for {
				got, err := j.take()
				if err != nil {
					t.Fatal(err)
				}
				if got {
					if now := readTimes(t, root); now.acquired <= until {
						t.Errorf("a JVM took it %d ms before the end", until-now.acquired)
					}
					break
				}
				a := other.try()
				s, err := b.Inspect(t.Context(), mutex)
				if err != nil {
					t.Fatal(err)
				}
				after := readTimes(t, root)
				if a.State == lease.Mine {
					if after.since <= until {
						t.Errorf("%+v, %d ms before the end", a, until-after.since)
					}
					break // it was quicker than the JVM
				}
				if after.now > until {
					continue // it may be free now
				}
				if released || s.State == lease.Cooldown {
					cooled = true
					if s.State != lease.Cooldown || s.Owner != "" || s.Last != k.id || s.Released != released || s.Lease <= 0 || s.Lease > hold {
						t.Errorf("status: %+v", s)
					}
				} else if s.State != lease.Held || s.Lease > l {
					t.Errorf("status: %+v", s)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if !cooled {
				t.Error("nobody was told of the hold")
			}
		})
	}
}

// An owner whose lease has ended during its hold is none, and it may still put it back.
func TestHoldOutlastsTheLease(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	k := newKeeper(t, b, 500*time.Millisecond, time.Minute)
	a := k.own()
	// Whoever watches is told.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var s lease.Snapshot
	_ = b.Watch(ctx, []string{mutex}, func(lease.Ring) {
		var err error
		if s, err = b.Inspect(t.Context(), mutex); err != nil {
			t.Error(err)
		}
		if s.State == lease.Cooldown {
			cancel()
		}
	})
	if s.State != lease.Cooldown || s.Owner != "" || s.Last != k.id || s.Released {
		t.Errorf("nobody was told that the lease has ended: %+v", s)
	}
	if err := b.Revoke(t.Context(), mutex, k.id); !errors.Is(err, lease.ErrNotOwner) {
		t.Errorf("revoked: %v", err)
	}
	if got, err := k.Checkpoint(t.Context(), "", "x"); !errors.Is(err, lease.ErrNotOwner) {
		t.Errorf("checkpoint: %q, %v", got, err)
	}
	if a := k.try(); a.State != lease.Cooldown {
		t.Errorf("asked again: %+v", a)
	}
	if a := k.renew(lease.RenewRequest{Fence: a.Fence}); a.State != lease.Gone {
		t.Errorf("renewed: %+v", a)
	}
	if got := k.renew(lease.RenewRequest{Fence: a.Fence, Reassert: true, Hold: 30 * time.Second}); got.State != lease.Mine || got.Fence != a.Fence {
		t.Errorf("put back: %+v", got)
	}
	if v := readTimes(t, root); v.transition != v.hold {
		t.Errorf("a JVM waits for something else: %+v", v)
	}
	k.release(false)
	if s, err := b.Inspect(t.Context(), mutex); err != nil || s.State != lease.Cooldown || s.Lease < 50*time.Second {
		t.Errorf("the hold became shorter: %+v, %v", s, err)
	}
}

// Waiters come when the hold ends, in order, and cost little before. A reader is told.
func TestWaitersForAHold(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	name, root := m.Database(t)
	a := newArena(t, 2*time.Second, 2*time.Second)
	owner := open(t, m.URL(name))
	const hold = 10 * time.Second
	cfg := a.config(owner, "owner")
	cfg.Hold = hold
	leave, in, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- lease.Do(a.ctx, cfg, func(context.Context, *lease.Holder) error {
			close(in)
			<-leave
			return nil
		})
	}()
	<-in
	kept := readTimes(t, root)
	var wg sync.WaitGroup
	var want []string
	for i := range 10 {
		b, who := open(t, m.URL(name)), fmt.Sprint(i)
		want = append(want, who)
		wg.Go(func() {
			defer func() { _ = b.Close() }()
			if err := a.run(a.ctx, b, who, 0); err != nil {
				t.Error(err)
			}
		})
		queued(t, owner, i+1)
	}
	// It ends before its hold does: whoever is woken by that loses nothing by it.
	listening(t, m, name, len(want))
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	listening(t, m, name, len(want)-1) // the first has nobody to wait for now
	settled(t, m)
	before, from := status(t, m.Admin, "Questions"), time.Now()
	time.Sleep(2 * time.Second)
	rate := float64(status(t, m.Admin, "Questions")-before-2) / time.Since(from).Seconds()
	t.Logf("%.1f statements a second", rate)
	if rate > 10 {
		t.Errorf("%.1f statements a second", rate)
	}
	wg.Wait()
	if got := a.come(); !slices.Equal(got, want) {
		t.Errorf("the order is %v", got)
	}
	late := int64(a.fences[0]/1000) - kept.hold // a fence is the server's time in microseconds
	t.Logf("the first came %d ms after the end", late)
	if late < 0 || late > 1000 {
		t.Errorf("the first came %d ms after the end", late)
	}
}
