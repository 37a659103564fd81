package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/simba-lock/simba/lease"
)

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
	if v.cooling() && v.rank <= 1 {
		// Nobody is in front of it, and when the hold ends is known: turn says so then.
		return b.pause(ctx, min(v.until(v.coolEnd()), holdLook), nil)
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
