package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

// Harness is what a driver tells the suite about itself.
type Harness struct {
	// Open returns a backend on a store of its own, empty, which the suite closes.
	Open func(t *testing.T) lease.Backend
	// Fingerprint changes with everything that is stored.
	Fingerprint func(t *testing.T, b lease.Backend) string
	// Vanish loses what is stored about the present owner; nil if nobody can.
	Vanish func(t *testing.T, b lease.Backend, mutex string)
	// NoReassert: a vanished record is a loss.
	NoReassert bool
	// Endless: ownership has no end but the owner's.
	Endless bool
	// Terms for the tests in which time passes; short ones by default.
	Terms lease.Terms
}

// patience is for what must happen soon, on a loaded host too.
const patience = 15 * time.Second

// Suite is what every driver passes.
func Suite(t *testing.T, h Harness) {
	t.Helper()
	if h.Terms.TTL == 0 {
		terms, err := lease.NewTerms(500*time.Millisecond, 500*time.Millisecond, lease.Unset)
		if err != nil {
			t.Fatal(err)
		}
		h.Terms = terms
	}
	for _, c := range []struct {
		name string
		run  func(x *bench)
	}{
		{"StartAndRelease", startAndRelease},
		{"StopAndStartAgain", stopAndStartAgain},
		{"HoldsThroughThreeLeases", holdsThroughThreeLeases},
		{"OneInsideOfTen", oneInsideOfTen},
		{"OnlyTheOwner", onlyTheOwner},
		{"SameLeaseAgain", sameLeaseAgain},
		{"CancelledCalls", cancelledCalls},
		{"FenceRises", fenceRises},
		{"FirstComeFirstServed", firstComeFirstServed},
		{"NewcomersDoNotOvertake", newcomersDoNotOvertake},
		{"StartOver", startOver},
		{"DeadAndDepartedInFront", deadAndDepartedInFront},
		{"NamesThatDifferInOneByte", namesThatDifferInOneByte},
		{"InspectionWritesNothing", inspectionWritesNothing},
		{"Revoke", revoke},
		{"SpentIDs", spentIDs},
		{"WatchRings", watchRings},
		{"VanishedRecord", vanishedRecord},
		{"DeadOwner", deadOwner},
		{"KeepsHold", keepsHold},
		{"HoldUnused", holdsNothing},
		{"Checkpoint", checkpoint},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := h.Open(t)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
			c.run(&bench{T: t, h: h, b: b, mutex: "suite/" + strings.ToLower(c.name)})
		})
	}
}

// bench is one test's store and mutex.
type bench struct {
	*testing.T
	h     Harness
	b     lease.Backend
	mutex string
}

// contender is a session that is closed when the test ends.
func (x *bench) contender(note string) *party {
	return x.contenderFor(x.mutex, note)
}

func (x *bench) contenderFor(mutex, note string) *party {
	c := lease.Contender{ID: lease.NewID(lease.IDHost), Info: lease.Info{Host: "host-" + note, PID: 7, Note: note}}
	p := &party{Session: x.b.Session(mutex, c), x: x, id: c.ID, info: c.Info}
	x.Cleanup(func() { _ = p.Close() })
	return p
}

// party is a contender in a test.
type party struct {
	lease.Session
	x    *bench
	id   string
	info lease.Info
}

func (p *party) request(queue bool) lease.TryRequest {
	return lease.TryRequest{Lease: p.x.h.Terms.Lease(), TTL: p.x.h.Terms.TTL, Queue: queue}
}

func (p *party) try(queue bool) lease.Answer {
	p.x.Helper()
	a, err := p.Try(p.x.Context(), p.request(queue))
	if err != nil {
		p.x.Fatalf("%s: try: %v", p.info.Note, err)
	}
	return a
}

// own takes a mutex that is free.
func (p *party) own() lease.Answer {
	p.x.Helper()
	a := p.try(true)
	p.is(a, lease.Mine)
	return a
}

func (p *party) is(a lease.Answer, want lease.State) {
	p.x.Helper()
	if a.State != want {
		p.x.Fatalf("%s: the answer is %+v, want state %d", p.info.Note, a, want)
	}
}

func (p *party) renew(fence uint64, r lease.RenewRequest) lease.Answer {
	p.x.Helper()
	r.Lease, r.TTL, r.Fence = p.x.h.Terms.Lease(), p.x.h.Terms.TTL, fence
	a, err := p.Renew(p.x.Context(), r)
	if err != nil {
		p.x.Fatalf("%s: renew: %v", p.info.Note, err)
	}
	return a
}

