package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

var _ lease.Session = (*session)(nil)

// session is one contender with a ZooKeeper session of its own.
type session struct {
	b     *Backend
	mutex string
	c     lease.Contender
	dir   string // of the queue
	guid  string // in the names of all nodes of this contender
	nudge chan struct{}
	turn  chan struct{} // held by the call under way

	mu     sync.Mutex
	cl     *client
	came   chan struct{} // closed when cl is there
	spent  bool
	closed bool
	pred   string // the node in front, if its watch is still armed
	tries  int    // counts the calls of Try
	stale  bool   // the claim may have changed
	owned  string // our node while the mutex is ours; empty else

	// Only the holder of turn touches the following.
	asked    time.Duration
	own      *latchNode // nil: none, as far as is known
	creating *creation  // a request to make it is under way
	unsure   bool       // there may be nodes of ours that are not known
	gen      int        // of the connection by which own and its watches were last looked at
	claiming bool       // a claim may be there
	claimed  bool       // the mutex is ours
	told     bool       // and that was answered to somebody who can have begun to work
	unused   bool       // or its release says that nothing has run
	bare     bool       // and somebody deleted the claim
	hold     hold       // written together with the claim; Owner empty: none
	holdEnd  lease.Instant
	clock    reading // of the servers'
	kept     bool    // a hold was there at the last look
	fence    uint64
	revoked  bool
	ahead    map[string]standing // what is known of owners, by node
	behind   string              // GUID of the one that we followed last
	heir     bool                // and that one was the first

	// An owner whose node was deleted, and until when it is waited for.
	lingerer  string
	lingerEnd lease.Instant
}

// latchNode is our place in the queue.
type latchNode struct {
	latch
	czxid int64
	birth string
}

func newSession(b *Backend, mutex string, c lease.Contender) *session {
	return &session{
		b: b, mutex: mutex, c: c, dir: b.queueDir(mutex), guid: newGUID(),
		nudge: make(chan struct{}, 1), turn: make(chan struct{}, 1), came: make(chan struct{}),
		ahead: make(map[string]standing),
	}
}

func (s *session) path(l latch) string { return s.dir + "/" + l.name }

// enter waits for the call before, which may have been given up by its caller
// and still be on its way out.
func (s *session) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) leave() { <-s.turn }

// connect makes the client. Its session's timeout is the lease.
func (s *session) connect(asked time.Duration) (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.cl != nil {
		return s.cl, nil
	}
	c := newClient(s.b.set, s.b.dialer, asked, s.fired)
	if err := c.start(); err != nil {
		return nil, err
	}
	c.spawn(c.heartbeats)
	s.cl, s.asked = c, asked
	close(s.came)
	return c, nil
}

// fired is told when a watch fires.
func (s *session) fired(path string) {
	s.mu.Lock()
	switch path {
	case s.b.claimPath(s.guid):
		s.stale = true
	case s.pred:
		s.pred = ""
		cl, tries := s.cl, s.tries
		cl.spawn(func() { s.drop(cl, tries) })
	}
	s.mu.Unlock()
	s.ring()
}

func (s *session) ring() {
	select {
	case s.nudge <- struct{}{}:
	default: // it has not looked since the last one
	}
}

// Try joins the queue and looks whether the first place is ours. If it is, one
// transaction checks that our node is still there and claims the mutex.
func (s *session) Try(ctx context.Context, r lease.TryRequest) (lease.Answer, error) {
	s.mu.Lock()
	spent := s.spent
	s.tries++
	s.mu.Unlock()
	if spent {
		return lease.Answer{}, lease.ErrSpent
	}
	if r.TTL < r.Lease/2 {
		return lease.Answer{}, lease.Permanent(tooShort(r.TTL, r.Lease-r.TTL))
	}
	if err := s.enter(ctx); err != nil {
		return lease.Answer{}, err
	}
	defer s.leave()
	cl, err := s.connect(r.Lease)
	if err != nil {
		return lease.Answer{}, err
	}
	for range 10 {
		a, again, err := s.attempt(ctx, cl, &r)
		switch {
		case errors.Is(err, errExpired):
			return lease.Answer{}, lease.ErrSpent // its place is gone with it
		case err != nil || !again:
			s.told = s.told || err == nil && a.State == lease.Mine && ctx.Err() == nil
			return a, err
		}
	}
	return lease.Answer{}, errRestless
}

