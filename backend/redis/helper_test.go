package redis

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// soon is for what must happen soon, on a loaded host too.
const soon = 15 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests mostly wait for leases to end.
	_ = flag.Set("test.parallel", "10")
	os.Exit(m.Run())
}

// world is a private Redis with a backend on it.
type world struct {
	*testing.T
	r *backendtest.Redis
	b *Backend
}

func newWorld(t *testing.T, o backendtest.RedisOptions) *world {
	t.Helper()
	t.Parallel()
	return newLoneWorld(t, o)
}

// newLoneWorld is for tests whose figures others would spoil.
func newLoneWorld(t *testing.T, o backendtest.RedisOptions) *world {
	t.Helper()
	r := backendtest.StartRedis(t, o)
	return &world{t, r, open(t, "redis://"+r.Addr)}
}

// party is a contender whose calls must not fail.
type party struct {
	lease.Session
	t  testing.TB
	id string
	l  time.Duration
}

const testLease = 20 * time.Second

func contender(t testing.TB, b *Backend, mutex, note string) *party {
	id := lease.NewID(lease.IDUUID)
	return &party{b.Session(mutex, lease.Contender{ID: id, Info: lease.Info{Host: "h", PID: 1, Note: note}}), t, id, testLease}
}

func (w *world) contender(note string) *party { return contender(w, w.b, "m", note) }

func (p *party) request() lease.TryRequest {
	return lease.TryRequest{Lease: p.l, TTL: p.l / 2, Queue: true}
}

func (p *party) try() lease.Answer {
	p.t.Helper()
	a, err := p.Try(p.t.Context(), p.request())
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// once is a try of one that does not wait.
func (p *party) once() lease.Answer {
	p.t.Helper()
	r := p.request()
	r.Queue = false
	a, err := p.Try(p.t.Context(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *party) own() lease.Answer {
	p.t.Helper()
	return is(p.t, p.try(), lease.Mine, p.id)
}

// wait joins the queue and listens, as push waiters do.
func (p *party) wait() *bells {
	p.t.Helper()
	p.try()
	b := p.hear()
	p.try()
	return b
}

func (p *party) renew(r lease.RenewRequest) lease.Answer {
	p.t.Helper()
	r.Lease, r.TTL = p.l, p.l/2
	a, err := p.Renew(p.t.Context(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *party) release() {
	p.t.Helper()
	if err := p.Release(p.t.Context(), lease.ReleaseRequest{}); err != nil {
		p.t.Fatal(err)
	}
}

func is(t testing.TB, a lease.Answer, s lease.State, owner string) lease.Answer {
	t.Helper()
	if a.State != s || a.Owner != owner {
		t.Fatalf("the answer is %+v, want state %d of %q", a, s, owner)
	}
	return a
}

// bells are what somebody who listens hears.
type bells struct {
	t     testing.TB
	looks chan struct{}
	stop  context.CancelFunc
	ended chan error
}

func (p *party) hear() *bells {
	p.t.Helper()
	return hears(p.t, p.Listen)
}

func hears(t testing.TB, listen func(context.Context, func(lease.Ring)) error) *bells {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &bells{t, make(chan struct{}, 1000), cancel, make(chan error, 1)}
	ready := make(chan struct{})
	var once sync.Once
	go func() {
		b.ended <- listen(ctx, func(r lease.Ring) {
			if r == lease.Ready {
				once.Do(func() { close(ready) })
				return
			}
			b.looks <- struct{}{}
		})
	}()
	t.Cleanup(b.stop)
	select {
	case <-ready:
	case err := <-b.ended:
		t.Fatalf("the doorbell ended: %v", err)
	case <-time.After(soon):
		t.Fatal("the doorbell never was ready")
	}
	return b
}

// end stops listening and returns when that has an effect at the server.
func (b *bells) end() {
	b.stop()
	b.ends()
}

func (b *bells) ends() error {
	b.t.Helper()
	select {
	case err := <-b.ended:
		return err
	case <-time.After(soon):
		b.t.Fatal("the doorbell does not end")
		return nil
	}
}

func (b *bells) rings() {
	b.t.Helper()
	select {
	case <-b.looks:
	case <-time.After(soon):
		b.t.Fatal("the bell does not ring")
	}
}

// silent says that nothing rang so far.
func (b *bells) silent() {
	b.t.Helper()
	select {
	case <-b.looks:
		b.t.Error("the bell rang")
	default:
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	err := backendtest.Eventually(soon, func() error {
		if ok() {
			return nil
		}
		return errors.New(what)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// deaf waits until the server has seen that a waiter listens no more.
func (w *world) deaf(p *party) {
	w.Helper()
	eventually(w, "it still listens", func() bool {
		return fmt.Sprint(w.r.Do("PUBSUB", "NUMSUB", bell("m", p.id))) == fmt.Sprintf("[%s 0]", bell("m", p.id))
	})
}

// get looks until the mutex is its own, when it is told to.
func (p *party) get() time.Duration {
	p.t.Helper()
	began := time.Now()
	for {
		a := p.try()
		if a.State == lease.Mine {
			return time.Since(began)
		}
		wait := a.LookBy
		if a.Remaining > 0 {
			wait = min(wait, a.Remaining+time.Millisecond)
		}
		time.Sleep(wait)
	}
}

func between(t testing.TB, what string, d, low, high time.Duration) {
	t.Helper()
	if d < low || d > high {
		t.Errorf("%s: %v, want %v to %v", what, d, low, high)
	}
}

// holdFor runs work under the protocol and says its fence once it begins. Nobody
// else may be at work at the same time, and the lease must last.
func holdFor(t testing.TB, b *Backend, fences chan<- uint64, work func()) {
	cfg := lease.Config{Backend: b, Mutex: "m", Terms: terms(t, 2*time.Second), Wait: lease.Forever}
	err := lease.Do(context.Background(), cfg, func(ctx context.Context, h *lease.Holder) error {
		v, _ := atWork.LoadOrStore(b, new(atomic.Int32))
		if n := v.(*atomic.Int32); n.Add(1) != 1 {
			t.Error("two at work")
		} else {
			defer n.Add(-1)
		}
		fences <- h.Fence()
		work()
		return context.Cause(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

var atWork sync.Map // by backend

func waitForAtMost(t testing.TB, b *Backend, waiters int) {
	eventually(t, "they do not leave", func() bool {
		s, err := b.Inspect(context.Background(), "m")
		return err == nil && len(s.Waiters) <= waiters
	})
}

func waitFor(t testing.TB, b *Backend, waiters int) {
	eventually(t, "nobody waits", func() bool {
		s, err := b.Inspect(context.Background(), "m")
		return err == nil && len(s.Waiters) == waiters
	})
}

// terms are a ttl and a transition of equal length.
func terms(t testing.TB, d time.Duration) lease.Terms {
	terms, err := lease.NewTerms(d, d, lease.Unset)
	if err != nil {
		t.Error(err)
	}
	return terms
}
