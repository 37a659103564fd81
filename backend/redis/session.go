package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

// session is one contender's dealings with one mutex.
type session struct {
	b         *Backend
	mutex, id string
	info      string // JSON

	mu    sync.Mutex
	left  bool   // Release was called
	owns  bool   // as far as is known
	score string // its place in the queue, kept through an emptied store
	ear   *ear   // while it listens
	hold  time.Time
}

// Try is [lease.Session.Try].
func (s *session) Try(ctx context.Context, r lease.TryRequest) (lease.Answer, error) {
	s.mu.Lock()
	left, score, ear := s.left, s.score, s.ear
	s.mu.Unlock()
	if left {
		return lease.Answer{}, lease.ErrSpent
	}
	hears := ear.hears()
	got, a, err := s.ask(ctx, acquire, r.Lease,
		s.id, ms(r.Lease), ms(r.TTL), bit(r.Queue), bit(r.StartOver), s.info, score,
		r.Seen.Owner, r.Seen.Fence, r.Seen.Birth, ms(r.Seen.Lease), bit(s.b.set.kind == cluster), ms(r.Hold))
	if err != nil {
		if got.state() == "mine" && lease.IsPermanent(err) {
			// It was written, and WAIT is refused. After a refusal nobody asks for a release.
			_ = s.Release(ctx, lease.ReleaseRequest{Unused: true})
		}
		return lease.Answer{}, err
	}
	mine := a.State == lease.Mine
	s.mu.Lock()
	s.score, s.owns = got.score(), mine
	if mine {
		s.hold = time.Now().Add(r.Hold)
	}
	now := s.ear
	s.mu.Unlock()
	switch {
	case mine:
		now.own()
	case hears && now == ear && got.listeners() == 0:
		ear.close() // it listens at a server that is not, or no longer, the right one
	}
	return a, nil
}

// ask runs a script that answers about the mutex. What is the contender's must
// also have reached the replicas.
func (s *session) ask(ctx context.Context, op func() script, span time.Duration, args ...any) (got reply, a lease.Answer, err error) {
	err = s.b.on(ctx, s.mutex, func(lib *goredis.Client) (err error) {
		if got, err = op().run(ctx, lib, s.mutex, args...); err != nil || got.state() != "mine" {
			return err
		}
		return s.b.replicated(ctx, lib, span)
	})
	if err == nil {
		a, err = got.answer()
	}
	return got, a, err
}

// Renew is [lease.Session.Renew].
func (s *session) Renew(ctx context.Context, r lease.RenewRequest) (lease.Answer, error) {
	_, a, err := s.ask(ctx, renew, r.Lease,
		s.id, ms(r.Lease), ms(r.TTL), s.info, r.Fence, bit(r.Reassert), bit(r.Dying), ms(r.Hold))
	if err != nil {
		return lease.Answer{}, err
	}
	if a.State == lease.Mine {
		s.mu.Lock()
		s.hold = time.Now().Add(r.Hold)
		s.mu.Unlock()
	}
	return a, nil
}

// Release is [lease.Session.Release].
func (s *session) Release(ctx context.Context, r lease.ReleaseRequest) error {
	s.mu.Lock()
	s.left, s.owns = true, false
	rest := max(time.Until(s.hold), 0)
	s.mu.Unlock()
	tomb := int64(0)
	if r.Tombstone {
		tomb = ms(lease.TombstoneLife)
	}
	return s.b.on(ctx, s.mutex, func(lib *goredis.Client) error {
		_, err := release().run(ctx, lib, s.mutex, s.id, tomb, bit(s.b.set.kind == cluster), ms(rest), bit(r.Unused))
		return err
	})
}

// Close is [lease.Session.Close]: calls and Listen have ended, and connections
// are the backend's.
func (s *session) Close() error { return nil }
