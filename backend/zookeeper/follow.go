package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// follow watches the node in front, and it only, so that a release wakes one
// contender and not all.
func (s *session) follow(ctx context.Context, cl *client, l latch) (again bool, err error) {
	path := s.path(l)
	s.mu.Lock()
	armed := s.pred == path
	s.mu.Unlock()
	if armed {
		return false, nil
	}
	s.behind = l.guid
	s.mu.Lock()
	s.pred = path // before the watch, which may fire before it is answered
	s.mu.Unlock()
	_, err = call(ctx, cl, reads, "watch "+path, getW(path))
	if err == nil {
		return false, nil
	}
	s.mu.Lock()
	s.pred = ""
	s.mu.Unlock()
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	return false, err
}

// drop gives up a place in the queue whose contender does not come though it was
// woken: it is stuck, while the heartbeats would keep its place for ever.
func (s *session) drop(cl *client, tries int) {
	timer := time.NewTimer(lease.PromiseLife)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-cl.ctx.Done():
		return
	}
	s.mu.Lock()
	came := s.tries != tries || s.spent
	s.mu.Unlock()
	if came {
		return
	}
	ctx, cancel := context.WithTimeout(cl.ctx, lease.PromiseLife)
	defer cancel()
	if s.enter(ctx) != nil {
		return
	}
	defer s.leave()
	if s.own == nil || s.claimed {
		return
	}
	if q, err := s.list(ctx, cl); err == nil && q.index(s.own.name) == 0 {
		_ = s.giveUp(ctx, cl) // it is looked for when the contender comes back
	}
}

// startOver leaves the queue to join it at its end, unless it is our turn.
func (s *session) startOver(ctx context.Context, cl *client) error {
	if s.own == nil || s.claimed {
		return nil
	}
	q, err := s.list(ctx, cl)
	if err != nil || q.index(s.own.name) == 0 {
		return err
	}
	return s.giveUp(ctx, cl)
}
