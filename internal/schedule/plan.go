// Package schedule decides when the next run of a schedule is due. It only
// computes: instants and what earlier owners wrote come in, the next tick comes out.
//
// # Why no tick is run twice
//
// A tick is an instant that every host computes alike: from a calendar, or as the tick
// before it plus the interval. Before a run begins its tick is put into the store,
// in one step that succeeds only for the owner of the mutex and only over the tick
// that it knew. Whoever owns the mutex next goes on from there, so a tick that
// was begun is not begun again, whatever became of its run. The price is that a run
// that died in the instant after that is not made up for.
package schedule

import "time"

// Calendar are the ticks of a line of cron.
type Calendar interface {
	// Next is the first tick after t, zero if there is none.
	Next(t time.Time) time.Time
	// Latest is the last tick after the one and not after the other, zero if there is none.
	Latest(after, now time.Time) time.Time
}

// Plan says when a schedule is due.
type Plan struct {
	// Every is the time from tick to tick or, with FixedDelay, from the end of a run
	// to the next tick.
	Every      time.Duration
	FixedDelay bool
	// Calendar is used instead of Every if there is one.
	Calendar Calendar
	// NotBefore is when this process may begin its first run: its start and the
	// initial delay.
	NotBefore time.Time
}

// firstStart is how soon after its start a process has the mutex if nobody keeps it.
const firstStart = time.Minute

// Due is a tick.
type Due struct {
	Tick time.Time // zero: there will be none
	At   time.Time // when to begin its run; the past if that is late
	// Merged: there were more ticks between the last one and this.
	Merged bool
}

// Next is the tick that follows the last one. If several are due it is the latest of
// them: late ticks merge. owned is when this process came to own the mutex.
func (p *Plan) Next(now time.Time, last Record, owned time.Time) Due {
	var d Due
	switch {
	case p.Calendar != nil:
		d = p.onCalendar(now, last, owned)
	case p.FixedDelay:
		d = p.afterEnd(last, owned)
	default:
		d = p.onGrid(now, last, owned)
	}
	if d.At = d.Tick; d.At.Before(p.NotBefore) {
		d.At = p.NotBefore
	}
	return d
}

func (p *Plan) onCalendar(now time.Time, last Record, owned time.Time) Due {
	after := last.Tick
	if after.IsZero() {
		// Nobody ever ran it, or the store forgot: then what was due before this
		// ownership may have been run. Only a tick that fell into the first moments
		// of this very process was certainly not.
		after = later(p.NotBefore, owned.Add(-firstStart))
	}
	next := p.Calendar.Next(after)
	if next.IsZero() || next.After(now) {
		return Due{Tick: next}
	}
	tick := p.Calendar.Latest(after, now)
	return Due{Tick: tick, Merged: tick.After(next)}
}

func (p *Plan) onGrid(now time.Time, last Record, owned time.Time) Due {
	if last.Tick.IsZero() {
		return Due{Tick: later(p.NotBefore, owned)}
	}
	n := max(int64(now.Sub(last.Tick)/p.Every), 1)
	return Due{Tick: last.Tick.Add(time.Duration(n) * p.Every), Merged: n > 1}
}

// afterEnd: the end of a run whose owner died is not known. It was before
// somebody else owned the mutex.
func (p *Plan) afterEnd(last Record, owned time.Time) Due {
	switch {
	case last.Tick.IsZero():
		return Due{Tick: later(p.NotBefore, owned)}
	case last.Ended.IsZero():
		return Due{Tick: later(last.Tick, owned).Add(p.Every)}
	}
	return Due{Tick: last.Ended.Add(p.Every)}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
