package redis

import (
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

func seen(a lease.Answer) lease.Seen {
	return lease.Seen{Owner: a.Owner, Fence: a.Fence, Birth: a.Birth, Lease: a.Lease}
}

// A server that comes back without its data: waiters that saw an owner keep
// everybody out for one lease of that owner's, unless it comes back itself.
func TestRestartEmpty(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	owner, waiter := w.contender("owner"), w.contender("waiter")
	owner.l, waiter.l = 3*time.Second, 3*time.Second
	mine := owner.own()
	waiter.wait()
	r := waiter.request()
	r.Seen = seen(is(t, waiter.try(), lease.Held, owner.id))
	w.r.Restart()
	a, err := waiter.Try(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	is(t, a, lease.Held, owner.id)
	between(t, "embargo", a.Remaining, 2*time.Second, 3*time.Second)
	is(t, w.contender("newcomer").once(), lease.Held, owner.id)
	if s, err := w.b.Inspect(t.Context(), "m"); err != nil || s.State != lease.Held || s.Owner != owner.id || s.Detail == "" {
		t.Errorf("%+v, %v", s, err)
	}
	is(t, owner.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Gone, "")
	if a := is(t, owner.renew(lease.RenewRequest{Fence: mine.Fence, Reassert: true}), lease.Mine, owner.id); a.Fence != mine.Fence {
		t.Errorf("%+v", a)
	}
	owner.release()
	if a := waiter.own(); a.Fence <= mine.Fence {
		t.Errorf("%+v", a)
	}
	waiter.release()

	// And if it does not come back.
	owner, waiter = w.contender("owner"), w.contender("waiter")
	owner.l, waiter.l = 1500*time.Millisecond, 1500*time.Millisecond
	mine = owner.own()
	r = waiter.request()
	r.Seen = seen(is(t, waiter.try(), lease.Held, owner.id))
	w.r.Restart()
	began := time.Now()
	for {
		a, err = waiter.Try(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if a.State == lease.Mine {
			break
		}
		time.Sleep(a.Remaining + time.Millisecond)
	}
	between(t, "embargo", time.Since(began), 1500*time.Millisecond, 3*time.Second)
	if a.Fence <= mine.Fence {
		t.Errorf("%+v", a)
	}
	is(t, owner.renew(lease.RenewRequest{Fence: mine.Fence, Reassert: true}), lease.Held, waiter.id)
	waiter.release()
	is(t, owner.renew(lease.RenewRequest{Fence: mine.Fence, Reassert: true}), lease.Gone, "")
}

// A server that keeps its data was not emptied, whatever else it forgot.
func TestRestartWithData(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{AOF: true})
	owner, waiter := w.contender("owner"), w.contender("waiter")
	mine := owner.own()
	bells := waiter.wait()
	r := waiter.request()
	r.Seen = seen(is(t, waiter.try(), lease.Held, owner.id))
	w.r.Restart()
	if err := bells.ends(); err == nil || lease.IsPermanent(err) {
		t.Error(err)
	}
	if a := is(t, owner.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Mine, owner.id); a.Fence != mine.Fence {
		t.Errorf("%+v", a)
	}
	bells = waiter.hear()
	waiter.try()
	owner.release()
	bells.rings()
	if a, err := waiter.Try(t.Context(), r); err != nil || a.State != lease.Mine || a.Fence <= mine.Fence {
		t.Errorf("%+v, %v", a, err)
	}
}

// The protocol as a whole over a server that is emptied in mid-run.
func TestJobSurvivesAnEmptiedServer(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	first, second := make(chan uint64, 1), make(chan uint64, 1)
	go holdFor(t, w.b, first, func() {
		waitFor(t, w.b, 1)
		w.r.Restart()
		time.Sleep(1500 * time.Millisecond) // more than a renewal, less than a lease
	})
	a := <-first
	done := make(chan struct{})
	go func() {
		defer close(done)
		holdFor(t, w.b, second, func() {})
	}()
	b := <-second
	<-done
	if b <= a {
		t.Error(a, b)
	}
}
