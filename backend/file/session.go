package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

var _ lease.Anchored = (*session)(nil)

// session is one contender. Its calls do not block: the longest waits are those
// of a restore, which its context bounds.
type session struct {
	b     *Backend
	mutex string
	c     lease.Contender

	mu     sync.Mutex
	spent  bool
	closed bool
	own    *ownership
	ticket *ticket
	stuck  stuck
	// coolUntil is when nobody may own the mutex before; the bell is silent.
	coolUntil time.Time
	seen      seen
	bell      func() // makes Listen look at the session again
}

// stuck is a first live ticket that does not take a mutex which is free.
type stuck struct {
	ticket string
	fence  uint64 // another owner in between starts it anew
	since  time.Time
}

// seen is the latest owner that this contender was told of. If the record then
// is gone or older, the store was emptied while that owner may be at work.
type seen struct {
	rec   record
	since time.Time // when it was found emptied
}

const (
	// emptiedGrace is for how long a contender that saw an owner leaves an
	// emptied store alone. The owner may have been about to start its job, which
	// takes some milliseconds and makes the guard known to others; or its
	// doorbell is telling it to put everything back.
	emptiedGrace = time.Second
	// How often an attempt begins again because the lock file was replaced
	// under it: more than once is already somebody who plays with it.
	attempts = 10
	// lookSoon is when to look again at an owner whose end rings no bell: one
	// whose lock file was removed and who has not put it back yet.
	lookSoon = 100 * time.Millisecond
)

func (s *session) Try(ctx context.Context, r lease.TryRequest) (lease.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return lease.Answer{}, err
	}
	if s.spent {
		return lease.Answer{}, lease.ErrSpent
	}
	if s.own != nil {
		return s.mine(), nil
	}
	for range attempts {
		if err := ctx.Err(); err != nil {
			return lease.Answer{}, err
		}
		a, err := s.attempt(r)
		if !errors.Is(err, errAgain) {
			return a, err
		}
		r.StartOver = false
	}
	return lease.Answer{}, fmt.Errorf("%s is replaced again and again", s.b.dir)
}

var errAgain = errors.New("look again")

func (s *session) usable(ctx context.Context) error {
	if s.closed {
		return errClosed
	}
	return ctx.Err()
}

// attempt looks once, and takes the mutex if it is free and this contender's turn.
func (s *session) attempt(r lease.TryRequest) (lease.Answer, error) {
	p, err := s.b.enter(s.mutex, true)
	if errors.Is(err, fs.ErrNotExist) {
		return lease.Answer{}, errAgain // removed in between
	}
	if err != nil {
		return lease.Answer{}, err
	}
	defer p.close()
	if r.StartOver {
		s.drop(p)
	}
	q, err := p.openQueue(false)
	if err != nil {
		return lease.Answer{}, err
	}
	if q < 0 {
		s.drop(p) // a place that was cleared away
		return s.take(p, r)
	}
	defer unix.Close(q)
	held, err := p.held()
	if err != nil {
		return lease.Answer{}, err
	}
	own := ""
	if s.ticket != nil {
		own = s.ticket.name
	}
	a, err := p.ahead(q, own, true)
	if err != nil {
		return lease.Answer{}, err
	}
	if s.ticket != nil && !a.found {
		s.drop(p)
	}
	switch {
	case held:
		return s.wait(p, r, a)
	case a.first == "":
		return s.take(p, r)
	}
	return s.yield(p, q, r, a)
}

// yield: it is free, but somebody in front is to take it.
func (s *session) yield(p *place, q int, r lease.TryRequest, a front) (lease.Answer, error) {
	rec, _, err := p.readRecord()
	if err != nil {
		return lease.Answer{}, err
	}
	if rest := rec.cooldown(); rest > 0 {
		a, err := s.cool(p, r, rest)
		a.Rank = max(a.Rank, 2)
		return a, err
	}
	seen := stuck{ticket: a.first, since: time.Now()}
	if rec != nil {
		seen.fence = rec.Fence
	}
	if s.stuck.ticket != seen.ticket || s.stuck.fence != seen.fence {
		s.stuck = seen
	}
	left := lease.PromiseLife - time.Since(s.stuck.since)
	if left <= 0 {
		s.stuck = stuck{}
		if err := unix.Unlinkat(q, a.first, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return lease.Answer{}, sorted(p.path(queueName), err)
		}
		return lease.Answer{}, errAgain
	}
	rank, err := s.enqueue(p, r, a)
	return lease.Answer{State: lease.Promised, Remaining: left, Rank: rank}, err
}

