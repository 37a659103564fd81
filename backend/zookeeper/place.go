package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// creation is a request to make our node.
type creation struct {
	done chan struct{}
	path string
	err  error
}

// join makes sure that we have a place in the queue, one only, and that it is of
// this session. again: it was gone at once.
func (s *session) join(ctx context.Context, cl *client) (again bool, err error) {
	gen, err := cl.ready(ctx)
	if err != nil {
		return false, err
	}
	if s.own != nil && s.gen == gen {
		return false, nil
	}
	var l latch
	if s.own != nil {
		l = s.own.latch // on another connection than before: is it still there?
	} else if l, err = s.find(ctx, cl); err != nil {
		return false, err
	}
	path := s.path(l)
	var stat, root *zk.Stat
	var seen lease.Instant
	err = all(
		func() (err error) {
			stat, err = call(ctx, cl, reads, "watch "+path, existsW(path))
			seen = cl.clock.Now()
			return err
		},
		func() (err error) {
			root, err = call(ctx, cl, reads, "look at "+queues, exists(s.b.set.chroot+queues))
			return err
		},
	)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		s.forget()
		return true, nil
	case err != nil:
		return false, err
	case stat.EphemeralOwner != cl.sessionID():
		return false, fmt.Errorf("zookeeper: %s belongs to another session", path)
	case stat.Czxid >= 1<<53:
		return false, lease.Permanent(errors.New("zookeeper: the transaction number has reached 2^53, too large for a fencing token"))
	}
	if s.own == nil {
		s.clock = reading{told: millis(stat.Ctime), at: seen}
	}
	s.own = &latchNode{latch: l, czxid: stat.Czxid, birth: birth(root)}
	s.gen, s.unsure, s.heir = gen, false, false
	s.mu.Lock()
	s.pred, s.stale = "", true // watches do not always survive a change of connections
	s.mu.Unlock()
	return false, nil
}

// birth tells a store from one that was emptied: it is that of the root of all
// queues.
func birth(root *zk.Stat) string { return fmt.Sprintf("%x-%x", root.Czxid, root.Ctime) }

func (c *client) sessionID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// forget is for a place that is gone: somebody deleted it.
func (s *session) forget() {
	s.own, s.claiming, s.claimed, s.bare, s.revoked, s.heir = nil, false, false, false, false, false
	s.told, s.hold = false, hold{}
	s.mu.Lock()
	s.pred, s.owned = "", ""
	s.mu.Unlock()
}

// find is our node, made if there is none.
func (s *session) find(ctx context.Context, cl *client) (latch, error) {
	for range 5 {
		if s.creating == nil {
			mine, err := s.ghosts(ctx, cl, 1)
			if err != nil || len(mine) > 0 {
				return first(mine), err
			}
			if !s.create(cl) {
				return latch{}, errClosed
			}
		}
		path, err := s.settle(ctx)
		if err == nil {
			l, ok := parseLatch(path[strings.LastIndexByte(path, '/')+1:])
			if !ok {
				err = fmt.Errorf("zookeeper: the server made a node of the name %q", path)
			}
			return l, err
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return latch{}, err
		}
		if err := s.b.makeDir(ctx, cl, s.dir); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return latch{}, err
		}
	}
	return latch{}, errRestless
}

func first(q queue) latch {
	if len(q) == 0 {
		return latch{}
	}
	return q[0]
}

// ghosts looks for nodes of ours if there may be some: a request whose reply was
// lost may have been carried out. Those beyond the first few are removed.
func (s *session) ghosts(ctx context.Context, cl *client, keep int) (queue, error) {
	if !s.unsure {
		return nil, nil
	}
	// What was sent on the connection before is done or refused by now; but this
	// server may not know of it yet.
	if _, err := call(ctx, cl, reads, "sync "+s.dir, flush(s.dir)); err != nil {
		return nil, err
	}
	q, err := s.list(ctx, cl)
	if err != nil {
		return nil, err
	}
	var mine queue
	for _, l := range q {
		switch {
		case l.guid != s.guid:
		case len(mine) < keep:
			mine = append(mine, l)
		default:
			if err := s.delete(ctx, cl, s.path(l)); err != nil {
				return nil, err
			}
		}
	}
	s.unsure = false
	return mine, nil
}

