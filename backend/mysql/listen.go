package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// bell is the doorbell of one connection.
//
// Each contender holds a lock named after itself for as long as it lives, and
// waits for the lock of the nearest living one in front of it: another waiter,
// or the owner. So the release of one wakes exactly the next, and the server
// notices by itself who is gone.
type bell struct {
	s       *session
	l       *line
	ring    func(lease.Ring)
	blind   bool // there was nobody to wait for, twice in a row
	alarmed bool // the owner was told
}

// query uses the connection for f. A connection that does not answer is given
// up, so that a call finds a new one.
func (b *bell) query(ctx context.Context, f func(context.Context) error) error {
	var err error
	if lost := b.s.on(ctx, b.l, func() {
		asked, done := b.s.asking(ctx, askWithin)
		defer done()
		if err = f(asked); broken(err) {
			b.s.drop()
		}
	}); lost != nil {
		return lost
	}
	return err
}

// rang rings, and leaves the connection to the look that follows.
func (b *bell) rang(ctx context.Context, r lease.Ring) error {
	_ = b.s.on(ctx, nil, func() { b.s.eager = b.s.eager || r == lease.Look })
	select {
	case <-b.s.tried:
	default:
	}
	b.ring(r)
	if err := b.pause(ctx, lookWithin, b.s.tried); err != nil {
		return err
	}
	owner := false
	_ = b.s.on(ctx, nil, func() { owner = b.s.owner })
	if owner {
		return b.pause(ctx, settleFor, nil)
	}
	return nil
}

// pause waits, and keeps the connection of a waiter in use meanwhile.
func (b *bell) pause(ctx context.Context, d time.Duration, until <-chan struct{}) error {
	over := time.NewTimer(d)
	defer over.Stop()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-until:
			return nil
		case <-over.C:
			return nil
		case <-ping.C:
			if !b.l.short {
				continue
			}
			if err := b.query(ctx, b.l.conn.PingContext); err != nil {
				return err
			}
		}
	}
}

// once is one wait, of a waiter or of an owner.
func (b *bell) once(ctx context.Context) error {
	var v *view
	var owner bool
	err := b.query(ctx, func(ctx context.Context) (err error) {
		owner = b.s.owner
		if short := !owner; short != b.l.short {
			idle := ownerIdle
			if short {
				idle = waiterIdle
			}
			if _, err := b.l.write(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", idle)); err != nil {
				return err
			}
			b.l.short = short
		}
		v, err = look(ctx, b.l, b.s.mutex, b.s.id, "front")
		return err
	})
	switch {
	case err != nil:
		return err
	case owner:
		return b.guard(ctx, v)
	}
	return b.wait(ctx, v)
}

// guard is for the owner: it rings if there is something to stop for.
func (b *bell) guard(ctx context.Context, v *view) error {
	alarm := !v.mine(b.s.id) || v.revoked
	if alarm && !b.alarmed {
		b.alarmed = true
		return b.rang(ctx, lease.Look)
	}
	b.alarmed = alarm
	return b.pause(ctx, min(ownerLook, max(minOwnerLook, v.lease()/ownerLooks)), nil)
}

// wait is for a waiter.
func (b *bell) wait(ctx context.Context, v *view) error {
	if b.turn(v) {
		if err := b.rang(ctx, lease.Look); err != nil {
			return err
		}
		return b.pause(ctx, blindLook, nil) // if that was not enough
	}
	woken, err := b.arm(ctx, v)
	switch {
	case err != nil:
		return err
	case woken:
		b.blind = false
		return b.rang(ctx, lease.Look)
	case !b.blind:
		b.blind = true // whoever it was may have gone just now: look at once
		return nil
	}
	return b.pause(ctx, blindLook, nil)
}

// turn: it is this waiter's now.
func (b *bell) turn(v *view) bool {
	if v.owner != "" || v.kept() || v.cooling() {
		return false
	}
	promised, late := v.promise()
	return promised == b.s.id || (promised == "" || late) && v.rank == 1
}

// arm waits until the nearest living one in front has gone. It says false if
// there is nobody to wait for. No lock of another is kept for longer than the
// statement lasts, so that a waiter that is frozen stands in nobody's way.
func (b *bell) arm(ctx context.Context, v *view) (woken bool, err error) {
	text, values := armed(b.s, v)
	if text == "" {
		return false, nil
	}
	if err := b.s.on(ctx, b.l, func() {
		if b.s.owner {
			err = errBell
			return
		}
		b.s.line, b.s.armed = nil, b.l
	}); err != nil {
		return false, err
	}
	var got *int
	asked := time.Now()
	err = b.l.one(ctx, text, values, &got)
	if entered := b.s.enter(context.Background()); entered != nil {
		return false, entered
	}
	defer b.s.leave()
	b.s.armed = nil
	b.s.drop() // one that passed
	switch n := number(err); {
	case passing[n]:
		got = nil // the order has changed, or we own it now: look
	case err != nil:
		b.l.close()
		return false, err
	}
	b.s.line = b.l
	switch {
	case got == nil || *got != nobody:
		b.s.alone = time.Time{}
	case b.s.alone.IsZero():
		b.s.alone = asked
	}
	return got != nil && *got == 1, nil
}

// nobody is what the statement says if none of those in front has a lock.
const nobody = -1

// maxFront is how many of the waiters in front are looked at: those of look.sql.
const maxFront = 16

// armed is the statement that waits, with the nearest first.
func armed(s *session, v *view) (string, []any) {
	var front []string
	if v.owner != "" && v.owner != s.id {
		front = append(front, v.owner)
	}
	for row := range strings.SplitSeq(v.queue, "\n") {
		if id, _, ok := strings.Cut(row, "\t"); ok && id != s.id {
			front = append(front, id)
		}
	}
	if len(front) == 0 {
		return "", nil
	}
	var text strings.Builder
	var values []any
	text.WriteString("SELECT CASE")
	for i := len(front) - 1; i >= 0; i-- {
		name := lockName(s.b.set.database, s.mutex, front[i])
		text.WriteString(" WHEN NOT IS_FREE_LOCK(?) THEN IF(GET_LOCK(?, ?), RELEASE_LOCK(?), 0)")
		values = append(values, name, name, armFor, name)
	}
	fmt.Fprintf(&text, " ELSE %d END", nobody)
	return text.String(), values
}
