package file

import (
	"context"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

const (
	// pollEvery is how often those look whom the kernel cannot wake.
	pollEvery = 25 * time.Millisecond
	// A bell whose reason persists rings again after this.
	ringAgain = 250 * time.Millisecond
	// Only the first few in the queue are woken by the lock itself: the first
	// to take it, the others in case that it is frozen. They give it a start.
	lockHearers = 3
	headStart   = 20 * time.Millisecond
)

// subject is what of a file is worth a look.
type subject int

const (
	standing subject = iota // whether it is still there
	entering                // a directory: what appears in it and disappears
	closing                 // a directory: also that files in it are closed
	locked                  // a file: that it is closed, so its lock may be free
	linked                  // a file: that its name is removed
)

// watched is a file whose changes are reason to look.
type watched struct {
	path string
	id   inode
	why  subject
}

// sight is what a session's doorbell sees when it looks.
type sight struct {
	ring  bool          // there is a reason to ring
	after time.Duration // but only if it persists for so long
	watch []watched
	// blind: something is missing that could be watched; look again soon.
	blind bool
}

// sight looks on behalf of Listen. It changes nothing but for dead tickets.
func (s *session) sight() sight {
	s.mu.Lock()
	var own *ownership
	if s.own != nil {
		own = &ownership{lock: s.own.lock, root: s.own.root, revoked: s.own.revoked}
	}
	ticket := s.ticket
	idle := s.spent || s.closed
	cooling := time.Now().Before(s.coolUntil)
	s.mu.Unlock()
	if idle {
		return sight{}
	}
	p, err := s.b.enter(s.mutex, false)
	if err != nil {
		v := sight{ring: true, after: ringAgain, blind: true}
		if own != nil {
			v.after = 0 // it is on the owner to put it back
		}
		return v
	}
	defer p.close()
	v := sight{blind: p.dir < 0}
	dir := filepath.Dir(p.path(lockName))
	if own != nil {
		v.add(s.b.dir, entering)
		v.add(dir, entering) // the mark of a revocation
		v.add(p.path(lockName), linked)
		revoked := false
		if p.dir >= 0 && !own.revoked {
			revoked, _ = p.readRevoked(s.c.ID)
		}
		v.ring = revoked || !own.inPlace(p)
		return v
	}
	v.add(s.b.dir, standing)
	v.add(dir, standing)
	held, err := p.held()
	if err != nil {
		v.blind = true
		return v
	}
	if ticket == nil || p.dir < 0 {
		v.add(p.path(lockName), locked)
		v.ring = !held && !cooling
		return v
	}
	q, err := p.openQueue(false)
	if err != nil || q < 0 {
		v.ring = true
		return v
	}
	defer unix.Close(q)
	a, err := p.ahead(q, ticket.name, true)
	if err != nil || !a.found {
		v.ring = true // its place is gone
		return v
	}
	v.add(p.path(queueName+"/"+ticket.name), linked)
	if a.count > 0 {
		v.add(p.path(queueName+"/"+a.last), locked)
	}
	if a.count < lockHearers {
		v.add(p.path(lockName), locked)
		v.ring = !held && !cooling
		v.after = time.Duration(a.count) * headStart
	}
	return v
}

func (v *sight) add(path string, why subject) {
	id, err := statPath(path)
	if err != nil {
		v.blind = true
		return
	}
	v.watch = append(v.watch, watched{path, id, why})
}

// bell rings when what is seen is a reason to.
type bell struct {
	ring  func(lease.Ring)
	since time.Time // of the reason; zero: there is none
	last  time.Time // it rang for this reason
}

// tell rings if it is time to, and says when to look again; zero: only when
// something happens.
func (b *bell) tell(v sight, now time.Time) (next time.Time) {
	if v.blind {
		next = now.Add(ringAgain)
	}
	if !v.ring {
		b.since, b.last = time.Time{}, time.Time{}
		return next
	}
	if b.since.IsZero() {
		b.since = now
	}
	due := b.since.Add(v.after)
	again := ringAgain
	if v.after > 0 {
		// It looked and gave the one in front its time. That is over then.
		again = lease.PromiseLife + headStart
	}
	if !b.last.IsZero() {
		due = b.last.Add(again)
	}
	if !now.Before(due) {
		b.last = now
		b.ring(lease.Look)
		due = now.Add(again)
	}
	if next.IsZero() || due.Before(next) {
		next = due
	}
	return next
}

// poll is Listen without the kernel's help.
func (s *session) poll(ctx context.Context, ring func(lease.Ring)) error {
	b := &bell{ring: ring}
	ring(lease.Ready)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		b.tell(s.sight(), time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// pollWatch is Watch without the kernel's help: it compares what it sees.
func (b *Backend) pollWatch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	before := b.fingerprint(ctx, mutexes)
	ring(lease.Ready)
	tick := time.NewTicker(2 * pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if now := b.fingerprint(ctx, mutexes); now != before {
			before = now
			ring(lease.Look)
		}
	}
}
