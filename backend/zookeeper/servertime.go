package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

const (
	// rateShare of a time is by how much clocks may disagree on it.
	rateShare = 100
	// A reading of the servers' clock that is no older decides by itself: it is
	// wrong by a hundredth of that at most.
	freshFor = time.Second
)

// reading is the servers' clock read once: it was at told when ours was not after at.
// ZooKeeper tells the time only as that of a change, by the clock of its leader.
type reading struct {
	told time.Duration
	at   lease.Instant
}

// about is what the servers' clock is at, if ours is as fast.
func (r reading) about(now lease.Instant) time.Duration { return r.told + now - r.at }

// surely is what the servers' clock is at least at.
func (r reading) surely(now lease.Instant) time.Duration {
	return r.about(now) - (now-r.at)/rateShare
}

// left is how far an instant of the servers' clock lies ahead, 0 or less if it is
// over. That it is over is never concluded from an old reading whose clock may have
// run too fast: the servers are asked again, which is a write, and due once.
func (s *session) left(ctx context.Context, cl *client, until time.Duration) (time.Duration, error) {
	now := cl.clock.Now()
	if d := until - s.clock.about(now); d > 0 {
		return d, nil
	}
	if d := until - s.clock.surely(now); d <= 0 || now-s.clock.at < freshFor {
		return d, nil
	}
	if err := s.readClock(ctx, cl); err != nil {
		return 0, err
	}
	return until - s.clock.surely(cl.clock.Now()), nil
}

// readClock asks the servers for the time: a node is made, changed and removed in one
// transaction, for only the answer to a change tells when it was.
func (s *session) readClock(ctx context.Context, cl *client) error {
	dir := s.b.set.chroot + states
	path := dir + "/clock-" + s.guid
	for range 2 {
		done, err := call(ctx, cl, writes, "read the time", func(c *zk.Conn) ([]zk.MultiResponse, error) {
			return c.Multi(
				&zk.CreateRequest{Path: path, Data: []byte{}, Acl: s.b.acl()},
				&zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1},
				&zk.DeleteRequest{Path: path, Version: -1},
			)
		})
		switch {
		case err == nil && len(done) == 3 && done[1].Stat != nil:
			s.clock = reading{told: millis(done[1].Stat.Mtime), at: cl.clock.Now()}
			return nil
		case err == nil:
			return errors.New("zookeeper: the answer to a transaction tells no time")
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if err := s.b.makeDir(ctx, cl, dir); err != nil {
			return err
		}
	}
	return errRestless
}
