package mysql

import (
	"context"
	"fmt"

	"github.com/simba-lock/simba/lease"
)

// Release is [lease.Session.Release].
func (s *session) Release(ctx context.Context, r lease.ReleaseRequest) error {
	return s.use(ctx, func(l *line) error {
		s.left = true // also if it fails: nothing may be asked for under this id
		err := s.release(ctx, l, r)
		if number(err) == noSuchTable {
			return nil
		}
		if err == nil {
			s.wakeNext(ctx, l)
		}
		return err
	})
}

// release ends an ownership, or else a place in the queue. With a tombstone the
// id is buried first: an acquire that runs between the two is undone by the
// second, one that runs later finds the grave.
func (s *session) release(ctx context.Context, l *line, r lease.ReleaseRequest) error {
	tombstone, rest := r.Tombstone, s.hold-lease.BootClock{}.Now()
	if r.Unused {
		rest = 0
	}
	values := args{
		"mutex": s.mutex, "me": s.id, "unused": r.Unused, "tombstone": false, "tombstone_life": ceil(lease.TombstoneLife),
		"promise": ceil(lease.PromiseLife), "poll": ceil(pollPromise),
		"rest": ceil(rest),
	}
	leave := func() error {
		if tombstone {
			// A grave needs a row, also where only a JVM has contended so far.
			if err := rows(ctx, l, s.mutex, &view{hasMutex: true}); err != nil {
				return err
			}
		}
		values["tombstone"] = tombstone
		_, _, err := l.exec(ctx, leaveSQL, values)
		values["tombstone"] = false
		return err
	}
	if tombstone {
		if err := leave(); err != nil {
			return err
		}
	}
	owned, _, err := l.exec(ctx, releaseSQL, values)
	if err != nil || owned {
		return err
	}
	if !tombstone {
		err = leave()
	}
	if err == nil && values["rest"] != ceil(0) {
		err = s.heldBack(ctx, l)
	}
	return err
}

// heldBack: there was no ownership to end. If that is so because somebody deleted the
// row, the hold is written into a new one, for the sake of JVMs. Who deletes both rows
// has ended the hold.
func (s *session) heldBack(ctx context.Context, l *line) error {
	if err := rows(ctx, l, s.mutex, &view{hasLease: true}); err != nil {
		return err
	}
	_, _, err := l.exec(ctx, keepSQL, args{"mutex": s.mutex})
	return err
}

// wakeNext gives up the lock that the next one waits for. If that cannot be
// said, the end of the connection says it.
func (s *session) wakeNext(ctx context.Context, l *line) {
	switch {
	case s.armed != nil:
		_, _ = l.write(ctx, fmt.Sprintf("KILL CONNECTION %d", s.armed.id))
	case l.own:
		var n *int
		_ = l.one(ctx, "SELECT RELEASE_LOCK(?)", []any{s.lock}, &n)
	}
}
