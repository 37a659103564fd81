package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

const (
	hashLife = time.Hour            // HOUR in common.lua
	dead     = 30 * time.Second     // DEAD there
	grain    = 2 * time.Millisecond // GRAIN there
	// rereads of a mutex that changes between the commands of one reading.
	rereads = 4
)

// errRestless: it changed hands during every one of several readings.
var errRestless = errors.New("the mutex changes too fast to be read")

// reading is one look at the keys of a mutex.
type reading struct {
	owner string
	held  bool
	left  time.Duration // of the string; negative: no end
	hash  map[string]string
	life  time.Duration // of the hash; negative: no end
	queue []goredis.Z
}

// Inspect is [lease.Backend.Inspect]. It takes commands of the category @read
// only, so it has no TIME: the server's present is computed from when the hash
// will go and how long that still is.
func (b *Backend) Inspect(ctx context.Context, mutex string) (lease.Snapshot, error) {
	for range rereads {
		r, whole, err := b.read(ctx, mutex)
		if err != nil {
			return lease.Snapshot{}, err
		}
		if whole {
			return r.snapshot(mutex), nil
		}
	}
	return lease.Snapshot{}, errRestless
}

// read reads the string at the beginning and at the end, so that what is read in
// between belongs to it.
func (b *Backend) read(ctx context.Context, mutex string) (r reading, whole bool, err error) {
	var (
		first, again *goredis.StringCmd
		left, life   *goredis.DurationCmd
		hash         *goredis.MapStringStringCmd
		queue        *goredis.ZSliceCmd
	)
	err = b.on(ctx, mutex, func(lib *goredis.Client) error {
		_, err := lib.Pipelined(ctx, func(p goredis.Pipeliner) error {
			first = p.Get(ctx, ownerKey(mutex))
			left = p.PTTL(ctx, ownerKey(mutex))
			hash = p.HGetAll(ctx, leaseKey(mutex))
			life = p.PTTL(ctx, leaseKey(mutex))
			queue = p.ZRangeWithScores(ctx, queueKey(mutex), 0, -1)
			again = p.Get(ctx, ownerKey(mutex))
			return nil
		})
		if !errors.Is(err, goredis.Nil) && err != nil {
			return err
		}
		// With no owner the pipeline's error is that, whatever followed.
		for _, err := range []error{left.Err(), hash.Err(), life.Err(), queue.Err()} {
			if err != nil {
				return err
			}
		}
		if err := again.Err(); err != nil && !errors.Is(err, goredis.Nil) {
			return err
		}
		return nil
	})
	if err != nil {
		return r, false, err
	}
	r = reading{
		owner: first.Val(), held: first.Err() == nil, left: left.Val(),
		hash: hash.Val(), life: life.Val(), queue: queue.Val(),
	}
	return r, first.Val() == again.Val() && (first.Err() == nil) == (again.Err() == nil), nil
}

func (r *reading) number(field string) int64 {
	n, err := strconv.ParseFloat(r.hash[field], 64)
	if err != nil {
		return 0
	}
	return int64(n)
}

// now is the server's clock, rounded up to a millisecond as in the scripts: PTTL takes
// it rounded down.
func (r *reading) now() time.Duration {
	return time.Duration(r.number("exp")+1)*time.Millisecond - r.life
}

func (r *reading) until(field string) time.Duration {
	return time.Duration(r.number(field))*time.Millisecond - r.now()
}

// recorded: the record is of an owner that neither gave back nor ran out.
func (r *reading) recorded() bool {
	return r.hash["owner"] != "" && r.hash["released"] == "" && r.until("end") > 0
}

// cooling is that of common.lua: the last owner gave back or ran out, and its hold
// goes on.
func (r *reading) cooling() bool {
	if r.hash["hold"] == "" || r.hash["owner"] == "" || r.hash["released"] == "" && r.until("end") > 0 {
		return false
	}
	if r.held {
		return r.owner == r.hash["owner"] && r.left >= 0 && r.until("hold")+grain >= 0
	}
	return r.until("hold") > 0
}

