package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
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
func (s *session) claim(ctx context.Context, cl *client, r *lease.TryRequest, v survey) (a lease.Answer, again bool, err error) {
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
	a, fence, again, err := s.obey(ctx, cl, r, v.emptied)
	if err != nil || again || a.State == lease.Held {
		return a, again, err
	}
	if v.hold.stat != nil {
		// It was read beside the queue. Read now, when we are known to be the first, it
		// is of the last owner before us.
		if v.hold, err = readHold(ctx, cl, s.b.holdPath(s.mutex)); err != nil {
			return a, false, err
		}
		a, again, err := s.obeyHold(ctx, cl, r, v.hold)
		if err != nil || again || a.State == lease.Cooldown {
			return a, again, err
		}
	}
	s.claiming = true
	done, err := s.sendClaim(ctx, cl, fence, r, v.hold)
	return s.taken(ctx, cl, r, fence, done, err)
}

// taken is the answer to who claimed the mutex.
func (s *session) taken(
	ctx context.Context, cl *client, r *lease.TryRequest, fence uint64, done []zk.MultiResponse, err error,
) (a lease.Answer, again bool, _ error) {
	again, err = s.took(ctx, cl, fence, done, err)
	if err != nil || again {
		return a, again, err
	}
	s.holdEnd = cl.clock.Now() + r.Hold + r.Hold/rateShare
	// The claim is watched when the doorbell has rung and the lease is renewed,
	// not now: it would cost each hand-over a round trip, and short work for nothing.
	s.setStale()
	s.ring()
	a, err = s.ours(cl)
	return a, false, err
}

// sendClaim is the step that takes the mutex: it succeeds only if our node, which is
// the first, is there when the quorum commits it, and no hold but the one before.
func (s *session) sendClaim(
	ctx context.Context, cl *client, fence uint64, r *lease.TryRequest, before hold,
) ([]zk.MultiResponse, error) {
	s.hold = hold{}
	if r.Hold > 0 {
		s.hold = hold{Owner: s.c.ID, Fence: fence, Hold: roundUp(r.Hold)}
	}
	holds, err := s.changeOfHold(before)
	if err != nil {
		return nil, err
	}
	return s.writeClaim(ctx, cl, fence, r.Lease, r.TTL, holds...)
}

// writeClaim is the request alone.
func (s *session) writeClaim(
	ctx context.Context, cl *client, fence uint64, asked, ttl time.Duration, more ...any,
) ([]zk.MultiResponse, error) {
	path, claim := s.path(s.own.latch), s.b.claimPath(s.guid)
	granted := cl.granted()
	ttl = time.Duration(float64(ttl) * (float64(granted) / float64(max(asked, 1))))
	data, err := json.Marshal(claimData{
		Owner: s.c.ID, Fence: fence, TTL: ttl.Milliseconds(), Lease: granted.Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	ops := append([]any{
		&zk.CheckVersionRequest{Path: path, Version: -1},
		&zk.CreateRequest{Path: claim, Data: data, Acl: s.b.acl(), Flags: zk.FlagEphemeral},
	}, more...)
	return call(ctx, cl, writes, "claim "+path, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
}

// took is what the answer to a claim comes to.
func (s *session) took(ctx context.Context, cl *client, fence uint64, done []zk.MultiResponse, err error) (again bool, _ error) {
	at := refused(done)
	switch {
	case err == nil:
	case at > 1 && isAnswer(err) && !lease.IsPermanent(err): // there is another hold than the one that was read
		s.claiming = false
		return true, nil
	case errors.Is(err, zk.ErrNodeExists): // the reply to an earlier one was lost
		if gone, err := s.check(ctx, cl); err != nil || gone {
			return gone, err
		}
	case errors.Is(err, zk.ErrNoNode) && at == 0:
		s.forget()
		return true, nil
	case errors.Is(err, zk.ErrNoNode):
		return true, s.b.makeDir(ctx, cl, s.b.set.chroot+states)
	default:
		return false, err
	}
	s.claimed, s.bare, s.fence = true, false, fence
	s.mu.Lock()
	s.owned = s.path(s.own.latch)
	s.mu.Unlock()
	return false, nil
}

// refused is which part of a transaction it failed for; -1: none is known.
func refused(done []zk.MultiResponse) int {
	return slices.IndexFunc(done, func(r zk.MultiResponse) bool { return r.Error != nil })
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
			a, err = s.promised(ctx, cl, rank)
			return a, false, err
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