func (p *party) release() {
	p.x.Helper()
	if err := p.Release(p.x.Context(), lease.ReleaseRequest{}); err != nil {
		p.x.Fatalf("%s: release: %v", p.info.Note, err)
	}
}

// hear listens until the test ends. Each ring leaves one token.
func (p *party) hear() <-chan struct{} {
	return listen(p.x.T, p.Listen)
}

func listen(t *testing.T, on func(context.Context, func(lease.Ring)) error) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	rings := make(chan struct{}, 1)
	ready := make(chan struct{})
	var once sync.Once
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := on(ctx, func(r lease.Ring) {
			once.Do(func() { close(ready) })
			if r == lease.Look {
				select {
				case rings <- struct{}{}:
				default:
				}
			}
		})
		if errors.Is(err, lease.ErrNoPush) {
			once.Do(func() { close(ready) })
		}
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("a doorbell does not end with its context")
		}
	})
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the doorbell never was ready")
	}
	return rings
}

// get contends until the mutex is its own: it looks when the bell rings, and by
// itself as a waiter has to that was told nothing.
func (p *party) get(ctx context.Context, rings <-chan struct{}) (lease.Answer, error) {
	for {
		a, err := p.Try(ctx, p.request(true))
		if err != nil || a.State == lease.Mine {
			return a, err
		}
		look := time.Duration(max(a.Rank, 1)) * time.Second
		for _, d := range []time.Duration{a.Remaining, a.LookBy} {
			if d > 0 {
				look = min(look, d+time.Millisecond)
			}
		}
		timer := time.NewTimer(look)
		select {
		case <-rings:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (x *bench) inspect() lease.Snapshot {
	x.Helper()
	s, err := x.b.Inspect(x.Context(), x.mutex)
	if err != nil {
		x.Fatalf("inspect: %v", err)
	}
	return s
}

// eventually polls for a condition.
func (x *bench) eventually(what string, ok func() bool) {
	x.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			x.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (x *bench) config(info lease.Info) lease.Config {
	return lease.Config{Backend: x.b, Mutex: x.mutex, Terms: x.h.Terms, Wait: lease.Forever, Info: info}
}

// holdsThrough has the protocol hold a mutex for a while, and tells whether
// another could get it meanwhile.
func holdsThrough(ctx context.Context, cfg lease.Config, while time.Duration) error {
	rival := cfg.Backend.Session(cfg.Mutex, lease.Contender{ID: lease.NewID(lease.IDUUID)})
	defer func() { _ = rival.Close() }()
	return lease.Do(ctx, cfg, func(ctx context.Context, h *lease.Holder) error {
		for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			a, err := rival.Try(ctx, lease.TryRequest{Lease: cfg.Terms.Lease(), TTL: cfg.Terms.TTL})
			if err != nil && ctx.Err() == nil {
				return err
			}
			if a.State == lease.Mine {
				_ = rival.Release(context.WithoutCancel(ctx), lease.ReleaseRequest{})
				return errors.New("another got the mutex while it was held")
			}
			if err == nil && a.Owner != h.ID() {
				return fmt.Errorf("the mutex is said to be %q's, not %q's", a.Owner, h.ID())
			}
		}
		return nil
	})
}

func holdsThroughThreeLeases(x *bench) {
	if err := holdsThrough(x.Context(), x.config(lease.Info{}), 3*x.h.Terms.Lease()+x.h.Terms.TTL); err != nil {
		x.Fatal(err)
	}
	if s := x.inspect(); s.State != lease.Free {
		x.Fatalf("afterwards: %+v", s)
	}
}

func oneInsideOfTen(x *bench) {
	const contenders, rounds = 10, 3
	var inside atomic.Int32
	var mu sync.Mutex
	fences := []uint64{}
	var wg sync.WaitGroup
	for range contenders {
		wg.Go(func() {
			for range rounds {
				err := lease.Do(x.Context(), x.config(lease.Info{}), func(ctx context.Context, h *lease.Holder) error {
					if n := inside.Add(1); n != 1 {
						x.Errorf("%d inside", n)
					}
					mu.Lock()
					fences = append(fences, h.Fence())
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					if n := inside.Add(-1); n != 0 {
						x.Errorf("%d left inside", n)
					}
					return nil
				})
				if err != nil {
					x.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(fences) != contenders*rounds || inside.Load() != 0 {
		x.Errorf("%d times inside, %d still are", len(fences), inside.Load())
	}
	for i := 1; i < len(fences); i++ {
		if fences[i] <= fences[i-1] {
			x.Errorf("fence %d after %d", fences[i], fences[i-1])
		}
	}
	if s := x.inspect(); s.State != lease.Free || len(s.Waiters) != 0 {
		x.Errorf("afterwards: %+v", s)
	}
}
