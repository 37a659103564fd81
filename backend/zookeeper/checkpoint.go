package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// Checkpoint keeps the text as the data of a persistent node beside the queue. It is
// written in a transaction that checks that our latch node, which was the first when we
// took the mutex and still is if it is there, and that the text is the version that was
// read. So a request that runs late changes nothing.
//
// Reading proves nothing about the present, but need not: our server has applied our
// own claim, so it has all that the owners before us wrote, and nobody but the owner
// writes.
//
// It takes no turn with the other calls: a renewal must not wait for it.
func (s *session) Checkpoint(ctx context.Context, from, to string) (string, error) {
	for range 10 {
		s.mu.Lock()
		cl, own := s.cl, s.owned
		if s.spent || s.closed {
			own = ""
		}
		s.mu.Unlock()
		if cl == nil || own == "" {
			return "", lease.ErrNotOwner
		}
		text, again, err := s.checkpoint(ctx, cl, own, from, to)
		if errors.Is(err, errExpired) {
			return "", lease.ErrNotOwner
		}
		if err != nil || !again {
			return text, err
		}
	}
	return "", errRestless
}

func (s *session) checkpoint(ctx context.Context, cl *client, own, from, to string) (text string, again bool, err error) {
	path := s.b.checkpointPath(s.mutex)
	var n node
	err = all(
		func() (err error) {
			there, err := call(ctx, cl, reads, "read "+path, get(path))
			if err == nil {
				n = there
			}
			return ignore(err, zk.ErrNoNode)
		},
		func() error {
			_, err := call(ctx, cl, reads, "look at "+own, exists(own))
			if errors.Is(err, zk.ErrNoNode) {
				return lease.ErrNotOwner
			}
			return err
		},
	)
	if err != nil {
		return "", false, err
	}
	text = string(n.data)
	if !printable(text) {
		return "", false, lease.Permanent(errors.New("zookeeper: " + path +
			" is no text of simba's: delete it, or give it the right one"))
	}
	if text != from || from == to {
		return text, false, nil
	}
	done, err := call(ctx, cl, writes, "write "+path, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(&zk.CheckVersionRequest{Path: own, Version: -1}, s.changeOfText(path, n.stat, to))
	})
	switch at := refused(done); {
	case err == nil:
		return to, false, nil
	case errors.Is(err, zk.ErrNoNode) && at == 0:
		return "", false, lease.ErrNotOwner
	case errors.Is(err, zk.ErrNoNode) && n.stat == nil:
		return "", true, s.b.makeDir(ctx, cl, s.b.set.chroot+states)
	case at == 1 && isAnswer(err) && !lease.IsPermanent(err): // an earlier call of ours, or somebody's hand
		return "", true, nil
	}
	return "", false, err
}

// changeOfText puts a text in the place of the one that was read; none, if it is empty.
func (s *session) changeOfText(path string, was *zk.Stat, to string) any {
	switch {
	case was == nil:
		return &zk.CreateRequest{Path: path, Data: []byte(to), Acl: s.b.acl()}
	case to == "":
		return &zk.DeleteRequest{Path: path, Version: was.Version}
	}
	return &zk.SetDataRequest{Path: path, Data: []byte(to), Version: was.Version}
}

// printable: what every backend can keep.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) <= lease.MaxCheckpoint
}
