package redis

import (
	"context"

	"github.com/simba-lock/simba/lease"
)

// everything is a pattern that accounts with the usual rights to "simba:*" may
// use: the server compares patterns by their text.
const everything = "simba:*"

// Watch is [lease.Backend.Watch]. Contenders of the JVM library say when they
// acquire a mutex, but not when they release one that nobody waits for.
func (b *Backend) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	addr := b.routes.find("") // a cluster tells messages to all its nodes
	c, err := b.connectToHear(ctx, addr)
	if err != nil {
		b.failed(addr)
		return ended(ctx, err)
	}
	sub := c.lib.Subscribe(ctx)
	defer func() {
		c.close()
		_ = sub.Close()
	}()
	var channels, patterns []string
	for _, m := range mutexes {
		channels = append(channels, ownerKey(m), leaseKey(m))
	}
	if len(mutexes) == 0 {
		patterns = []string{everything}
	}
	ready := false
	err = hear(ctx, c, sub, channels, patterns, func(channel, _ string) {
		switch {
		case channel != "":
			ring(lease.Look)
		case !ready:
			ready = true
			ring(lease.Ready)
		}
	})
	if ctx.Err() == nil {
		b.failed(addr)
	}
	return err
}
