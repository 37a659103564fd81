package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/simba-lock/simba/lease"
)

// session has one connection. While that waits in GET_LOCK a look goes over a
// second one, for as long as it takes.
type session struct {
	b     *Backend
	mutex string
	id    string
	info  string
	lock  string // name of the lock that says "this contender lives"
	done  context.Context
	end   context.CancelFunc
	tried chan struct{} // a call has ended

	slot   chan struct{}                      // held by whoever uses what stands below
	stop   atomic.Pointer[context.CancelFunc] // ends what the doorbell asks, if that holds the slot
	line   *line
	armed  *line   // the same one while it waits in GET_LOCK
	coming *coming // one that is being dialed
	owner  bool
	hold   lease.Instant // the end of its hold, for a row that is lost
	left   bool
	eager  bool      // it may be our turn: take first, look afterwards
	polls  bool      // there was no connection to be had for a doorbell
	alone  time.Time // since when nobody in front has been heard of; zero: somebody is
	last   lease.Answer
	at     time.Time // of the last answer
}

func newSession(b *Backend, mutex string, c lease.Contender) *session {
	s := &session{
		b: b, mutex: mutex, id: c.ID, info: encoded(c.Info),
		lock:  lockName(b.set.database, mutex, c.ID),
		slot:  make(chan struct{}, 1),
		tried: make(chan struct{}, 1),
		eager: true,
	}
	s.done, s.end = context.WithCancel(context.Background())
	return s
}

// use lends the session's connection, or a passing one while that waits.
func (s *session) use(ctx context.Context, f func(*line) error) error {
	err := s.interrupt(ctx)
	if err != nil {
		return sorted(ctx, err)
	}
	defer s.leave()
	defer func() {
		select {
		case s.tried <- struct{}{}:
		default:
		}
	}()
	if s.line != nil && !s.line.alive(ctx) {
		s.drop()
	}
	if s.line != nil {
		s.forget()
	}
	for again := s.line != nil; ; again = false {
		if s.line == nil {
			if s.line, err = s.connect(ctx); err != nil {
				return sorted(ctx, err)
			}
		}
		err = f(s.line)
		if broken(err) {
			s.drop()
			if again && errors.Is(err, driver.ErrBadConn) {
				continue // it had been closed before anything was sent
			}
		} else if s.left || s.armed != nil || s.polls && !s.owner {
			s.drop()
		}
		return sorted(ctx, err)
	}
}

func (s *session) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) leave() { <-s.slot }

// patience is what a call leaves to a question of the doorbell's that gets no
// answer. A renewal must not wait for a connection that is dead unnoticed.
const patience = 250 * time.Millisecond

// interrupt enters, and ends what the doorbell is asking if that takes long.
func (s *session) interrupt(ctx context.Context) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		select {
		case s.slot <- struct{}{}:
			return nil
		case <-ctx.Done():
			s.silence() // for the next attempt
			return ctx.Err()
		case <-timer.C:
			s.silence()
		}
	}
}

func (s *session) silence() {
	if stop := s.stop.Load(); stop != nil {
		(*stop)()
	}
}

// asking lets calls end what the doorbell asks under the context returned. The
// slot is held until done.
func (s *session) asking(ctx context.Context, limit time.Duration) (asked context.Context, done func()) {
	asked, cancel := context.WithTimeout(ctx, limit)
	s.stop.Store(&cancel)
	return asked, func() {
		s.stop.Store(nil)
		cancel()
	}
}

// drop closes the connection; the slot is held.
func (s *session) drop() {
	if s.line != nil {
		s.line.close()
		s.line = nil
	}
}

// args are the values that most statements need.
func (s *session) args(l, ttl time.Duration) args {
	return args{
		"mutex": s.mutex, "me": s.id, "info": s.info,
		// A part of a millisecond is a whole one: never less than asked for.
		"lease": ceil(l), "ttl": ceil(ttl),
	}
}

