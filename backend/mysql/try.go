package mysql

import (
	"context"
	"time"

	"github.com/simba-lock/simba/lease"
)

// step is what a look calls for.
type step int

const (
	answer step = iota // nothing more to do
	spent
	makeRows
	impose
	extend
	restore
	keep
	drop
	pass
	promise
	join
	take
)

// Try is [lease.Session.Try].
func (s *session) Try(ctx context.Context, r lease.TryRequest) (a lease.Answer, err error) {
	if a, ok := s.recall(ctx, r); ok {
		return a, nil
	}
	err = s.use(ctx, func(l *line) error {
		a, err = s.try(ctx, l, r)
		if err == nil {
			s.last, s.at = a, time.Now()
		}
		return err
	})
	if isCrowded(err) && r.Queue {
		return s.crowded(ctx)
	}
	return a, err
}

// A waiter with more than so many in front does not ask each time: it would be
// the first that is woken if one of them were gone. So a hundred of them ask for
// a few statements a second, not for twenty, half of which end connections.
const (
	nearRank     = 4
	recallFor    = 3 * time.Second // for each one in front
	recallAtMost = time.Minute
)

// recall is the last answer, while the server waits for the doorbell of a waiter
// far from its turn.
func (s *session) recall(ctx context.Context, r lease.TryRequest) (a lease.Answer, ok bool) {
	if r.StartOver || s.interrupt(ctx) != nil {
		return a, false
	}
	defer s.leave()
	a = s.last
	since := time.Since(s.at)
	if s.armed == nil || a.State != lease.Held || a.Rank <= nearRank ||
		since > min(time.Duration(a.Rank)*recallFor, recallAtMost) {
		return a, false
	}
	a.Clock = 0 // that was then
	if a.Remaining -= since; a.Remaining <= 0 {
		a.Remaining = max(a.Lease, time.Second) // it was renewed, or the first ones see to it
	}
	return a, true
}

// rounds bounds how often a Try looks again because somebody else was quicker.
const rounds = 10

func (s *session) try(ctx context.Context, l *line, r lease.TryRequest) (lease.Answer, error) {
	if s.left {
		return lease.Answer{}, lease.ErrSpent
	}
	y, err := s.b.tables(ctx, l)
	if err != nil {
		return lease.Answer{}, err
	}
	if err := y.fits(s.mutex, s.id); err != nil {
		return lease.Answer{}, err
	}
	values := s.args(r.Lease, r.TTL)
	values["hold"] = ceil(r.Hold)
	values.seen(r.Seen)
	if r.StartOver {
		if err := s.yield(ctx, l, values); err != nil {
			return lease.Answer{}, err
		}
	} else if s.eager {
		s.eager = false
		if a, ok, err := s.take(ctx, l, r, values); ok || err != nil {
			return a, s.b.missing(err)
		}
	}
	extended := false
	var v *view
	for range rounds {
		if v, err = look(ctx, l, s.mutex, s.id, ""); err != nil {
			return lease.Answer{}, s.b.missing(err)
		}
		if r.Seen = s.sees(v, r); r.Seen.Owner != "" {
			values.seen(r.Seen)
		}
		switch next := s.next(v, r, extended); next {
		case answer:
			a := v.answer(s.id)
			if a.State == lease.Mine {
				s.holds(v.until(v.holdUntil))
				s.own(ctx, l)
			} else if a.Rank == 1 && a.State != lease.Cooldown && s.unwoken() {
				a.LookBy = firstLook
			}
			return a, nil
		case spent:
			return lease.Answer{}, lease.ErrSpent
		case take:
			if a, ok, err := s.take(ctx, l, r, values); ok || err != nil {
				return a, err
			}
		default:
			extended = extended || next == extend || next == restore
			if err := s.perform(ctx, l, next, v, r, values); err != nil {
				return lease.Answer{}, err
			}
		}
	}
	// Others were quicker each time: their steps went through, ours comes.
	return lease.Answer{State: lease.Promised, Birth: v.birth, Rank: v.rank, Remaining: 20 * time.Millisecond}, nil
}

func (a args) seen(s lease.Seen) {
	a["seen_owner"], a["seen_birth"], a["seen_fence"] = s.Owner, s.Birth, s.Fence
}

// sees is what the asker knows of the last owner after another look: the rows may be
// gone at the next one, before it was ever answered.
func (s *session) sees(v *view, r lease.TryRequest) lease.Seen {
	a := v.answer(s.id)
	if a.State != lease.Held || a.Owner == s.id || !v.hasLease || a.Lease == lease.Forever {
		return r.Seen
	}
	if a.Lease == 0 {
		a.Lease = r.Lease
	}
	return lease.Seen{Owner: a.Owner, Birth: a.Birth, Lease: a.Lease, Fence: max(a.Fence, r.Seen.Fence)}
}