// tooShort refuses a ttl of less than half of the lease: a lease that was just
// renewed may have begun 3/8 of it ago, and would be over its ttl at once.
func tooShort(ttl, transition time.Duration) error {
	return fmt.Errorf("%w: on ZooKeeper, which tells the start of a lease only to within 3/8 of it, the transition may not be longer than the ttl: "+
		"for the ttl %v a transition of at most %v, or for the transition %v a ttl of at least %v",
		lease.ErrTerms, ttl, ttl, transition, transition)
}

// attempt is one round of the recipe; again says that the queue has changed
// under it.
func (s *session) attempt(ctx context.Context, cl *client, r *lease.TryRequest) (a lease.Answer, again bool, err error) {
	if _, err := cl.ready(ctx); err != nil {
		return a, false, err
	}
	if !r.Queue && s.own == nil && !s.unsure && s.creating == nil {
		q, err := s.list(ctx, cl)
		if err != nil {
			return a, false, err
		}
		if len(q) > 0 {
			return s.waitingFor(ctx, cl, q[0], 0)
		}
	}
	if r.StartOver {
		if err := s.startOver(ctx, cl); err != nil {
			return a, false, err
		}
		r.StartOver = false
	}
	if again, err := s.join(ctx, cl); err != nil || again {
		return a, again, err
	}
	v, err := s.survey(ctx, cl, r)
	if err != nil {
		return a, false, err
	}
	q := v.queue
	switch i := q.index(s.own.name); {
	case i < 0:
		s.forget()
		return a, true, nil
	case i == 0 && v.armed:
		// It went while we asked: ask what has to be known about that.
		s.mu.Lock()
		s.pred = ""
		s.mu.Unlock()
		return a, true, nil
	case i == 0:
		switch {
		case v.lingering != nil:
			a = *v.lingering
		case v.claimed:
			a, again, err = s.inherited(ctx, cl, r, v)
		default:
			a, again, err = s.claim(ctx, cl, r, v)
		}
		if err == nil && !again && a.State != lease.Mine && !r.Queue {
			err = s.giveUp(ctx, cl)
		}
		return a, again, err
	case !r.Queue:
		if err := s.giveUp(ctx, cl); err != nil {
			return a, false, err
		}
		return s.waitingFor(ctx, cl, q[0], 0)
	default:
		s.heir = i == 1
		if again, err := s.follow(ctx, cl, q[i-1]); err != nil || again {
			return a, again, err
		}
		return s.waitingFor(ctx, cl, q[0], i)
	}
}

// all makes requests at once: it is the round trips that a hand-over costs.
func all(requests ...func() error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(requests))
	for i, f := range requests[1:] {
		wg.Go(func() { errs[i+1] = f() })
	}
	errs[0] = requests[0]()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads the queue. That of a mutex of which nothing is there is empty.
func (s *session) list(ctx context.Context, cl *client) (queue, error) {
	names, err := call(ctx, cl, reads, "list "+s.dir, children(s.dir))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	return newQueue(names), nil
}

// Close ends the ZooKeeper session, and with it all nodes of the contender. If
// the server does not answer, Close of the backend waits for the rest.
func (s *session) Close() error {
	s.mu.Lock()
	s.closed = true
	cl := s.cl
	s.mu.Unlock()
	if cl == nil {
		return nil
	}
	timer := time.NewTimer(250 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-s.b.retire(cl):
	case <-timer.C:
	}
	return nil
}