func ceil(d time.Duration) int64 {
	d = min(max(d, 0), farAway)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Renew is [lease.Session.Renew].
func (s *session) Renew(ctx context.Context, r lease.RenewRequest) (a lease.Answer, err error) {
	err = s.use(ctx, func(l *line) error {
		a, err = s.renew(ctx, l, r)
		return err
	})
	return a, err
}

func (s *session) renew(ctx context.Context, l *line, r lease.RenewRequest) (lease.Answer, error) {
	if _, err := s.b.tables(ctx, l); err != nil {
		return lease.Answer{}, err
	}
	values := s.args(r.Lease, r.TTL)
	values["dying"], values["hold"] = r.Dying, ceil(r.Hold)
	kept, result, err := l.exec(ctx, renewSQL, values)
	if err != nil {
		return lease.Answer{}, s.b.missing(err)
	}
	if kept && !r.Dying && r.Fence > 0 {
		// It was ours, not revoked, and is renewed: no need to look.
		now, err := result.LastInsertId()
		s.owner = true
		return lease.Answer{
			State: lease.Mine, Owner: s.id, Info: decoded(s.info), Fence: r.Fence,
			Remaining: r.Lease, Lease: r.Lease, Clock: time.Duration(now) * time.Microsecond,
		}, err
	}
	v, err := look(ctx, l, s.mutex, s.id, "")
	if err != nil {
		return lease.Answer{}, err
	}
	if r.Reassert && !v.mine(s.id) && (v.owner == "" || v.owner == s.id) && !s.left {
		if err := rows(ctx, l, s.mutex, v); err != nil {
			return lease.Answer{}, err
		}
		values["fence"], values["acquired"] = r.Fence, uint64(0)
		if v.last == s.id {
			values["acquired"] = v.acquired
		}
		if _, _, err := l.exec(ctx, reassertSQL, values); err != nil {
			return lease.Answer{}, err
		}
		if v, err = look(ctx, l, s.mutex, s.id, ""); err != nil {
			return lease.Answer{}, err
		}
	}
	a := v.answer(s.id)
	switch {
	case v.mine(s.id):
		s.owner = true
	case v.owner == "" && !(r.Reassert && v.kept() && v.embargoed != s.id) || v.owner == s.id:
		a = lease.Answer{State: lease.Gone, Birth: a.Birth, Clock: a.Clock}
	}
	return a, nil
}

// holds notes the hold of a mutex that was just taken: from now on, which is later
// than the instant from which the server counts.
func (s *session) holds(hold time.Duration) {
	if s.hold = 0; hold > 0 {
		s.hold = lease.BootClock{}.Now() + min(hold, farAway)
	}
}

// mine: both rows name me, and the lease runs.
func (v *view) mine(me string) bool { return v.owner == me && v.ours && !v.lost() }

// Close is [lease.Session.Close].
func (s *session) Close() error {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.enter(ctx); err != nil {
		return fmt.Errorf("a call is still under way: %w", err)
	}
	defer s.leave()
	s.left = true
	s.drop()
	s.forget()
	return nil
}

// pollPromise is for a waiter that nobody can wake: until its next look, and
// as long as any other from then on.
const pollPromise = time.Second + lease.PromiseLife + 200*time.Millisecond

// crowded is the answer of a server that has no connection to spare. It is
// there, so this is contact with it; who owns the mutex it does not say. A
// waiter whose doorbell stands goes by what it was told last.
func (s *session) crowded(ctx context.Context) (lease.Answer, error) {
	if err := s.enter(ctx); err != nil {
		return lease.Answer{}, sorted(ctx, err)
	}
	defer s.leave()
	a := lease.Answer{
		State:     lease.Promised,
		Remaining: 500*time.Millisecond + rand.N(400*time.Millisecond),
	}
	if s.armed != nil && !s.at.IsZero() && s.last.State != lease.Mine {
		a = s.last
		a.Clock = 0
		a.LookBy = time.Second
		a.Remaining = max(a.Remaining-time.Since(s.at), time.Millisecond)
	}
	return a, nil
}
