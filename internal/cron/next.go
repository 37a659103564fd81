package cron

import "time"

// Instants are seconds since 1970; naive times are what a clock on the wall
// shows, as seconds since 1970 on that clock: instant plus offset.

const (
	// reach: no offset from UTC is larger, in either direction.
	reach   = 26 * 60 * 60
	forever = 1 << 62
	day     = 24 * 60 * 60
)

// Next is the first tick after t; zero if there never is one (30 February).
//
// A line that counts by the clock is due whenever the clock shows a matching
// time, in both passes of an hour that comes twice, but after the clock went back
// no sooner than its fields ever have it. A line of fixed times is due once for each
// matching time: when the clock first shows it, or goes past it.
func (s *Spec) Next(t time.Time) time.Time {
	return s.time(s.next(t.Unix()))
}

// Latest is the last tick after `after` and not after now; zero if there is none.
func (s *Spec) Latest(after, now time.Time) time.Time {
	high := now.Unix()
	last, ok := s.next(after.Unix())
	if !ok || last > high {
		return time.Time{}
	}
	// There may be years of ticks, so they are not gone through one by one: last
	// is one, and there is none after high.
	for last < high {
		middle := last + (high-last)/2
		if tick, ok := s.next(middle); ok && tick <= high {
			last = tick
		} else {
			high = middle
		}
	}
	return s.time(last, true)
}

func (s *Spec) time(instant int64, ok bool) time.Time {
	if !ok {
		return time.Time{}
	}
	return time.Unix(instant, 0).In(s.zone)
}

func (s *Spec) next(t int64) (int64, bool) {
	if !s.clock {
		naive, ok := s.match(s.highest(t) + 1)
		if !ok {
			return 0, false
		}
		return s.passed(naive), true
	}
	tick, ok := s.shown(t + 1)
	for ok && s.hasty(tick) {
		tick, ok = s.shown(tick + 1)
	}
	return tick, ok
}

// match is the first naive time that matches, from this one on.
func (s *Spec) match(naive int64) (int64, bool) {
	t := s.fields.Next(time.Unix(naive-1, 0).UTC())
	return t.Unix(), !t.IsZero()
}

// period is the offset at an instant, and an end until which it surely stays.
func (s *Spec) period(instant int64) (offset, end int64) {
	t := time.Unix(instant, 0).In(s.zone)
	_, seconds := t.Zone()
	_, bound := t.ZoneBounds()
	switch {
	case bound.IsZero():
		end = forever
	case bound.Unix() > instant:
		end = bound.Unix()
	default:
		// Where a rule goes on for ever, package time takes all years for 365 days
		// long; no year ends before the day in UTC does.
		end = instant - (instant%day+day)%day + day
	}
	return int64(seconds), end
}

// highest is the latest time that clocks have shown up to an instant.
func (s *Spec) highest(instant int64) int64 {
	highest := int64(-forever)
	for u := instant - 2*reach; u <= instant; {
		offset, end := s.period(u)
		highest = max(highest, min(end-1, instant)+offset)
		u = end
	}
	return highest
}

// passed is the first instant at which a clock shows this time or a later one:
// the first of two if the time comes twice, the end of the gap if it never comes.
func (s *Spec) passed(naive int64) int64 {
	for u := naive - reach; ; {
		offset, end := s.period(u)
		if end-1+offset >= naive {
			return max(u, naive-offset)
		}
		u = end
	}
}

// shown is the first instant, from this one on, at which clocks show a matching time.
func (s *Spec) shown(instant int64) (int64, bool) {
	for {
		offset, end := s.period(instant)
		naive, ok := s.match(instant + offset)
		if !ok {
			return 0, false
		}
		if naive-offset < end {
			return naive - offset, true
		}
		// After 2*reach clocks do not come back to where the search began, and until
		// reach before the match none can show it.
		if leap := naive - reach; end >= instant+2*reach && leap > end {
			end = leap
		}
		instant = end
	}
}

// hasty is whether clocks were set back since they last showed a matching time,
// less long ago than the fields have between two: the hourly 1:45 comes again
// after half an hour where clocks go back by that.
func (s *Spec) hasty(tick int64) bool {
	since := tick - s.closest + 1
	if _, end := s.period(since); end > tick {
		return false
	}
	now, _ := s.period(tick)
	hasty := false
	for last, ok := s.shown(since); ok && last < tick; last, ok = s.shown(last + 1) {
		then, _ := s.period(last)
		hasty = last+then >= tick+now
	}
	return hasty
}
