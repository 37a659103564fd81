package cmd

import (
	"context"

	"github.com/simba-lock/simba/lease"
)

// look says when to look again, or why to release.
func (k *keeper) look() (next lease.Instant, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	switch {
	case k.released:
		return 0, "asked for"
	case k.end != 0 && now >= k.end:
		return 0, "its lease is over"
	case k.until != 0 && now >= k.until:
		k.expireLocked("its ttl ran out without a renewal", true)
		return k.end, ""
	case k.until != 0:
		return k.until, ""
	}
	return k.end, ""
}

func (k *keeper) expire(why string, tell bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expireLocked(why, tell)
}

// expireLocked: from now on it does not count as held, though nobody else may have it
// before the transition is over. The store is told, for those who ask there.
func (k *keeper) expireLocked(why string, tell bool) {
	if k.why != "" {
		return
	}
	k.why = why
	if k.end == 0 {
		k.end = k.clock.Now() + k.order.TTL + k.order.Rest
	}
	if tell {
		id, limit := k.holder.ID(), k.order.Rest
		k.tasks.Go(func() {
			_, _ = persist(k.over, limit, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, k.backend.Revoke(ctx, k.order.Mutex, id)
			})
		})
	}
}
