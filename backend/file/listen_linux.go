package file

import (
	"context"
	"time"

	"github.com/simba-lock/simba/lease"
)

// settle is when to look again after a file was closed, each counted from the
// look before. The kernel tells of the closing just before it drops the lock;
// usually the first look is late enough, but the process that closes may be
// preempted in between.
var settle = []time.Duration{
	100 * time.Microsecond, 400 * time.Microsecond, 1500 * time.Microsecond,
	8 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond,
}

// Listen looks whenever the kernel says that something happened, and rings if
// what it then sees is a reason to: events are hints, so none can be misread.
func (s *session) Listen(ctx context.Context, ring func(lease.Ring)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := newNotifier()
	if err != nil {
		return s.poll(ctx, ring) // this user has no more of them
	}
	defer n.close()
	s.setBell(n.kick)
	defer s.setBell(nil)
	defer context.AfterFunc(ctx, n.kick)()

	b := &bell{ring: ring}
	settled := len(settle)
	for ready := false; ; {
		v, _, err := n.look(s.sight)
		if err != nil {
			return s.poll(ctx, ring)
		}
		if !ready {
			ready = true
			ring(lease.Ready)
		}
		now := time.Now()
		next := b.tell(v, now)
		if settled < len(settle) {
			next = sooner(next, now.Add(settle[settled]))
			settled++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, closed := n.wait(next); closed {
			settled = 0
		}
	}
}

// look watches what is seen, and looks again until it has seen nothing that was
// not watched before. added tells that it looked more than once.
func (n *notifier) look(see func() sight) (v sight, added bool, err error) {
	const often = 5 // who makes it change faster than that makes events, too
	for range often {
		v = see()
		more, err := n.set(v.watch)
		if err != nil || !more {
			return v, added, err
		}
		added = true
	}
	return v, added, nil
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (s *session) setBell(kick func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bell = kick
}

// missing is how often Watch looks for a directory that is not there.
const missing = time.Second

// settleWatch is the same for onlookers, who are in no hurry.
var settleWatch = []time.Duration{15 * time.Millisecond, 150 * time.Millisecond}

// Watch survives that the directory is removed and made again.
func (b *Backend) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := newNotifier()
	if err != nil {
		return b.pollWatch(ctx, mutexes, ring)
	}
	defer n.close()
	defer context.AfterFunc(ctx, n.kick)()
	settled := len(settleWatch)
	happened := false
	for ready := false; ; {
		v, added, err := n.look(func() sight { return b.scene(ctx, mutexes) })
		if err != nil {
			return b.pollWatch(ctx, mutexes, ring)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var next time.Time
		if v.blind {
			next = time.Now().Add(missing)
		}
		switch {
		case !ready:
			ready = true
			ring(lease.Ready)
		case happened || added || settled < len(settleWatch):
			ring(lease.Look)
		}
		if settled < len(settleWatch) {
			next = sooner(next, time.Now().Add(settleWatch[settled]))
			settled++
		}
		var closed bool
		if happened, closed = n.wait(next); closed {
			settled = 0
		}
	}
}
