package zookeeper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

// patience is for what must happen soon, on a loaded host too.
const patience = 20 * time.Second

func terms(t *testing.T, ttl, transition time.Duration) lease.Terms {
	t.Helper()
	x, err := lease.NewTerms(ttl, transition, lease.Unset)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// arena is where jobs of one mutex run, and must do so one at a time.
type arena struct {
	t      *testing.T
	mutex  string
	terms  lease.Terms
	slow   time.Duration // how long work goes on that was told to stop
	hold   time.Duration
	inside atomic.Int32
}

// job is one run of the protocol.
type job struct {
	t       *testing.T
	name    string
	started chan struct{}
	hears   chan struct{} // its doorbell is there
	finish  chan struct{}
	ended   chan struct{} // the work
	done    chan struct{} // all of it
	err     error

	mu     sync.Mutex
	holder *lease.Holder
	began  lease.Instant // the work
	over   lease.Instant
	cause  error // why the work was told to stop
	events []lease.Event
}

// run contends until the test ends.
func (a *arena) run(b lease.Backend, name string) *job {
	j := &job{
		t: a.t, name: name,
		started: make(chan struct{}), hears: make(chan struct{}), finish: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	cfg := lease.Config{
		Backend: listening{b, sync.OnceFunc(func() { close(j.hears) })},
		Mutex:   a.mutex, Terms: a.terms, Wait: lease.Forever, Hold: a.hold, Info: lease.Info{Note: name},
		ConnectTimeout: patience,
		Observe: func(e lease.Event) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.events = append(j.events, e)
		},
	}
	go func() {
		defer close(j.done)
		j.err = lease.Do(ctx, cfg, func(ctx context.Context, h *lease.Holder) error { return a.work(ctx, h, j) })
	}()
	a.t.Cleanup(func() {
		cancel()
		<-j.done
		if a.t.Failed() {
			j.log()
		}
	})
	return j
}

// listening tells when a doorbell is there: what happens to the contender from then on,
// its owner is told at once.
type listening struct {
	lease.Backend
	ready func()
}

func (l listening) Session(mutex string, c lease.Contender) lease.Session {
	return listener{l.Backend.Session(mutex, c), l.ready}
}

type listener struct {
	lease.Session
	ready func()
}

func (l listener) Listen(ctx context.Context, ring func(lease.Ring)) error {
	return l.Session.Listen(ctx, func(r lease.Ring) {
		ring(r)
		l.ready()
	})
}

func (j *job) log() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		j.t.Logf("%s: %s %s %s->%s %v %v", j.name, e.Time.Format("05.000"), e.Kind, e.Before, e.State, e.Err, e.After)
	}
}

func (a *arena) work(ctx context.Context, h *lease.Holder, j *job) error {
	if n := a.inside.Add(1); n != 1 {
		a.t.Errorf("%s: %d inside", j.name, n)
	}
	j.mu.Lock()
	j.holder, j.began = h, lease.BootClock{}.Now()
	j.mu.Unlock()
	close(j.started)
	select {
	case <-ctx.Done():
		time.Sleep(a.slow)
	case <-j.finish:
	}
	j.mu.Lock()
	j.over, j.cause = lease.BootClock{}.Now(), context.Cause(ctx)
	j.mu.Unlock()
	a.inside.Add(-1)
	close(j.ended)
	return nil
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// owns waits until the job runs.
func (j *job) owns() *lease.Holder {
	j.t.Helper()
	select {
	case <-j.started:
	case <-j.done:
		j.t.Fatalf("%s: %v", j.name, j.err)
	case <-time.After(patience):
		j.t.Fatalf("%s does not get the mutex within %v", j.name, patience)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.holder
}

// waits until it has told that it waits, or that it need not any more.
func (j *job) waits() {
	j.t.Helper()
	eventually(j.t, j.name+" waits", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.events) > 0
	})
}

// ends lets it end, which must go well.
func (j *job) ends() {
	j.t.Helper()
	j.owns()
	close(j.finish)
	await(j.t, j.name+" ends", j.done)
	if j.err != nil {
		j.t.Errorf("%s: %v", j.name, j.err)
	}
}

// lost waits until its work was stopped because ownership was lost.
func (j *job) lost() {
	j.t.Helper()
	await(j.t, j.name+" loses the mutex", j.done)
	if !errors.Is(j.err, lease.ErrLost) {
		j.t.Errorf("%s: %v", j.name, j.err)
	}
}

// keeps looks for a while whether it still runs.
func (j *job) keeps(while time.Duration) {
	j.t.Helper()
	select {
	case <-j.ended:
		j.t.Fatalf("%s was stopped: %v", j.name, j.cause)
	case <-time.After(while):
	}
}

func (j *job) times() (began, over lease.Instant) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.began, j.over
}

// after checks that this one began when the lease of the one before had ended
// as far as that one knew: a lease believed too long would show here, although
// the work stops well before its end.
func (j *job) after(before *job) {
	j.t.Helper()
	_, over := before.times()
	began, _ := j.times()
	end := before.holder.Deadlines().End
	j.t.Logf("%s: began %v after the end of the lease, %v after the end of the work", j.name, began-end, began-over)
	if began < end {
		j.t.Errorf("%s began %v before the lease of %s had ended", j.name, end-began, before.name)
	}
}

func (j *job) event(kind lease.EventKind) (lease.Event, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if e.Kind == kind {
			return e, true
		}
	}
	return lease.Event{}, false
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}
