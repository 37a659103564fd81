//go:build unix && !linux

package file

import (
	"context"

	"github.com/simba-lock/simba/lease"
)

func (s *session) Listen(ctx context.Context, ring func(lease.Ring)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.poll(ctx, ring)
}

func (b *Backend) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.pollWatch(ctx, mutexes, ring)
}
