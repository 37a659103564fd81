package file

import (
	"context"
	"os"
	"time"

	"github.com/simba-lock/simba/lease"
)

const (
	// restorePatience is for how long another's claim is taken for that of
	// somebody who is about to back off: he reads a file, and may look through
	// the process table.
	restorePatience = 250 * time.Millisecond
	restorePause    = time.Millisecond
)

// restore puts back what was removed or replaced, see the package comment. What
// is held already stays held.
func (s *session) restore(ctx context.Context) (lease.Answer, error) {
	p, err := s.b.enter(s.mutex, true)
	if err != nil {
		return s.mine(), nil // nobody gets in there
	}
	defer p.close()
	o := s.own
	at := claimByte(s.mutex)
	if p.rootRef != o.root {
		o.claimed = claim(p.root, at)
		// Kept also if the mutex is lost: nobody else then gets in beside the
		// work that is still to be ended. p is needed until the end.
		defer func() { o.anchors = append(o.anchors, p.keepRoot()) }()
		for began := time.Now(); isClaimed(p.root, at); {
			if time.Since(began) > restorePatience || !pause(ctx, restorePause) {
				return s.lost(p)
			}
		}
		o.root = p.rootRef
	}
	lock, st, err := p.openLock()
	if err != nil {
		return s.mine(), nil
	}
	file := os.NewFile(uintptr(lock), p.path(lockName))
	for began := time.Now(); ; {
		ok, err := tryLock(lock)
		if ok {
			break
		}
		if err == nil && time.Since(began) < restorePatience/10 && pause(ctx, restorePause) {
			continue
		}
		_ = file.Close()
		if o.claimed || err != nil {
			return s.mine(), nil // whoever has it backs off; the next renewal locks it
		}
		return s.lost(p)
	}
	o.anchors = append(o.anchors, file)
	o.lock = inodeOf(st)
	o.rec.Lock = st.Ino
	o.keepRecord(p)
	s.changed()
	return s.mine(), nil
}

// pause waits, and tells whether the context let it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lost: somebody else owns the mutex. The locks that this owner still has are
// kept until it releases, since its work is only now told to stop.
func (s *session) lost(p *place) (lease.Answer, error) {
	a, _, err := p.heldBy()
	if a.Owner == s.c.ID {
		a.Owner, a.Info, a.Fence = "", lease.Info{}, 0
	}
	return a, err
}
