package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// emptied is written down by a waiter that saw an owner and finds the store
// emptied: nobody may own the mutex until that owner's lease has ended. It also
// keeps the fencing tokens rising when transactions are numbered anew.
type emptied struct {
	Owner  string `json:"owner,omitempty"`
	Fence  uint64 `json:"fence,omitempty"`
	Lease  int64  `json:"lease_ms,omitempty"`
	Offset uint64 `json:"offset,omitempty"` // to be added to transaction numbers

	stat *zk.Stat // nil: there is none
}

func readEmptied(ctx context.Context, cl *client, path string) (e emptied, err error) {
	n, err := call(ctx, cl, reads, "read "+path, get(path))
	if err != nil {
		return e, ignore(err, zk.ErrNoNode)
	}
	if err := json.Unmarshal(n.data, &e); err != nil {
		return e, lease.Permanent(errors.New("zookeeper: " + path + " is not readable: delete it if no job of this mutex runs"))
	}
	e.stat = n.stat
	return e, nil
}

// until is when it ends, by the clock of the servers.
func (e *emptied) until() time.Duration {
	if e.stat == nil || e.Owner == "" {
		return 0
	}
	return millis(e.stat.Mtime) + millis(e.Lease)
}

// obey is for the one in the first place: it answers Held if an owner whose
// record was lost may still be at work, or else with the fence.
func (s *session) obey(ctx context.Context, cl *client, r *lease.TryRequest, e emptied) (a lease.Answer, fence uint64, again bool, err error) {
	path := s.b.emptiedPath(s.mutex)
	fence = uint64(s.own.czxid) + e.Offset
	seen := r.Seen
	lost := seen.Owner != "" && seen.Owner != s.c.ID && seen.Owner != e.Owner &&
		(seen.Birth != "" && seen.Birth != s.own.birth || fence <= seen.Fence)
	left, err := s.left(ctx, cl, e.until())
	if err != nil {
		return a, 0, false, err
	}
	if fence <= seen.Fence || lost {
		n := e
		if fence <= seen.Fence {
			n.Offset += seen.Fence + 1 - fence
			fence = seen.Fence + 1
		}
		// The time of the last change counts, so what is left is written anew.
		n.Lease = max(left, 0).Milliseconds()
		if lost && seen.Lease >= left {
			n.Owner, n.Fence, n.Lease = seen.Owner, seen.Fence, seen.Lease.Milliseconds()
		}
		if again, err := s.writeEmptied(ctx, cl, path, n); err != nil || again {
			return a, 0, again, err
		}
		e, left = n, millis(n.Lease)
	}
	if left > 0 && e.Owner != s.c.ID {
		a = lease.Answer{
			State: lease.Held, Owner: e.Owner, Fence: e.Fence, Birth: s.own.birth,
			Remaining: min(left, millis(e.Lease)), Lease: millis(e.Lease), Rank: 1,
		}
		if !r.Queue {
			a.Rank = 0
		}
	}
	return a, fence, false, nil
}

func (s *session) writeEmptied(ctx context.Context, cl *client, path string, e emptied) (again bool, err error) {
	data, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	_, err = call(ctx, cl, writes, "write "+path, func(c *zk.Conn) (struct{}, error) {
		if e.stat == nil {
			_, err := c.Create(path, data, zk.FlagPersistent, s.b.acl())
			return struct{}{}, err
		}
		_, err := c.Set(path, data, e.stat.Version)
		return struct{}{}, err
	})
	switch {
	case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion):
		return true, nil
	case errors.Is(err, zk.ErrNoNode):
		return true, s.b.makeDir(ctx, cl, s.b.set.chroot+states)
	}
	return false, err
}
