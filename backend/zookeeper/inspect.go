package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// Inspect reads the queue and the claim of its first.
func (b *Backend) Inspect(ctx context.Context, mutex string) (lease.Snapshot, error) {
	none := lease.Snapshot{Mutex: mutex}
	cl, err := b.read(ctx)
	if err != nil {
		return none, err
	}
	dir := b.queueDir(mutex)
	if _, err := call(ctx, cl, reads, "sync "+dir, flush(dir)); err != nil {
		return none, err
	}
	for range 10 {
		s, again, err := b.inspect(ctx, cl, mutex, dir)
		if err != nil {
			return none, err
		}
		if !again {
			return s, nil
		}
	}
	return none, errRestless
}

func (b *Backend) inspect(ctx context.Context, cl *client, mutex, dir string) (s lease.Snapshot, again bool, err error) {
	s.Mutex = mutex
	names, err := call(ctx, cl, reads, "list "+dir, children(dir))
	if err = ignore(err, zk.ErrNoNode); err != nil {
		return s, false, err
	}
	q := newQueue(names)
	if len(q) == 0 {
		again, err = b.describeHold(ctx, cl, nil, &s)
		return s, again, err
	}
	nodes, err := readAll(ctx, cl, dir, q)
	if err != nil {
		return s, false, err
	}
	if nodes[0] == nil {
		return s, true, nil // the owner has gone meanwhile
	}
	behind := 1
	again, held, err := b.describeOwner(ctx, cl, q[0], nodes[0], &s)
	if err != nil || again {
		return s, again, err
	}
	if !held {
		behind = 0
		if again, err := b.describeUnowned(ctx, cl, nodes, &s); err != nil || again {
			return s, again, err
		}
	}
	for _, n := range nodes[behind:] {
		if n != nil {
			p := decodeParty(n.data)
			s.Waiters = append(s.Waiters, lease.Waiter{ID: p.id, Info: p.info})
		}
	}
	return s, false, nil
}

// readAll reads the nodes of a queue; nil for one that has gone meanwhile.
func readAll(ctx context.Context, cl *client, dir string, q queue) ([]*node, error) {
	nodes := make([]*node, len(q))
	errs := make([]error, len(q))
	var wg sync.WaitGroup
	for i, l := range q {
		wg.Go(func() {
			p := path.Join(dir, l.name)
			n, err := call(ctx, cl, reads, "read "+p, get(p))
			if err == nil {
				nodes[i] = &n
			}
			errs[i] = ignore(err, zk.ErrNoNode)
		})
	}
	wg.Wait()
	return nodes, errors.Join(errs...)
}

// describeOwner says who stands first, and whether it owns the mutex or only has
// it promised.
func (b *Backend) describeOwner(ctx context.Context, cl *client, l latch, n *node, s *lease.Snapshot) (again, held bool, err error) {
	p := decodeParty(n.data)
	if !p.ours || l.guid == "" {
		s.State, s.Owner = lease.Held, p.id
		s.TTL, s.Lease = lease.Forever, lease.Forever // as long as its session, whatever that lasts
		s.Acquired = time.UnixMilli(n.stat.Ctime)
		return false, true, nil
	}
	at := b.claimPath(l.guid)
	claim, err := call(ctx, cl, reads, "read "+at, get(at))
	if errors.Is(err, zk.ErrNoNode) {
		node := b.queueDir(s.Mutex) + "/" + l.name
		_, err := call(ctx, cl, reads, "look at "+node, exists(node))
		s.State, s.Lease = lease.Promised, lease.PromiseLife
		return errors.Is(err, zk.ErrNoNode), false, ignore(err, zk.ErrNoNode)
	}
	if err != nil {
		return false, false, err
	}
	c := decodeClaim(claim.data)
	s.State, s.Owner, s.Info, s.Fence = lease.Held, p.id, p.info, c.Fence
	// What is left is not known: as long as its node is there, its session lives.
	s.TTL, s.Lease, s.Revoked = millis(c.TTL), millis(c.Lease), c.Revoked
	s.Acquired = time.UnixMilli(claim.stat.Ctime)
	if c.Lease == 0 {
		s.TTL, s.Lease, s.Detail = lease.Forever, lease.Forever, "its claim is not readable"
	}
	return false, true, nil
}