// create sends the request to make our node. It is not bound to the call that
// needs it: as long as it is under way, no second one is made beside it.
func (s *session) create(cl *client) bool {
	f := &creation{done: make(chan struct{})}
	name := s.dir + "/" + protected + s.guid + "-" + latchPrefix
	ok := cl.spawn(func() {
		defer close(f.done)
		f.path, f.err = call(cl.ctx, cl, writes, "create "+name, func(c *zk.Conn) (string, error) {
			return c.Create(name, encodeParty(s.c), zk.FlagEphemeral|zk.FlagSequence, s.b.acl())
		})
	})
	if ok {
		s.creating, s.unsure = f, true // until join knows the node
	}
	return ok
}

// settle waits for the request to make our node, if there is one under way.
func (s *session) settle(ctx context.Context) (string, error) {
	f := s.creating
	if f == nil {
		return "", nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	s.creating = nil
	if f.err != nil && isAnswer(f.err) {
		s.unsure = false
	}
	return f.path, f.err
}

// giveUp removes our node, wherever it stands.
func (s *session) giveUp(ctx context.Context, cl *client) error {
	if s.creating != nil {
		if path, err := s.settle(ctx); err == nil {
			if err := s.delete(ctx, cl, path); err != nil {
				return err
			}
		} else if s.creating != nil {
			return err
		}
	}
	if s.own != nil {
		if err := s.deleteOwn(ctx, cl); err != nil {
			return err
		}
		s.forget()
	}
	_, err := s.ghosts(ctx, cl, 0)
	return err
}

// deleteOwn removes node and claim in one transaction, so that nobody sees the
// one without the other; and ends or marks a hold in the same one.
func (s *session) deleteOwn(ctx context.Context, cl *client) error {
	path, claim := s.path(s.own.latch), s.b.claimPath(s.guid)
	if !s.claiming {
		return s.delete(ctx, cl, path)
	}
	both := []any{&zk.DeleteRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: claim, Version: -1}}
	last, err := s.lastOfHold(cl)
	if err != nil {
		return err
	}
	tries := [][]any{both}
	if last != nil {
		tries = [][]any{append(both[:2:2], last), both} // somebody may have deleted it
	}
	for _, ops := range tries {
		_, err := call(ctx, cl, writes, "release "+path, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	if err := s.delete(ctx, cl, claim); err != nil {
		return err
	}
	return s.delete(ctx, cl, path)
}

// delete is content if the node is gone already.
func (s *session) delete(ctx context.Context, cl *client, path string) error {
	_, err := call(ctx, cl, writes, "delete "+path, remove(path))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

func (b *Backend) acl() []zk.ACL {
	switch {
	case b.set.user == "" || b.set.open:
		return zk.WorldACL(zk.PermAll)
	case b.set.readable:
		return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
	}
	return zk.AuthACL(zk.PermAll)
}

// makeDir makes a node and those above it that are missing. What is below the
// root of the queues is made of containers, which vanish when they are empty.
func (b *Backend) makeDir(ctx context.Context, cl *client, dir string) error {
	deep := strings.HasPrefix(dir, b.set.chroot+queues+"/")
	create := func() error {
		_, err := call(ctx, cl, writes, "create "+dir, func(c *zk.Conn) (string, error) {
			if deep {
				made, err := c.CreateContainer(dir, []byte{}, zk.FlagContainer, b.acl())
				if !unimplemented(err) {
					return made, err
				}
			}
			return c.Create(dir, []byte{}, zk.FlagPersistent, b.acl())
		})
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	}
	err := create()
	above := strings.LastIndexByte(dir, '/')
	if !errors.Is(err, zk.ErrNoNode) || above <= 0 {
		return err
	}
	if err := b.makeDir(ctx, cl, dir[:above]); err != nil {
		return err
	}
	return create()
}
