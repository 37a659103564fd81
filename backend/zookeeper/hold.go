package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

const holdPrefix = "hold-"

// hold is a wish of an owner, kept beside the queue: for so long from the making of the
// node on, by the clock of the servers, nobody else may own the mutex. Latch nodes
// end with the session of their owner; this node is persistent.
//
// It is made by the transaction that takes the mutex, so whoever owns it has it, and an
// owner that dies right after leaves it. Each claim says in its transaction what it
// knows of the hold before (see changeOfHold), so none is overlooked: a contender that
// read the nodes at different times, or on a server that lags behind, is refused and
// looks again.
//
// What can go wrong with it:
//
//   - The answer to the claim is lost: node and hold are there, or neither. The
//     contender finds both when it tries again; a hold of its own keeps nobody out of
//     what is its own. If it leaves without ever having been told, nothing can have run,
//     and the hold goes with the rest.
//   - The owner dies: its latch node ends with its session, the hold when it is over.
//     The next contender removes it in the transaction with which it takes the mutex.
//   - The owner is revoked, or its latch node is deleted: it stops, and the hold stands.
//   - Somebody deletes the hold: it is over. That is how to end one, so the owner does
//     not put it back.
//   - The clock of the servers is set back: it would last longer by as much. A
//     contender that finds one that was made in the future makes it anew, so it lasts
//     once more as long at the most. Set forward, it ends sooner, as everything does
//     that others reckon by that clock; it is only the hold, not the mutex.
//   - Another server leads, whose clock differs: the same, by as much as the clocks of
//     the members do.
//   - The store comes back empty: the hold is lost with the rest.
//
// Curator's contenders know of latch nodes only. Nothing that keeps them out can be left
// behind: an ephemeral node ends with its session, and a persistent one in front of
// the queue would be there for good if none of ours came any more. So they may own
// the mutex as soon as its owner has gone.
type hold struct {
	Owner    string `json:"owner"`
	Fence    uint64 `json:"fence"`
	Hold     int64  `json:"hold_ms"`
	Released bool   `json:"released,omitempty"` // the owner left by itself

	stat *zk.Stat // nil: it is not known to be there
}

// roundUp is for ZooKeeper, which counts in milliseconds.
func roundUp(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

func readHold(ctx context.Context, cl *client, path string) (h hold, err error) {
	n, err := call(ctx, cl, reads, "read "+path, get(path))
	if err != nil {
		return h, ignore(err, zk.ErrNoNode)
	}
	const longest = math.MaxInt64 / int64(time.Millisecond) / 2
	if json.Unmarshal(n.data, &h) != nil || h.Hold < 0 || h.Hold > longest {
		return h, lease.Permanent(errors.New("zookeeper: " + path +
			" is not readable: delete it if the mutex need not be kept from anybody"))
	}
	h.stat = n.stat
	return h, nil
}

func (h *hold) length() time.Duration { return millis(h.Hold) }

// until is when it ends, by the clock of the servers. It begins with the node: that it
// is marked as released later changes nothing about it.
func (h *hold) until() time.Duration { return millis(h.stat.Ctime) + h.length() }

// obeyHold is for the one in the first place: it answers Cooldown if the mutex is kept
// from it. again: the hold was changed.
func (s *session) obeyHold(ctx context.Context, cl *client, r *lease.TryRequest, h hold) (
	a lease.Answer, again bool, err error,
) {
	if h.stat == nil || h.Owner == s.c.ID {
		return a, false, nil
	}
	left, err := s.left(ctx, cl, h.until())
	if err != nil || left <= 0 {
		return a, false, err
	}
	if left > h.length() {
		// It was made in the future, unless our reading of the time is a bad one.
		if err := s.readClock(ctx, cl); err != nil {
			return a, false, err
		}
		if left = h.until() - s.clock.surely(cl.clock.Now()); left > h.length() {
			return a, true, s.makeHoldAnew(ctx, cl, h)
		}
	}
	a = lease.Answer{State: lease.Cooldown, Remaining: max(left, 1), Birth: s.own.birth}
	if r.Queue {
		a.Rank = 1
	}
	return a, false, nil
}

// makeHoldAnew has it begin now. Only the first in the queue does that, whom nobody can
// overtake meanwhile.
func (s *session) makeHoldAnew(ctx context.Context, cl *client, h hold) error {
	path := s.b.holdPath(s.mutex)
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = call(ctx, cl, writes, "write "+path, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CheckVersionRequest{Path: s.path(s.own.latch), Version: -1},
			&zk.DeleteRequest{Path: path, Version: h.stat.Version},
			&zk.CreateRequest{Path: path, Data: data, Acl: s.b.acl()},
		)
	})
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return nil // it is looked at again
	}
	return err
}

