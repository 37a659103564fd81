package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// Renew checks our node by a quorum write if that can prove more than the last
// one did, and by a read otherwise. The latter renews nothing, and is answered
// with what was proved before.
func (s *session) Renew(ctx context.Context, r lease.RenewRequest) (lease.Answer, error) {
	if err := s.enter(ctx); err != nil {
		return lease.Answer{}, err
	}
	defer s.leave()
	cl, err := s.connect(r.Lease)
	if err != nil {
		return lease.Answer{}, err
	}
	gone := true
	if s.own != nil && s.claimed {
		gone, err = s.renew(ctx, cl, r)
	}
	var a lease.Answer
	switch {
	case err != nil:
	case gone:
		a, err = s.notOurs(ctx, cl)
	default:
		a, err = s.ours(cl)
	}
	if errors.Is(err, errExpired) {
		s.forget()
		return lease.Answer{State: lease.Gone}, nil
	}
	return a, err
}

func (s *session) renew(ctx context.Context, cl *client, r lease.RenewRequest) (gone bool, err error) {
	if gone, err := s.join(ctx, cl); err != nil || gone {
		return gone, err
	}
	if err := s.refresh(ctx, cl); err != nil {
		return false, err
	}
	if s.bare {
		done, err := s.writeClaim(ctx, cl, s.fence, r.Lease, r.TTL)
		again, err := s.took(ctx, cl, s.fence, done, err)
		s.setStale()
		s.ring()
		return again && s.own == nil, err
	}
	cl.mu.Lock()
	proven := cl.proof.proven != 0
	due := cl.proof.due(cl.clock.Now())
	cl.mu.Unlock()
	if !proven || due && (!s.revoked || r.Dying) {
		gone, err = s.check(ctx, cl)
	} else {
		gone, err = s.look(ctx, cl)
	}
	if err != nil || gone {
		return gone, err
	}
	// A revocation before this call was told before its answer.
	return false, s.refresh(ctx, cl)
}

// look is a check by the server that we are connected to.
func (s *session) look(ctx context.Context, cl *client) (gone bool, err error) {
	path := s.path(s.own.latch)
	_, err = call(ctx, cl, reads, "look at "+path, exists(path))
	if errors.Is(err, zk.ErrNoNode) {
		s.forget()
		return true, nil
	}
	return false, err
}

// notOurs tells whether somebody else owns the mutex.
func (s *session) notOurs(ctx context.Context, cl *client) (lease.Answer, error) {
	for range 10 {
		q, err := s.list(ctx, cl)
		if err != nil {
			return lease.Answer{}, err
		}
		if len(q) == 0 || q[0].guid == s.guid {
			break
		}
		a, again, err := s.waitingFor(ctx, cl, q[0], 0)
		if err != nil {
			return a, err
		}
		if !again && a.State == lease.Held {
			return a, nil
		}
		if !again {
			break // promised to a waiter
		}
	}
	return lease.Answer{State: lease.Gone}, nil
}

// Release removes our nodes. What a request that is still on its way could make
// ends with the session: the server takes nothing from it once it is closed.
func (s *session) Release(ctx context.Context, r lease.ReleaseRequest) error {
	s.mu.Lock()
	s.spent = true
	cl := s.cl
	s.mu.Unlock()
	if cl == nil {
		return nil
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.unused = r.Unused
	if err := s.giveUp(ctx, cl); err != nil && !errors.Is(err, errExpired) {
		return err
	}
	return nil
}

// Listen rings when the node in front is gone, when our own is, and when our
// claim was changed by a revocation. It ends with the connection.
func (s *session) Listen(ctx context.Context, ring func(lease.Ring)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	cl := s.cl
	s.mu.Unlock()
	early := cl == nil
	if early {
		ring(lease.Ready) // nothing can happen to one that is not in the queue
		select {
		case <-s.came:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
		cl = s.cl
		s.mu.Unlock()
	}
	gen, err := cl.ready(ctx)
	if err != nil {
		return err
	}
	if !early {
		ring(lease.Ready)
	}
	for {
		now, up, changed := cl.state()
		if now != gen || !up {
			return errLost
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-s.nudge:
			ring(lease.Look)
		}
	}
}
