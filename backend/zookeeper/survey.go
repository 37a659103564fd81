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
	hold      hold
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
		func() (err error) { v.hold, err = readHold(ctx, cl, s.b.holdPath(s.mutex)); return err },
		func() (err error) { v.lingering, err = s.lingering(ctx, cl, guids); return err },
	}
	if early {
		s.claiming, v.fence = true, uint64(s.own.czxid)
		requests = append(requests, func() error {
			v.done, v.err = s.sendClaim(ctx, cl, v.fence, r, hold{})
			return nil
		})
	}
	err := all(requests...)
	s.kept = v.hold.stat != nil
	if err != nil || !early {
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
// successor is known to need no more than its own transaction number for a fence. (If
// there is a hold that it did not see, the claim is refused. One that makes a hold itself
// is not to be taken back.)
func (s *session) inherits(r *lease.TryRequest) bool {
	return s.heir && !s.claimed && !s.claiming && !s.kept && r.Queue && r.Hold == 0 &&
		uint64(s.own.czxid) > r.Seen.Fence && (r.Seen.Birth == "" || r.Seen.Birth == s.own.birth)
}

// inherited is the answer if the claim that was sent along holds.
func (s *session) inherited(ctx context.Context, cl *client, r *lease.TryRequest, v survey) (a lease.Answer, again bool, err error) {
	return s.taken(ctx, cl, r, v.fence, v.done, v.err)
}