// describeUnowned is for a mutex that nobody owns though somebody waits. again: somebody
// does.
func (b *Backend) describeUnowned(ctx context.Context, cl *client, nodes []*node, s *lease.Snapshot) (again bool, err error) {
	e, err := readEmptied(ctx, cl, b.emptiedPath(s.Mutex))
	if err != nil {
		return false, err
	}
	if left := e.until() - time.Duration(time.Now().UnixNano()); left > 0 {
		s.State, s.Owner, s.Fence = lease.Held, e.Owner, e.Fence
		s.TTL, s.Lease = min(left, millis(e.Lease)), min(left, millis(e.Lease))
		s.Detail = "the store was emptied: this owner may still be at work"
		return false, nil
	}
	return b.describeHold(ctx, cl, nodes, s)
}

// List names the nodes that have contenders, those under which nothing is (they were
// mutexes a while ago), and the mutexes that are kept back.
func (b *Backend) List(ctx context.Context) ([]string, error) {
	cl, err := b.read(ctx)
	if err != nil {
		return nil, err
	}
	root := b.set.chroot + queues
	if _, err := call(ctx, cl, reads, "sync "+root, flush(root)); err != nil {
		return nil, err
	}
	found, err := b.heldBack(ctx, cl)
	if err != nil {
		return nil, err
	}
	todo := []string{root}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		names, err := call(ctx, cl, reads, "list "+dir, children(dir))
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		latches := 0
		for _, n := range names {
			if _, ok := parseLatch(n); ok {
				latches++
			} else {
				todo = append(todo, dir+"/"+n)
			}
		}
		mutex := strings.TrimPrefix(dir, root+"/")
		if (latches > 0 || len(names) == 0) && dir != root && lease.CheckName(mutex) == nil {
			found = append(found, mutex)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// Revoke writes into the claim of the owner, which vanishes with it. The latch
// nodes are left alone.
func (b *Backend) Revoke(ctx context.Context, mutex, owner string) error {
	cl, err := b.read(ctx)
	if err != nil {
		return err
	}
	dir := b.queueDir(mutex)
	if _, err := call(ctx, cl, reads, "sync "+dir, flush(dir)); err != nil {
		return err
	}
	for range 10 {
		again, err := b.revoke(ctx, cl, dir, owner)
		if err != nil || !again {
			return err
		}
	}
	return errRestless
}

func (b *Backend) revoke(ctx context.Context, cl *client, dir, owner string) (again bool, err error) {
	names, err := call(ctx, cl, reads, "list "+dir, children(dir))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return false, err
	}
	q := newQueue(names)
	if len(q) == 0 {
		return false, lease.ErrNotOwner
	}
	first := dir + "/" + q[0].name
	n, err := call(ctx, cl, reads, "read "+first, get(first))
	if err != nil {
		return errors.Is(err, zk.ErrNoNode), ignore(err, zk.ErrNoNode)
	}
	switch p := decodeParty(n.data); {
	case p.id != owner:
		return false, lease.ErrNotOwner
	case !p.ours || q[0].guid == "":
		return false, lease.ErrForeign
	}
	at := b.claimPath(q[0].guid)
	n, err = call(ctx, cl, reads, "read "+at, get(at))
	if errors.Is(err, zk.ErrNoNode) {
		return false, lease.ErrNotOwner // it has not begun, or is gone
	}
	if err != nil {
		return false, err
	}
	c := decodeClaim(n.data)
	c.Revoked = true
	data, err := json.Marshal(c)
	if err != nil {
		return false, err
	}
	_, err = call(ctx, cl, writes, "revoke "+at, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(at, data, n.stat.Version) })
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	return false, err
}
