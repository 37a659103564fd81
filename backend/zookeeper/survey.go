package zookeeper

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// survey is what a contender with a place in the queue has to know.
type survey struct {
	queue     queue
	emptied   emptied
	lingering *lease.Answer
	armed     bool // the one in front was thought to be there, so nobody lingering was looked for

	// The claim that was sent beside the questions, if nothing of what they were
	// answered stands against it.
	claimed bool
	fence   uint64
	done    []zk.MultiResponse
	err     error
}

// survey asks all at once: it is the round trips that a hand-over costs. When the
// one in front of us was the first and has gone, nobody can come before us any
// more, so the claim is sent along with the questions, and taken back if an
// answer says that its time has not come.
func (s *session) survey(ctx context.Context, cl *client, r *lease.TryRequest) (survey, error) {
	var v survey
	s.mu.Lock()
	v.armed = s.pred != ""
	s.mu.Unlock()
	var guids []string
	early := false
	if !v.armed {
		guids, early = s.toLookFor(), s.inherits(r)
	}
	requests := []func() error{
		func() (err error) { v.queue, err = s.list(ctx, cl); return err },
		func() (err error) { v.emptied, err = readEmptied(ctx, cl, s.b.emptiedPath(s.mutex)); return err },
		func() (err error) { v.lingering, err = s.lingering(ctx, cl, guids); return err },
	}
	if early {
		s.claiming, v.fence = true, uint64(s.own.czxid)
		requests = append(requests, func() error {
			v.done, v.err = s.sendClaim(ctx, cl, v.fence, r)
			return nil
		})
	}
	if err := all(requests...); err != nil || !early {
		return v, err
	}
	if v.queue.index(s.own.name) == 0 && v.emptied.stat == nil && v.lingering == nil {
		v.claimed = true
		return v, nil
	}
	if err := s.delete(ctx, cl, s.b.claimPath(s.guid)); err != nil {
		return v, err
	}
	s.claiming = !isAnswer(v.err) // a claim of which nothing is known may be there later
	return v, nil
}

// inherits tells whether only the owner was in front of us, and has gone, and its
// successor is known to need no more than its own transaction number for a fence.
func (s *session) inherits(r *lease.TryRequest) bool {
	return s.heir && !s.claimed && !s.claiming && r.Queue &&
		uint64(s.own.czxid) > r.Seen.Fence && (r.Seen.Birth == "" || r.Seen.Birth == s.own.birth)
}

// inherited is the answer if the claim that was sent along holds.
func (s *session) inherited(ctx context.Context, cl *client, v survey) (a lease.Answer, again bool, err error) {
	again, err = s.took(ctx, cl, v.fence, v.done, v.err)
	if err != nil || again {
		return a, again, err
	}
	s.setStale()
	s.ring()
	a, err = s.ours(cl)
	return a, false, err
}
