package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simba-lock/simba/lease"
)

var (
	_ lease.Backend = (*Memory)(nil)
	_ lease.Session = (*session)(nil)
)

// Memory is a backend around a [Store], with a clock and with faults that a
// test switches on. It works inside a testing/synctest bubble if its clock does
// ([BubbleClock]).
type Memory struct {
	name  string
	clock lease.Clock

	mu     sync.Mutex
	store  *Store
	births int
	step   time.Duration // the store's clock, minus the given one
	faults []*fault
	calls  map[Op]int
	bells  []*bell
}

// bell is a listener or a watcher.
type bell struct {
	id      string   // of the contender that listens; empty: a watcher
	mutexes []string // of a watcher; none: all
	ring    chan struct{}
	broken  chan struct{}
}

// NewMemory is an empty backend with a birth stamp; a nil clock is lease.BootClock.
func NewMemory(name string, clock lease.Clock) *Memory {
	if clock == nil {
		clock = lease.BootClock{}
	}
	return &Memory{name: "memory:" + name, clock: clock, store: NewStore("birth-1"), births: 1, calls: make(map[Op]int)}
}

// Grant makes every owner get this lease instead of the one asked for; Forever
// for ownership without an end.
func (m *Memory) Grant(l time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store.Grant = l
}

// Empty loses all that is stored and gives the store a new birth stamp.
func (m *Memory) Empty() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.births++
	m.store.Empty(fmt.Sprintf("birth-%d", m.births))
}

// Vanish loses all that is stored for one mutex.
func (m *Memory) Vanish(mutex string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store.Vanish(mutex)
}

// Step lets the store's clock jump.
func (m *Memory) Step(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.step += by
}

// Calls is how many calls of that kind have begun.
func (m *Memory) Calls(op Op) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[op]
}

// Fingerprint changes with all that is stored.
func (m *Memory) Fingerprint() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	fmt.Fprintln(&b, m.store.birth)
	for _, n := range m.store.List() {
		fmt.Fprintf(&b, "%s %+v\n", n, *m.store.mutexes[n])
	}
	return b.String()
}

// Name is memory: and the name given.
func (m *Memory) Name() string { return m.name }

// Session is of lease.Backend, as are the ones below.
func (m *Memory) Session(mutex string, c lease.Contender) lease.Session {
	return &session{m: m, mutex: mutex, c: c}
}

// Inspect changes nothing.
func (m *Memory) Inspect(ctx context.Context, mutex string) (s lease.Snapshot, err error) {
	err = m.call(ctx, OpInspect, mutex, "", func(now time.Duration) error {
		s = m.store.Inspect(now, mutex)
		return nil
	})
	return s, err
}

// List names every mutex that was ever touched.
func (m *Memory) List(ctx context.Context) (names []string, err error) {
	err = m.call(ctx, OpList, "", "", func(time.Duration) error {
		names = m.store.List()
		return nil
	})
	return names, err
}

// Revoke rings the owner.
func (m *Memory) Revoke(ctx context.Context, mutex, owner string) error {
	return m.call(ctx, OpRevoke, mutex, owner, func(now time.Duration) error {
		return m.told(mutex, func() ([]string, error) { return m.store.Revoke(now, mutex, owner) })
	})
}

// Watch rings with every change, but not when a lease runs out.
func (m *Memory) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	return m.hear(ctx, OpWatch, "", &bell{mutexes: slices.Clone(mutexes)}, ring)
}

// Close does nothing.
func (m *Memory) Close() error { return nil }

// told runs a step and rings for whoever is to hear of it. m.mu is held.
func (m *Memory) told(mutex string, step func() ([]string, error)) error {
	before := m.store.Version(mutex)
	ids, err := step()
	changed := m.store.Version(mutex) != before
	for _, b := range m.bells {
		hears := slices.Contains(ids, b.id)
		if b.id == "" {
			hears = changed && (len(b.mutexes) == 0 || slices.Contains(b.mutexes, mutex))
		}
		if hears && m.matching(OpRing, mutex, b.id) == nil {
			select {
			case b.ring <- struct{}{}:
			default: // it has not looked since the last one
			}
		}
	}
	return err
}

// hear blocks as long as the connection of a doorbell stands.
func (m *Memory) hear(ctx context.Context, op Op, mutex string, b *bell, ring func(lease.Ring)) error {
	b.ring, b.broken = make(chan struct{}, 1), make(chan struct{})
	err := m.call(ctx, op, mutex, b.id, func(time.Duration) error {
		m.bells = append(m.bells, b)
		return nil
	})
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.bells = slices.DeleteFunc(m.bells, func(o *bell) bool { return o == b })
	}()
	if err != nil {
		return err
	}
	ring(lease.Ready)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.broken:
			return errBroken
		case <-b.ring:
			ring(lease.Look)
		}
	}
}

var errBroken = errors.New("the connection broke")

// BreakBells ends every Listen and Watch, as a lost connection does.
func (m *Memory) BreakBells() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.bells {
		close(b.broken)
	}
	m.bells = nil
}

type session struct {
	m     *Memory
	mutex string
	c     lease.Contender

	mu    sync.Mutex
	spent bool
}

func (s *session) Try(ctx context.Context, r lease.TryRequest) (a lease.Answer, err error) {
	s.mu.Lock()
	spent := s.spent
	s.mu.Unlock()
	if spent {
		return a, lease.ErrSpent
	}
	// The answer is set by the step, which may run after the caller has gone.
	var got lease.Answer
	err = s.m.call(ctx, OpTry, s.mutex, s.c.ID, func(now time.Duration) error {
		return s.m.told(s.mutex, func() (rings []string, err error) {
			got, rings, err = s.m.store.Try(now, s.mutex, s.c, r)
			return rings, err
		})
	})
	if err != nil {
		return a, err
	}
	return got, nil
}

func (s *session) Renew(ctx context.Context, r lease.RenewRequest) (a lease.Answer, err error) {
	var got lease.Answer
	err = s.m.call(ctx, OpRenew, s.mutex, s.c.ID, func(now time.Duration) error {
		return s.m.told(s.mutex, func() (rings []string, err error) {
			got, rings, err = s.m.store.Renew(now, s.mutex, s.c, r)
			return rings, err
		})
	})
	if err != nil {
		return a, err
	}
	return got, nil
}

func (s *session) Release(ctx context.Context, r lease.ReleaseRequest) error {
	s.mu.Lock()
	s.spent = true
	s.mu.Unlock()
	return s.m.call(ctx, OpRelease, s.mutex, s.c.ID, func(now time.Duration) error {
		return s.m.told(s.mutex, func() ([]string, error) {
			return s.m.store.Release(now, s.mutex, s.c.ID, r), nil
		})
	})
}

func (s *session) Checkpoint(ctx context.Context, from, to string) (text string, err error) {
	var got string // as in Try
	err = s.m.call(ctx, OpCheckpoint, s.mutex, s.c.ID, func(now time.Duration) (err error) {
		got, err = s.m.store.Checkpoint(now, s.mutex, s.c.ID, from, to)
		return err
	})
	if err != nil {
		return "", err
	}
	return got, nil
}

func (s *session) Listen(ctx context.Context, ring func(lease.Ring)) error {
	return s.m.hear(ctx, OpListen, s.mutex, &bell{id: s.c.ID}, ring)
}

func (s *session) Close() error { return nil }
