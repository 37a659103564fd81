package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

// checkpointSpan bounds the waiting for replicas, as a lease of this length would.
const checkpointSpan = 8 * time.Second

// Checkpoint is [lease.Session.Checkpoint]. What it says to be written also
// has reached the replicas that acquisitions wait for: a failover that forgot the text
// of a tick would have the tick run twice. So a text that is found there by a second
// call, since the answer to the first one was lost or too few replicas had it, is
// written again and waited for again. What is only read is not waited for.
func (s *session) Checkpoint(ctx context.Context, from, to string) (string, error) {
	var got reply
	err := s.b.on(ctx, s.mutex, func(lib *goredis.Client) (err error) {
		got, err = checkpoint().run(ctx, lib, s.mutex, s.id, from, to, lease.CheckpointLife.Milliseconds())
		if err != nil || got.state() != "written" {
			return err
		}
		return s.b.replicated(ctx, lib, checkpointSpan)
	})
	switch {
	case err != nil:
		return "", err
	case got.state() == "other":
		return "", lease.ErrNotOwner
	}
	return got.text(1), nil
}
