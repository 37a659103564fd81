package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// claimData is what an owner writes down beside the queue.
type claimData struct {
	Owner   string `json:"owner"`
	Fence   uint64 `json:"fence"`
	TTL     int64  `json:"ttl_ms"`
	Lease   int64  `json:"lease_ms"`
	Revoked bool   `json:"revoked,omitempty"` // by somebody else; the owner is to stop
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func decodeClaim(data []byte) (c claimData) {
	if json.Unmarshal(data, &c) != nil {
		return claimData{}
	}
	return c
}

// claim takes the mutex for the one in the first place. again: our node is gone.
func (s *session) claim(ctx context.Context, cl *client, r *lease.TryRequest, e emptied) (a lease.Answer, again bool, err error) {
	if s.claimed {
		if gone, err := s.check(ctx, cl); err != nil || gone {
			return a, gone, err
		}
		if err := s.refresh(ctx, cl); err != nil {
			return a, false, err
		}
		a, err = s.ours(cl)
		return a, false, err
	}
	a, fence, again, err := s.obey(ctx, cl, r, e)
	if err != nil || again || a.State == lease.Held {
		return a, again, err
	}
	again, err = s.writeClaim(ctx, cl, fence, r)
	if err != nil || again {
		return a, again, err
	}
	// The claim is watched when the doorbell has rung and the lease is renewed,
	// not now: it would cost each hand-over a round trip, and short work for nothing.
	s.setStale()
	s.ring()
	a, err = s.ours(cl)
	return a, false, err
}

// writeClaim is the step that takes the mutex: it succeeds only if our node,
// which is the first, is there when the quorum commits it.
func (s *session) writeClaim(ctx context.Context, cl *client, fence uint64, r *lease.TryRequest) (again bool, err error) {
	s.claiming = true
	done, err := s.sendClaim(ctx, cl, fence, r)
	return s.took(ctx, cl, fence, done, err)
}

// sendClaim is the request alone.
func (s *session) sendClaim(ctx context.Context, cl *client, fence uint64, r *lease.TryRequest) ([]zk.MultiResponse, error) {
	path, claim := s.path(s.own.latch), s.b.claimPath(s.guid)
	granted := cl.granted()
	ttl := time.Duration(float64(r.TTL) * (float64(granted) / float64(max(r.Lease, 1))))
	data, err := json.Marshal(claimData{
		Owner: s.c.ID, Fence: fence, TTL: ttl.Milliseconds(), Lease: granted.Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	return call(ctx, cl, writes, "claim "+path, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CheckVersionRequest{Path: path, Version: -1},
			&zk.CreateRequest{Path: claim, Data: data, Acl: s.b.acl(), Flags: zk.FlagEphemeral},
		)
	})
}

// took is what the answer to a claim comes to.
func (s *session) took(ctx context.Context, cl *client, fence uint64, done []zk.MultiResponse, err error) (again bool, _ error) {
	switch {
	case err == nil:
	case errors.Is(err, zk.ErrNodeExists): // the reply to an earlier one was lost
		if gone, err := s.check(ctx, cl); err != nil || gone {
			return gone, err
		}
	case errors.Is(err, zk.ErrNoNode) && len(done) > 0 && errors.Is(done[0].Error, zk.ErrNoNode):
		s.forget()
		return true, nil
	case errors.Is(err, zk.ErrNoNode):
		return true, s.b.makeDir(ctx, cl, s.b.set.chroot+states)
	default:
		return false, err
	}
	s.claimed, s.bare, s.fence = true, false, fence
	return false, nil
}

// check is the quorum write that renews: it fails if our node is not there, and
// nobody sees it.
func (s *session) check(ctx context.Context, cl *client) (gone bool, err error) {
	path := s.path(s.own.latch)
	_, err = call(ctx, cl, writes, "check "+path, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
	})
	if errors.Is(err, zk.ErrNoNode) {
		s.forget()
		return true, nil
	}
	return false, err
}

func (s *session) setStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

// refresh reads our claim if it may have changed, and watches it. One that
// somebody deleted is written anew by the next renewal.
func (s *session) refresh(ctx context.Context, cl *client) error {
	s.mu.Lock()
	stale := s.stale
	s.stale = false // before the watch, which may fire before it is answered
	s.mu.Unlock()
	if !stale {
		return nil
	}
	path := s.b.claimPath(s.guid)
	n, err := call(ctx, cl, reads, "watch "+path, getW(path))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		s.bare = true
		return nil
	case err != nil:
		s.setStale()
		return err
	}
	s.revoked = decodeClaim(n.data).Revoked
	return nil
}

// ours is the answer to the owner.
func (s *session) ours(cl *client) (lease.Answer, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	p := cl.proof
	if p.proven == 0 || !cl.up {
		// The write was confirmed by a connection that is no more.
		return lease.Answer{}, errLost
	}
	a := lease.Answer{
		State: lease.Mine, Owner: s.c.ID, Info: s.c.Info, Fence: s.fence, Birth: s.own.birth,
		Lease: p.granted, Proof: p.proven, Revoked: s.revoked,
	}
	if p.granted != cl.asked {
		a.Granted = p.granted
	}
	if s.revoked {
		// It is not extended but for the dying, whatever the heartbeats prove.
		a.Remaining, a.Proof = max(p.proven+p.granted-cl.clock.Now(), 1), 0
	}
	return a, nil
}

func (c *client) granted() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proof.granted
}

// standing is what is known of an owner. It does not change.
type standing struct {
	party
	claim claimData
}

// waitingFor is the answer to all but the owner. again: the first in the queue
// has gone.
func (s *session) waitingFor(ctx context.Context, cl *client, first latch, rank int) (a lease.Answer, again bool, err error) {
	st, known := s.ahead[first.name]
	if !known {
		var promised bool
		st, promised, again, err = s.lookAt(ctx, cl, first)
		switch {
		case err != nil || again:
			return a, again, err
		case promised:
			return lease.Answer{State: lease.Promised, Remaining: lease.PromiseLife, Rank: rank}, false, nil
		}
		s.ahead = map[string]standing{first.name: st}
	}
	a = lease.Answer{
		State: lease.Held, Owner: st.id, Info: st.info, Fence: st.claim.Fence,
		Lease: millis(st.claim.Lease), Rank: rank,
	}
	if s.own != nil {
		a.Birth = s.own.birth
	}
	return a, false, nil
}

// lookAt reads who stands first. One of ours that has not claimed the mutex yet
// has it promised: it was woken, and claims it or leaves.
func (s *session) lookAt(ctx context.Context, cl *client, l latch) (st standing, promised, again bool, err error) {
	path := s.path(l)
	n, err := call(ctx, cl, reads, "read "+path, get(path))
	if err != nil {
		return st, false, errors.Is(err, zk.ErrNoNode), ignore(err, zk.ErrNoNode)
	}
	st.party = decodeParty(n.data)
	if !st.ours || l.guid == "" {
		return st, false, false, nil
	}
	claim, err := call(ctx, cl, reads, "read the claim of "+path, get(s.b.claimPath(l.guid)))
	if errors.Is(err, zk.ErrNoNode) {
		// Not there yet, or gone together with the node.
		_, err = call(ctx, cl, reads, "look at "+path, exists(path))
		return st, err == nil, errors.Is(err, zk.ErrNoNode), ignore(err, zk.ErrNoNode)
	}
	st.claim = decodeClaim(claim.data)
	return st, false, false, err
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