// promised is the answer about a mutex that nobody has claimed though somebody is
// first: kept from everybody, or promised to that one.
func (s *session) promised(ctx context.Context, cl *client, rank int) (lease.Answer, error) {
	h, err := readHold(ctx, cl, s.b.holdPath(s.mutex))
	if err != nil {
		return lease.Answer{}, err
	}
	if h.stat != nil && h.Owner != s.c.ID {
		if s.clock.at == 0 { // one that does not queue
			if err := s.readClock(ctx, cl); err != nil {
				return lease.Answer{}, err
			}
		}
		// Who is not the first decides nothing, so it does not matter if this is a little wrong.
		if left := h.until() - s.clock.about(cl.clock.Now()); left > 0 {
			return lease.Answer{State: lease.Cooldown, Remaining: min(left, h.length()), Rank: rank}, nil
		}
	}
	return lease.Answer{State: lease.Promised, Remaining: lease.PromiseLife, Rank: rank}, nil
}

// changeOfHold is the part of a claim that ends the hold before and begins ours. If
// there was none and none is wished, one is made and removed: that fails if there is
// one after all.
func (s *session) changeOfHold(before hold) ([]any, error) {
	path := s.b.holdPath(s.mutex)
	var ops []any
	if before.stat != nil {
		ops = append(ops, &zk.DeleteRequest{Path: path, Version: before.stat.Version})
		if s.hold.Owner == "" {
			return ops, nil
		}
	}
	data, err := json.Marshal(s.hold)
	if err != nil {
		return nil, err
	}
	ops = append(ops, &zk.CreateRequest{Path: path, Data: data, Acl: s.b.acl()})
	if s.hold.Owner == "" {
		ops = append(ops, &zk.DeleteRequest{Path: path, Version: -1})
	}
	return ops, nil
}

// lastOfHold is the part of a release that is about our hold; nil if there is none. It
// is in one transaction with the deletion of our latch node and our claim, so what is
// there is ours. One that is over is removed, as is one under which nothing can have
// run; else the next ones are told that it was released.
func (s *session) lastOfHold(cl *client) (any, error) {
	if s.hold.Owner == "" {
		return nil, nil
	}
	path := s.b.holdPath(s.mutex)
	if !s.claimed || !s.told || s.unused || cl.clock.Now() >= s.holdEnd {
		return &zk.DeleteRequest{Path: path, Version: -1}, nil
	}
	h := s.hold
	h.Released = true
	data, err := json.Marshal(h)
	return &zk.SetDataRequest{Path: path, Data: data, Version: -1}, err
}

// describeHold tells of a hold, or of the owner that left one which is over. again:
// there is an owner after all. Nothing may be written here, so the time is that of
// this host, unless the servers are known to be later.
func (b *Backend) describeHold(ctx context.Context, cl *client, nodes []*node, s *lease.Snapshot) (again bool, err error) {
	h, err := readHold(ctx, cl, b.holdPath(s.Mutex))
	if err != nil || h.stat == nil {
		return false, err
	}
	if len(nodes) > 0 && nodes[0] != nil && decodeParty(nodes[0].data).id == h.Owner {
		return false, nil // it keeps the first out of nothing
	}
	if !h.Released {
		dir := b.queueDir(s.Mutex)
		names, err := call(ctx, cl, reads, "list "+dir, children(dir))
		if err = ignore(err, zk.ErrNoNode); err != nil || len(newQueue(names)) != len(nodes) {
			return err == nil, err
		}
	}
	now := max(time.Duration(time.Now().UnixNano()), millis(h.stat.Mtime))
	for _, n := range nodes {
		if n != nil {
			now = max(now, millis(n.stat.Ctime))
		}
	}
	s.Last, s.Released, s.Fence = h.Owner, h.Released, h.Fence
	if left := h.until() - now; left > 0 {
		s.State, s.Lease = lease.Cooldown, min(left, h.length())
	}
	return false, nil
}

// heldBack are the mutexes of which a hold is there.
func (b *Backend) heldBack(ctx context.Context, cl *client) (mutexes []string, err error) {
	dir := b.set.chroot + states
	names, err := call(ctx, cl, reads, "list "+dir, children(dir))
	if err != nil {
		return nil, ignore(err, zk.ErrNoNode)
	}
	for _, n := range names {
		if rest, ok := strings.CutPrefix(n, holdPrefix); ok {
			if m, err := url.PathUnescape(rest); err == nil && lease.CheckName(m) == nil {
				mutexes = append(mutexes, m)
			}
		}
	}
	return mutexes, nil
}
