package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// lingering finds the claim of an owner that we waited for and whose latch node
// has gone without it. In a release and at the end of a session both go at once,
// so somebody deleted the node, or all nodes of the queue. That owner is told by
// its watch and stops its work; until then its claim, which is as ephemeral as the
// node, says that it is not over. One whose work does not end is waited for as
// long as its lease lasts.
//
// Who comes when nobody waited knows of no owner, and cannot look for its claim.
func (s *session) lingering(ctx context.Context, cl *client, guids []string) (*lease.Answer, error) {
	for _, guid := range guids {
		path := s.b.claimPath(guid)
		n, err := call(ctx, cl, reads, "watch "+path, getW(path))
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if a := s.lingers(cl, guid, decodeClaim(n.data)); a != nil {
			return a, nil
		}
	}
	return nil, nil
}

// toLookFor are the GUIDs of the owners that could be lingering: the one that we
// followed last, if it is not there any more, and the owner that we saw last.
func (s *session) toLookFor() (guids []string) {
	if s.claimed {
		return nil
	}
	if s.behind != "" {
		guids = append(guids, s.behind)
	}
	for name := range s.ahead {
		if l, ok := parseLatch(name); ok && l.guid != "" && l.guid != s.behind {
			guids = append(guids, l.guid)
		}
	}
	return guids
}

// lingers is the answer for such an owner, nil if its time is over.
func (s *session) lingers(cl *client, guid string, c claimData) *lease.Answer {
	now, whole := cl.clock.Now(), max(millis(c.Lease), cl.granted())
	if s.lingerer != guid {
		s.lingerer, s.lingerEnd = guid, now+whole
	}
	if now >= s.lingerEnd {
		return nil
	}
	return &lease.Answer{
		State: lease.Held, Owner: c.Owner, Fence: c.Fence, Birth: s.own.birth,
		Lease: whole, Remaining: s.lingerEnd - now, Rank: 1,
	}
}
