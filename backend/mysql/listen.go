package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-lock/simba/lease"
)

const (
	// A waiter that was frozen in mid-wait is served like any other, and then
	// says nothing. Its session ends after so long, and with it the lock for
	// which the next one waits.
	waiterIdle = 1 // seconds, the shortest there is
	pingEvery  = 300 * time.Millisecond
	ownerIdle  = 300
	// armFor bounds one wait for a lock. Only a server that lost sight of a
	// client that is gone lets it come to that.
	armFor = 300 // seconds
	// A waiter in front of which nobody can be waited for (a JVM owns the mutex,
	// the owner's connection broke) looks by itself.
	blindLook = 500 * time.Millisecond
	// The first waiter looks so often whether a hold goes on: one that somebody ended by
	// hand costs it no more.
	holdLook = 5 * time.Second
	// An owner looks whether it was told to stop, more often the shorter its lease.
	ownerLook    = 2 * time.Second
	ownerLooks   = 4 // in a lease
	minOwnerLook = 100 * time.Millisecond
	// What the doorbell asks is answered soon, or its connection is dead.
	askWithin   = 2 * time.Second
	claimWithin = 5 * time.Second
	// A ring is followed by a Try, for which the connection is left alone.
	lookWithin = time.Second
	// What a new owner has to ask about itself may wait until its job runs.
	settleFor = 100 * time.Millisecond
)

var (
	errBell = errors.New("the connection of the doorbell broke")
	errOwn  = errors.New("the server still holds the lock of an earlier connection")
)

// Listen is [lease.Session.Listen].
func (s *session) Listen(ctx context.Context, ring func(lease.Ring)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.done, cancel)()
	var l *line
	err := s.use(ctx, func(use *line) error {
		l = use
		ctx, done := s.asking(ctx, claimWithin)
		defer done()
		if _, err := s.b.tables(ctx, l); err != nil {
			return err
		}
		switch {
		case !s.b.deaf.Load():
			return s.hard(s.claim(ctx, l, 1))
		case !s.owner:
			return lease.ErrNoPush
		}
		return nil // to look whether it was told to stop takes no locks
	})
	if isCrowded(err) {
		// It would only stand in the way of those who come to an end.
		_ = s.on(ctx, nil, func() { s.polls = true })
		return lease.ErrNoPush
	}
	if err != nil {
		return err
	}
	_ = s.on(ctx, nil, func() { s.alone = time.Time{} })
	b := &bell{s: s, l: l, ring: ring}
	if err := b.rang(ctx, lease.Ready); err != nil {
		return err
	}
	for {
		if err := b.once(ctx); err != nil {
			return sorted(ctx, err)
		}
	}
}

// hard: a server that refuses a lock in so many words has no doorbells, and
// would refuse the next one too.
func (s *session) hard(err error) error {
	switch n := number(err); {
	case n == 0, deposed[n], crowdedNumbers[n], passing[n]:
		return err
	}
	s.b.deaf.Store(true)
	return lease.ErrNoPush
}

// claim takes the contender's own lock. An earlier connection of ours that the
// server has not missed yet is in the way; it is ended.
func (s *session) claim(ctx context.Context, l *line, wait int) error {
	if l.own {
		return nil
	}
	for try := 0; ; try++ {
		var got *int
		err := l.one(ctx, "SELECT CONNECTION_ID(), GET_LOCK(?, ?)", []any{s.lock, wait}, &l.id, &got)
		if err != nil {
			return err
		}
		if got != nil && *got == 1 {
			l.own = true
			return nil
		}
		if wait == 0 || try > 0 {
			return errOwn
		}
		var id *uint64
		if err := l.one(ctx, "SELECT IS_USED_LOCK(?)", []any{s.lock}, &id); err != nil {
			return err
		}
		if id != nil {
			_, _ = l.write(ctx, fmt.Sprintf("KILL CONNECTION %d", *id))
		}
	}
}

func killQuery(id uint64) string { return fmt.Sprintf("KILL QUERY %d", id) }

// on does something while nobody else uses the session. With a line it fails
// if that is not the session's any more: its locks went with it.
func (s *session) on(ctx context.Context, l *line, f func()) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if l != nil && s.line != l {
		return errBell
	}
	f()
	return nil
}