// next decides what is to be done about what was seen. Each step is one
// statement that says by itself under which conditions it holds.
func (s *session) next(v *view, r lease.TryRequest, extended bool) step {
	promised, late := v.promise()
	first, polls := v.first()
	wait := answer
	if r.Queue && v.rank == 0 {
		wait = join
	}
	switch {
	case v.spent || v.last == s.id && v.released:
		return spent
	case !v.hasLease, !v.hasMutex && v.owner == "":
		return makeRows
	case v.imposes(r.Seen):
		return impose
	case v.owner == s.id && v.ours:
		switch {
		case extended || v.revoked && !v.lost():
			return answer
		case v.lost():
			return restore
		}
		return extend
	case v.untold():
		return keep
	case v.owner != "", v.kept() && v.embargoed != s.id, v.cooling():
		return wait
	case late:
		return drop
	case promised == "" && first != "" && first != s.id:
		if !polls && s.outlived(v) {
			return pass
		}
		return promise
	case promised != "" && promised != s.id:
		return wait
	}
	return take
}

// outlived: nobody in front was heard of for as long as a promise lasts. So the
// first costs no promise, and a dozen that died together cost a second, not a
// dozen of them.
func (s *session) outlived(v *view) bool {
	return !s.alone.IsZero() && time.Since(s.alone) >= lease.PromiseLife-silenceSlack &&
		v.rank > 1 && v.rank-1 <= maxFront
}

// silenceSlack: silence begins to be noticed a moment after the promise was made.
const silenceSlack = 100 * time.Millisecond

func (s *session) perform(ctx context.Context, l *line, next step, v *view, r lease.TryRequest, values args) error {
	var sql statement
	switch next {
	case makeRows:
		return rows(ctx, l, s.mutex, v)
	case impose:
		sql = imposeSQL
		values = args{
			"mutex": s.mutex, "rev": v.rev, "lease": ceil(r.Seen.Lease),
			"seen_owner": r.Seen.Owner, "seen_fence": r.Seen.Fence,
		}
	case extend:
		sql = renewSQL
		values["dying"] = false
	case restore:
		if err := rows(ctx, l, s.mutex, v); err != nil {
			return err
		}
		sql = reassertSQL
		// simba_lease still has the hold, as it was begun.
		values["fence"], values["acquired"], values["hold"] = v.fence, v.acquired, ceil(0)
	case keep:
		sql = keepSQL
	case drop:
		sql = dropSQL
		values["who"], _ = v.promise()
	case pass:
		sql = passSQL
		first, _ := v.first()
		values["who"], values["lock"] = first, lockName(s.b.set.database, s.mutex, first)
	case promise:
		sql = promiseSQL
		first, polls := v.first()
		values["who"], values["life"] = first, ceil(lease.PromiseLife)
		if polls {
			values["life"] = ceil(pollPromise)
		}
	case join:
		sql = joinSQL
		how := "w"
		if s.unwoken() {
			how = "p"
		}
		values["line"] = s.id + "\t" + how + "\t" + s.info + "\n"
	}
	_, _, err := l.exec(ctx, sql, values)
	return err
}

// take is the acquisition: one statement, and its answer holds the fence.
func (s *session) take(ctx context.Context, l *line, r lease.TryRequest, values args) (lease.Answer, bool, error) {
	ok, result, err := l.exec(ctx, takeSQL, values)
	if !ok || err != nil {
		return lease.Answer{}, false, err
	}
	fence, err := result.LastInsertId()
	if err != nil || fence <= 0 {
		return lease.Answer{}, false, err // the look that follows tells it
	}
	s.holds(r.Hold)
	s.own(ctx, l)
	return lease.Answer{
		State: lease.Mine, Owner: s.id, Info: decoded(s.info), Fence: uint64(fence),
		Remaining: r.Lease, Lease: r.Lease,
	}, true, nil
}

// firstLook is how often the first waiter looks where nobody is woken.
const firstLook = 300 * time.Millisecond

// unwoken: there is no doorbell for this contender.
func (s *session) unwoken() bool { return s.polls || s.b.deaf.Load() }

// ownWithin keeps a new owner from waiting for what only helps the next one.
const ownWithin = 500 * time.Millisecond

// own is what there is to do for a new owner: it takes the lock by which the
// next one is woken. Nothing depends on it but how soon that one comes.
func (s *session) own(ctx context.Context, l *line) {
	s.owner = true
	ctx, cancel := context.WithTimeout(ctx, ownWithin)
	defer cancel()
	switch {
	case s.b.deaf.Load():
	case s.armed != nil:
		// It waits for somebody in front, of whom there is none any more.
		_, _ = l.write(ctx, killQuery(s.armed.id))
	case !l.own:
		_ = s.claim(ctx, l, 0)
	}
}

// yield gives up the place in the queue. Whoever waits for us there is woken,
// to wait for somebody else.
func (s *session) yield(ctx context.Context, l *line, values args) error {
	_, _, err := l.exec(ctx, yieldSQL, values)
	if err != nil {
		return s.b.missing(err)
	}
	if l.own {
		var n *int
		_ = l.one(ctx, "SELECT RELEASE_LOCK(?)", []any{s.lock}, &n)
		l.own = false
		_ = s.claim(ctx, l, 1)
	}
	return nil
}

// missing: the tables are gone, so the next call makes them.
func (b *Backend) missing(err error) error {
	if number(err) == noSuchTable {
		b.layout.Store(nil)
		return errTables
	}
	return err
}
