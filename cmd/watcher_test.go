package cmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// watching runs a watcher over an in-memory backend in the bubble's time.
type watching struct {
	t      *testing.T
	store  *backendtest.Memory
	stop   context.CancelFunc
	mu     sync.Mutex
	events []string
	blames []string
	gate   chan struct{} // if not nil, each event waits for it
	result chan error
}

func watch(t *testing.T, store *backendtest.Memory, gate chan struct{}, until string, names ...string) *watching {
	ctx, cancel := context.WithCancel(t.Context())
	s := &watching{t: t, store: store, stop: cancel, gate: gate, result: make(chan error, 1)}
	w := &watcher{
		backend: store, names: names, until: until, limit: 3 * time.Second,
		clock: backendtest.BubbleClock{},
		seen:  map[string]reading{}, nameless: map[string]lease.Instant{}, refused: map[string]string{},
		tell: func(e lease.Event) error {
			if gate != nil {
				<-gate
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			text := e.Mutex + " " + string(e.Kind)
			if e.Kind == lease.EventSnapshot {
				text += " " + e.State
			}
			s.events = append(s.events, strings.TrimSpace(text+" "+e.Owner))
			return nil
		},
		trouble: func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.blames = append(s.blames, err.Error())
		},
	}
	go func() { s.result <- w.run(ctx) }()
	t.Cleanup(cancel)
	synctest.Wait()
	return s
}

// told takes the events since the last call.
func (s *watching) told() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := strings.Join(s.events, ", ")
	s.events = nil
	return got
}

func (s *watching) want(what string) {
	s.t.Helper()
	if got := s.told(); got != what {
		s.t.Errorf("told %q, want %q", got, what)
	}
}

func own(t *testing.T, store *backendtest.Memory, mutex, id string, l time.Duration) lease.Session {
	s := store.Session(mutex, lease.Contender{ID: id})
	if _, err := s.Try(t.Context(), lease.TryRequest{Lease: l, TTL: l / 2, Queue: true}); err != nil {
		t.Fatal(err)
	}
	return s
}

func release(t *testing.T, s lease.Session) {
	if err := s.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
}

func bubble(t *testing.T, f func(t *testing.T, store *backendtest.Memory)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, backendtest.NewMemory("watch", backendtest.BubbleClock{}))
	})
}

func TestWatchTellsSnapshotThenChanges(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		a := own(t, store, "m", "A", time.Minute)
		w := watch(t, store, nil, "", "m", "n")
		w.want("m snapshot held A, n snapshot free")
		b := own(t, store, "m", "B", time.Minute)
		w.want("m waiting B")
		release(t, a)
		w.want("m released A")
		if _, err := b.Try(t.Context(), lease.TryRequest{Lease: time.Minute, TTL: 30 * time.Second}); err != nil {
			t.Fatal(err)
		}
		w.want("m acquired B")
		release(t, b)
		w.want("m released B")
		time.Sleep(time.Hour)
		w.want("")
	})
}

func TestWatchSeesTheEndOfALease(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		own(t, store, "m", "A", 20*time.Second)
		w := watch(t, store, nil, "", "m")
		w.want("m snapshot held A")
		time.Sleep(10*time.Second + 2*afterEnd)
		w.want("m transition A")
		time.Sleep(10 * time.Second)
		w.want("m expired A")
	})
}

func TestWatchAllFindsNewMutexes(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		release(t, own(t, store, "old", "A", time.Minute))
		w := watch(t, store, nil, "")
		w.told()
		own(t, store, "new", "B", time.Minute)
		w.want("new acquired B")
	})
}

func TestWatchReadsAgainAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		a := own(t, store, "m", "A", time.Hour)
		w := watch(t, store, nil, "", "m")
		w.want("m snapshot held A")
		back := []func(){
			store.Inject(backendtest.Fault{Op: backendtest.OpInspect, Do: backendtest.Fail, Err: errors.New("refused")}),
			store.Inject(backendtest.Fault{Op: backendtest.OpRing}),
		}
		release(t, a)
		time.Sleep(time.Minute)
		w.want("")
		if calls := store.Calls(backendtest.OpInspect); calls > 40 {
			t.Errorf("%d attempts in a minute", calls)
		}
		for _, f := range back {
			f()
		}
		time.Sleep(maxBackoff)
		w.want("m released A")
		if !slices.Equal(w.blames, []string{"lost the backend, trying again: refused"}) {
			t.Errorf("told trouble %q, want it once", w.blames)
		}
	})
}

func TestWatchGoesOnBesideOneThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		own(t, store, "bad", "A", time.Hour)
		b := own(t, store, "good", "B", time.Hour)
		refused := lease.Permanent(errors.New("no right to read it"))
		store.Inject(backendtest.Fault{Op: backendtest.OpInspect, Mutex: "bad", Do: backendtest.Fail, Err: refused})
		w := watch(t, store, nil, "")
		w.want("good snapshot held B")
		release(t, b)
		w.want("good released B")
		if !slices.Equal(w.blames, []string{"bad: no right to read it"}) {
			t.Errorf("told trouble %q", w.blames)
		}
	})
}

func TestWatchWithoutFirstContactIsUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		store.Inject(backendtest.Fault{Op: backendtest.OpInspect, Do: backendtest.Hang})
		w := watch(t, store, nil, "", "m")
		if err := <-w.result; statusOf(err) != exitUnavailable {
			t.Errorf("ended with %v", err)
		}
		w.want("")
	})
}

func TestWatchEndsAtAPermanentError(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		w := watch(t, store, nil, "", "m")
		store.Inject(backendtest.Fault{
			Op: backendtest.OpInspect, Do: backendtest.Fail, Err: lease.Permanent(errors.New("denied")),
		})
		if err := <-w.result; statusOf(err) != exitUnavailable {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestWatchUntil(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		a := own(t, store, "m", "A", time.Hour)
		if err := <-watch(t, store, nil, stateHeld, "m").result; err != nil {
			t.Error(err)
		}
		w := watch(t, store, nil, stateFree, "m")
		release(t, a)
		if err := <-w.result; err != nil {
			t.Error(err)
		}
		w.want("m snapshot held A, m released A")
	})
}

// A slow reader gets what is true when it reads, not what was true all along.
func TestWatchDoesNotQueue(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		gate := make(chan struct{})
		w := watch(t, store, gate, "", "m")
		for range 1000 {
			release(t, own(t, store, "m", lease.NewID(lease.IDUUID), time.Minute))
		}
		last := own(t, store, "m", "last", time.Minute)
		defer release(t, last)
		calls := store.Calls(backendtest.OpInspect)
		gate <- struct{}{}
		gate <- struct{}{}
		w.want("m snapshot free, m acquired last")
		if more := store.Calls(backendtest.OpInspect) - calls; more > 3 {
			t.Errorf("%d readings for one reader", more)
		}
	})
}

func TestWatchEndsWithItsReader(t *testing.T) {
	bubble(t, func(t *testing.T, store *backendtest.Memory) {
		w := &watcher{
			backend: store, names: []string{"m"}, limit: time.Second, clock: backendtest.BubbleClock{},
			seen: map[string]reading{}, nameless: map[string]lease.Instant{}, refused: map[string]string{}, tell: func(lease.Event) error { return syscall.EPIPE },
		}
		if err := w.run(t.Context()); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("ended with %v", err)
		}
	})
}

// A backend that writes down an owner's name after the decision must not show
// owners without a name in between.
func TestWatchWaitsForTheName(t *testing.T) {
	w := &watcher{clock: backendtest.BubbleClock{}, nameless: map[string]lease.Instant{}}
	synctest.Test(t, func(t *testing.T) {
		nameless := lease.Snapshot{Mutex: "m", State: lease.Held, TTL: lease.Forever, Lease: lease.Forever}
		if !w.unsettled(nameless) || w.nextLook() != shortestLook {
			t.Error("a nameless owner is told at once")
		}
		time.Sleep(settling)
		if w.unsettled(nameless) {
			t.Error("an owner that stays nameless is never told")
		}
		w.unsettled(nameless)
		if w.unsettled(lease.Snapshot{Mutex: "m"}) || len(w.nameless) > 0 {
			t.Error("what has passed is remembered")
		}
	})
}
