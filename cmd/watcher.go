package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/simba-lock/simba/lease"
)

const (
	// safetyLook is how long a change can stay unnoticed that rang no bell: a
	// waiter that died, a ring that got lost.
	safetyLook = 15 * time.Second
	// deafLook is the same where there are no bells at all.
	deafLook = time.Second
	// afterEnd is how long after the end of a lease it is looked at: the reading
	// that said when took some of the time.
	afterEnd = 5 * time.Millisecond
	// shortestLook keeps leases that end all the time from becoming a busy loop.
	shortestLook = 20 * time.Millisecond
	// settling is how long an owner may be nameless before that is told: some
	// backends decide first and write down the name a moment later.
	settling   = 500 * time.Millisecond
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// watcher turns readings of mutexes into events. Nothing is queued: while tell
// blocks, nothing is read, and what happened meanwhile shows as the difference
// to the next reading. So memory stays flat however slow the reader is.
type watcher struct {
	backend lease.Backend
	names   []string // none: all that the backend knows
	until   string
	limit   time.Duration // of one call
	clock   lease.Clock
	tell    func(lease.Event) error
	trouble func(error)

	seen     map[string]reading
	nameless map[string]lease.Instant // since when an owner has no name yet
	refused  map[string]string        // mutexes that cannot be read, and why
	started  bool                     // all snapshots were told
	deaf     atomic.Bool
	fails    int
}

type reading struct {
	snap lease.Snapshot
	at   lease.Instant
}

// tellError is a failure of the reader, not of the backend.
type tellError struct{ error }

func (e tellError) Unwrap() error { return e.error }

// run returns when the state asked for is reached, when its context ends, or
// with what cannot be mended.
func (w *watcher) run(ctx context.Context) error {
	rings := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.listen(ctx, rings)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		if w.started && w.reached() {
			return nil
		}
		timer := time.NewTimer(w.nextLook())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rings:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look reads everything once. It returns only errors that end the watch: those
// of the reader, permanent ones, and any before the first reading.
func (w *watcher) look(ctx context.Context) error {
	err := w.read(ctx)
	var reader tellError
	switch {
	case err == nil:
		w.fails = 0
		w.started = w.started || len(w.nameless) == 0
		return nil
	case errors.As(err, &reader):
		return reader.error
	case ctx.Err() != nil:
		return ctx.Err()
	case !w.started, lease.IsPermanent(err):
		return unavailable(err)
	}
	if w.fails == 0 {
		w.trouble(fmt.Errorf("lost the backend, trying again: %w", err))
	}
	w.fails++
	return nil
}

func (w *watcher) read(ctx context.Context) error {
	names := w.names
	if len(names) == 0 {
		listed, err := within(ctx, w.limit, w.backend.List)
		if err != nil {
			return err
		}
		names = listed
		for name := range w.seen { // one that is not listed any more may still have changed
			if !slices.Contains(listed, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		snap, err := inspect(ctx, w.backend, name, w.limit)
		if len(w.names) == 0 && lease.IsPermanent(err) {
			w.unreadable(name, err)
			continue
		}
		if err != nil {
			return err
		}
		delete(w.refused, name)
		snap.Mutex = name
		if w.unsettled(snap) {
			continue
		}
		if err := w.differs(name, reading{snap, w.clock.Now()}); err != nil {
			return tellError{err}
		}
	}
	return nil
}

// unreadable is told once, and does not hide the others: nobody asked for this mutex by name.
func (w *watcher) unreadable(name string, err error) {
	if w.refused[name] != err.Error() {
		w.refused[name] = err.Error()
		w.trouble(fmt.Errorf("%s: %w", name, err))
	}
}

// unsettled: it has a new owner whose name will be there in a moment.
func (w *watcher) unsettled(s lease.Snapshot) bool {
	if ownerOf(s) != nobodyKnows {
		delete(w.nameless, s.Mutex)
		return false
	}
	now := w.clock.Now()
	since, ok := w.nameless[s.Mutex]
	if !ok {
		since = now
		w.nameless[s.Mutex] = now
	}
	if now-since >= settling {
		delete(w.nameless, s.Mutex)
		return false
	}
	return true
}

// differs tells what a reading has of new.
func (w *watcher) differs(name string, now reading) error {
	old, known := w.seen[name]
	w.seen[name] = now
	var events []lease.Event
	switch {
	case known:
		events = diff(old.snap, now.snap, now.at-old.at)
	case w.started: // it appeared while we watched
		events = diff(lease.Snapshot{Mutex: name}, now.snap, 0)
	default:
		events = []lease.Event{snapshotEvent(now.snap)}
	}
	for _, e := range events {
		e.Time = w.clock.Wall()
		if err := w.tell(e); err != nil {
			return err
		}
	}
	return nil
}

func snapshotEvent(s lease.Snapshot) lease.Event {
	e := lease.Event{Kind: lease.EventSnapshot, Mutex: s.Mutex, State: stateName(s), Owner: ownerOf(s)}
	if e.Owner != "" {
		e.Info, e.Fence = s.Info, s.Fence
	}
	return e
}

func (w *watcher) reached() bool {
	if w.until == "" {
		return false
	}
	if len(w.nameless) > 0 {
		return false
	}
	for _, r := range w.seen {
		held := ownerOf(r.snap) != ""
		if held != (w.until == stateHeld) || !held && stateName(r.snap) != stateFree {
			return false
		}
	}
	return true
}

// nextLook is when to read again though no bell rings: when a ttl or a lease
// that was seen ends, and now and then for safety.
func (w *watcher) nextLook() time.Duration {
	if w.fails > 0 {
		return backoff(w.fails)
	}
	if len(w.nameless) > 0 {
		return shortestLook
	}
	next := safetyLook
	if w.deaf.Load() {
		next = deafLook
	}
	now := w.clock.Now()
	for _, r := range w.seen {
		if state := stateName(r.snap); state == stateFree {
			continue
		}
		for _, d := range []time.Duration{r.snap.TTL, r.snap.Lease} {
			if d > 0 && d != lease.Forever {
				next = min(next, r.at+d+afterEnd-now)
			}
		}
	}
	return max(next, shortestLook)
}

func backoff(fails int) time.Duration { return min(minBackoff<<min(fails, 10), maxBackoff) }

// listen pokes rings whenever something may have changed, and after each loss of
// the connection.
func (w *watcher) listen(ctx context.Context, rings chan<- struct{}) {
	poke := func(lease.Ring) {
		select {
		case rings <- struct{}{}:
		default:
		}
	}
	for fails := 0; ; fails++ {
		began := w.clock.Now()
		err := w.backend.Watch(ctx, w.names, poke)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, lease.ErrNoPush) {
			w.deaf.Store(true)
			poke(lease.Look)
			return
		}
		if w.clock.Now()-began > maxBackoff {
			fails = 0
		}
		poke(lease.Look) // a reading tells whether the backend is away
		timer := time.NewTimer(backoff(fails))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}