// enqueue joins the queue if that is wanted, and says at which place.
func (s *session) enqueue(p *place, r lease.TryRequest, a front) (rank int, err error) {
	if s.ticket != nil {
		return a.count + 1, nil
	}
	if !r.Queue {
		return 0, nil
	}
	t, err := p.join(s.c)
	if err != nil {
		return 0, err
	}
	s.ticket = t
	s.changed()
	q, err := p.openQueue(false)
	if err != nil || q < 0 {
		return 1, err
	}
	defer unix.Close(q)
	a, err = p.ahead(q, t.name, false)
	return a.count + 1, err
}

// wait: somebody owns it.
func (s *session) wait(p *place, r lease.TryRequest, a front) (lease.Answer, error) {
	s.stuck = stuck{}
	joined := s.ticket == nil && r.Queue
	rank, err := s.enqueue(p, r, a)
	if err != nil {
		return lease.Answer{}, err
	}
	if joined {
		// It may have become free before there was anybody to be woken.
		if held, err := p.held(); err == nil && !held {
			return lease.Answer{}, errAgain
		}
	}
	ans, rec, err := p.heldBy()
	if ans.Owner != "" {
		s.seen = seen{rec: *rec}
	}
	ans.Rank = rank
	return ans, err
}

// emptied tells whether to leave the mutex to an owner whose traces are gone.
// Without a way to look for guards, that is for as long as the owner may take to
// renew its lease.
func (s *session) emptied(last *record) bool {
	if s.seen.rec.Owner == "" || last != nil && last.Fence >= s.seen.rec.Fence {
		return false
	}
	if s.seen.since.IsZero() {
		s.seen.since = time.Now()
	}
	grace := emptiedGrace
	if s.b.guards == nil {
		grace = max(grace, time.Duration(s.seen.rec.Lease)*time.Millisecond)
	}
	return time.Since(s.seen.since) < grace
}

// heldBy is the answer about an owner, as far as the record knows him.
func (p *place) heldBy() (lease.Answer, *record, error) {
	a := lease.Answer{State: lease.Held, Remaining: lease.Forever, Lease: lease.Forever}
	rec, _, err := p.readRecord()
	if err == nil && rec != nil && !rec.released() {
		a.Owner, a.Info, a.Fence = rec.Owner, rec.Info, rec.Fence
	}
	return a, rec, err
}

// mine is the answer to the owner, each time with all that he has to know: the
// first one may not have reached him.
func (s *session) mine() lease.Answer {
	r := &s.own.rec
	return lease.Answer{
		State: lease.Mine, Owner: r.Owner, Info: r.Info, Fence: r.Fence,
		Remaining: lease.Forever, Lease: lease.Forever, Granted: lease.Forever,
		Unreleased: slices.Clone(r.Pending), Revoked: s.own.revoked,
	}
}

// Release always frees the lock, though nothing can be written.
func (s *session) Release(ctx context.Context, r lease.ReleaseRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.spent = true
	if s.own == nil && s.ticket == nil {
		return nil
	}
	p, err := s.b.enter(s.mutex, false)
	if err == nil {
		defer p.close()
		if p.dir < 0 {
			err = fs.ErrNotExist
		}
	}
	if s.own != nil {
		if err == nil {
			s.own.sign(p, r.Unused)
		}
		s.own.close()
		s.own = nil
		if err == nil {
			p.nudge()
		}
	}
	if s.ticket != nil {
		if err == nil {
			p.leave(s.ticket)
		} else {
			_ = s.ticket.file.Close() // a dead ticket: whoever sees it removes it
		}
		s.ticket = nil
	}
	s.changed()
	return nil
}

// drop gives up the place in the queue.
func (s *session) drop(p *place) {
	if s.ticket != nil {
		p.leave(s.ticket)
		s.ticket = nil
		s.changed()
	}
}

func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.own != nil {
		s.own.close()
		s.own = nil
	}
	if s.ticket != nil {
		_ = s.ticket.file.Close()
		s.ticket = nil
	}
	s.changed()
	return nil
}

// Anchors are the lock file and the claim on the store's directory. They are
// asked for when the work is about to start: what Answer.Unreleased named must
// have been ended before, and is not told to later owners.
func (s *session) Anchors() []*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return nil
	}
	s.own.begun = true
	return slices.Clone(s.own.anchors)
}

func (s *session) changed() {
	if s.bell != nil {
		s.bell()
	}
}