// remaining is what is left of the lease: the string may stay longer for the hold.
func (r *reading) remaining() time.Duration {
	if r.left >= 0 && r.recorded() && r.number("hold") > r.number("end") {
		return min(r.left, r.until("end"))
	}
	return r.left
}

func (r *reading) snapshot(mutex string) lease.Snapshot {
	s := lease.Snapshot{Mutex: mutex}
	cooling := r.cooling()
	switch {
	case r.held && !cooling && r.hash["owner"] == r.owner && r.hash["released"] == "":
		r.ours(&s, r.remaining())
	case r.held && !cooling:
		s.State, s.Owner, s.TTL, s.Lease = lease.Held, r.owner, r.left, r.left
		if r.left < 0 {
			s.TTL, s.Lease, s.Detail = lease.Forever, lease.Forever, "no expiry"
		}
	case r.recorded():
		r.ours(&s, r.until("end"))
		s.Detail = "its key was deleted"
	case r.hash["e_owner"] != "" && r.until("e_end") > 0:
		s.State, s.Owner, s.Fence = lease.Held, r.hash["e_owner"], uint64(max(0, r.number("e_fence")))
		s.Lease = r.until("e_end")
		s.Detail = "the store was emptied: this owner may still be at work"
	case cooling:
		s.State, s.Lease = lease.Cooldown, max(r.until("hold"), time.Millisecond)
		if !r.held {
			s.Detail = "its key was deleted"
		}
	case r.hash["promise"] != "" && r.until("promise_end") > 0:
		s.State, s.Lease = lease.Promised, r.until("promise_end")
	}
	if s.State != lease.Held {
		s.Last, s.Released, s.Fence = r.hash["owner"], r.hash["released"] != "", uint64(max(0, r.number("fence")))
	}
	s.Waiters = r.waiters(s.State, s.Owner)
	return s
}

func (r *reading) ours(s *lease.Snapshot, left time.Duration) {
	s.State, s.Owner, s.Info = lease.Held, r.hash["owner"], readInfo(r.hash["info"])
	s.Fence, s.Revoked = uint64(max(0, r.number("fence"))), r.hash["revoked"] != ""
	s.Acquired = time.UnixMilli(r.number("acquired"))
	s.Lease = left
	if left < 0 {
		s.TTL, s.Lease, s.Detail = lease.Forever, lease.Forever, "no expiry"
		return
	}
	transition := time.Duration(r.number("lease")-r.number("ttl")) * time.Millisecond
	s.TTL = max(0, left-transition)
}

// waiters is the queue as the scripts see it: the union of set and hash, without
// those that are known dead.
func (r *reading) waiters(state lease.State, owner string) []lease.Waiter {
	type place struct {
		lease.Waiter
		score float64
	}
	var places []place
	known := map[string]bool{owner: true}
	if state == lease.Free {
		known[r.hash["promise"]] = true // it lapsed
	}
	for field, value := range r.hash {
		id, ok := strings.CutPrefix(field, "w:")
		part := strings.SplitN(value, " ", 5)
		if !ok || len(part) != 5 {
			continue
		}
		score, err := strconv.ParseFloat(part[0], 64)
		due, err2 := strconv.ParseFloat(part[2], 64)
		if err != nil || err2 != nil {
			continue
		}
		if !known[id] && r.now()-time.Duration(due)*time.Millisecond <= dead {
			places = append(places, place{lease.Waiter{ID: id, Info: readInfo(part[4])}, score})
		}
		known[id] = true
	}
	for _, z := range r.queue {
		if id := fmt.Sprint(z.Member); !known[id] {
			places = append(places, place{lease.Waiter{ID: id}, z.Score})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.ID, b.ID))
	})
	var waiters []lease.Waiter
	for _, p := range places {
		waiters = append(waiters, p.Waiter)
	}
	return waiters
}
