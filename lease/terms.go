package lease

import (
	"errors"
	"fmt"
	"time"
)

const (
	// MinDuration and MaxDuration bound ttl and transition. Below 100 ms the
	// allowances underneath would eat the lease; above a day nobody would wait
	// for a dead owner.
	MinDuration = 100 * time.Millisecond
	MaxDuration = 24 * time.Hour

	DefaultTTL       = 10 * time.Second
	DefaultKillAfter = 5 * time.Second

	// A lease counted by a clock that runs 1 % slower than the backend's must
	// still end first. Crystal clocks and the slewing of NTP (500 ppm) stay far
	// below that.
	ratePercent = 99

	// κ is the time to kill and reap a process tree, with the lateness of a
	// timer on a loaded host: 2 to 160 ms were measured. L/32 keeps the share
	// of short leases small; half a second is enough for any tree.
	killShare = 32
	minKill   = 50 * time.Millisecond
	maxKill   = 500 * time.Millisecond
)

// ErrTerms: durations that do not fit together. The message spells out the sum.
var ErrTerms = errors.New("durations do not fit together")

// Terms are the durations of a lease, checked against each other.
//
//	t0                           t0+TTL          stop       kill  dead-by   t0+L
//	|------------ held ------------|- transition -|----------|-------|--------|
//	                                              stop signal  SIGKILL
//
// A backend whose members' clocks disagree by no more than κ is still safe,
// since the work is dead κ before the local end of the lease.
type Terms struct {
	TTL        time.Duration
	Transition time.Duration
	KillAfter  time.Duration // between the stop signal and the kill

	explicit bool // KillAfter was asked for, not fitted
}

// Unset leaves a duration of NewTerms to its default.
const Unset time.Duration = -1

// DefaultTransition is the transition for a ttl when none is asked for.
func DefaultTransition(ttl time.Duration) time.Duration { return max(6*time.Second, ttl/20) }

// NewTerms checks the durations. Unset asks for the default; for killAfter that
// is 5s or what fits. Errors are ErrTerms.
func NewTerms(ttl, transition, killAfter time.Duration) (Terms, error) {
	if ttl == Unset {
		ttl = DefaultTTL
	}
	if err := inRange("ttl", ttl); err != nil {
		return Terms{}, err
	}
	if transition == Unset {
		transition = DefaultTransition(ttl)
	}
	if err := inRange("transition", transition); err != nil {
		return Terms{}, err
	}
	return fit(Terms{TTL: ttl, Transition: transition, KillAfter: killAfter, explicit: killAfter != Unset})
}

func inRange(what string, d time.Duration) error {
	if d < MinDuration || d > MaxDuration {
		return fmt.Errorf("%w: %s %v is not between %v and %v", ErrTerms, what, d, MinDuration, "24h")
	}
	return nil
}

// fit checks that the stop signal comes no earlier than the end of the ttl.
func fit(t Terms) (Terms, error) {
	room := t.killAt() - t.TTL
	switch {
	case room < 0:
		return Terms{}, fmt.Errorf("%w: ttl %v + transition %v leave nothing: 1%% of the lease (%v) for clock rates and %v to kill exceed the transition",
			ErrTerms, t.TTL, t.Transition, t.Lease()-t.deadBy(), t.kappa())
	case !t.explicit:
		t.KillAfter = min(DefaultKillAfter, room)
	case t.KillAfter < 0:
		return Terms{}, fmt.Errorf("%w: kill-after %v is negative", ErrTerms, t.KillAfter)
	case t.KillAfter > room:
		return Terms{}, fmt.Errorf("%w: kill-after %v + %v to kill + 1%% of the lease (%v) exceed the transition %v: kill-after may be at most %v",
			ErrTerms, t.KillAfter, t.kappa(), t.Lease()-t.deadBy(), t.Transition, room.Truncate(time.Millisecond))
	}
	return t, nil
}

// Lease is L, the whole time for which an acquisition or a renewal lasts.
func (t Terms) Lease() time.Duration { return t.TTL + t.Transition }

func (t Terms) deadBy() time.Duration { return t.Lease() / 100 * ratePercent }

func (t Terms) kappa() time.Duration { return min(max(t.Lease()/killShare, minKill), maxKill) }

func (t Terms) killAt() time.Duration { return t.deadBy() - t.kappa() }

// granted scales the terms to a lease that the backend gave instead of the one
// asked for. An explicit kill-after that no longer fits is ErrTerms.
func (t Terms) granted(l time.Duration) (Terms, error) {
	if l == t.Lease() {
		return t, nil
	}
	s := t
	s.TTL = time.Duration(float64(t.TTL) * (float64(l) / float64(t.Lease())))
	s.Transition = l - s.TTL
	s, err := fit(s)
	if err != nil {
		return Terms{}, fmt.Errorf("the backend grants a lease of %v instead of %v: %w", l, t.Lease(), err)
	}
	return s, nil
}

// squeezed scales the terms to a lease that the backend grants in mid-run. The
// work cannot be refused any more, so its time to end gives way, down to none.
func (t Terms) squeezed(l time.Duration) Terms {
	t.explicit = false
	t.TTL = time.Duration(float64(t.TTL) * (float64(l) / float64(t.Lease())))
	t.Transition = l - t.TTL
	t.KillAfter = max(0, min(t.KillAfter, t.killAt()-t.TTL))
	return t
}

// Deadlines are the instants of one lease by which its work must be told to
// stop, be killed and be dead. All are zero for a lease without an end.
type Deadlines struct {
	Held   Instant // t0+TTL: work may start only before
	Stop   Instant
	Kill   Instant
	DeadBy Instant
	End    Instant // anybody may take it from here on
}

// deadlines counts from t0. A lease that the backend says ends sooner than L
// after t0 is counted back from that end: every deadline comes earlier by the
// same amount.
func (t Terms) deadlines(t0 Instant, remaining time.Duration) Deadlines {
	if remaining > 0 && remaining < t.Lease() {
		t0 -= t.Lease() - remaining
	}
	kill := t0 + t.killAt()
	return Deadlines{
		Held:   t0 + t.TTL,
		Stop:   kill - t.KillAfter,
		Kill:   kill,
		DeadBy: t0 + t.deadBy(),
		End:    t0 + t.Lease(),
	}
}
