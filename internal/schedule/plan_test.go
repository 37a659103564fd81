package schedule

import (
	"testing"
	"time"
)

// hours is a calendar with a tick each full hour.
type hours struct{}

func (hours) Next(t time.Time) time.Time { return t.Truncate(time.Hour).Add(time.Hour) }

func (hours) Latest(after, now time.Time) time.Time {
	if t := now.Truncate(time.Hour); t.After(after) {
		return t
	}
	return time.Time{}
}

// at is a time of one day.
func at(clock string) time.Time {
	if clock == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.DateTime, "2026-11-30 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

func TestNext(t *testing.T) {
	everyHour := Plan{Every: time.Hour, NotBefore: at("10:30:00")}
	delayed := Plan{Every: time.Hour, FixedDelay: true, NotBefore: at("10:30:00")}
	calendar := Plan{Calendar: hours{}, NotBefore: at("10:30:00")}
	late := Plan{Calendar: hours{}, NotBefore: at("12:30:00")}
	for _, c := range []struct {
		name        string
		plan        Plan
		now         string
		tick, ended string // of the last one
		owned       string
		want        string
		at          string // the same if empty
		merged      bool
	}{
		{"first run", everyHour, "10:30:01", "", "", "10:30:01", "10:30:01", "", false},
		{"first run after the delay", everyHour, "10:10:00", "", "", "10:10:00", "10:30:00", "", false},
		{"on the grid", everyHour, "11:10:00", "10:30:01", "", "10:30:01", "11:30:01", "", false},
		{"in the very instant", everyHour, "11:30:01", "10:30:01", "", "10:30:01", "11:30:01", "", false},
		{"one is due", everyHour, "11:40:00", "10:30:01", "", "10:30:01", "11:30:01", "", false},
		{"several are due", everyHour, "14:40:00", "10:30:01", "", "14:39:00", "14:30:01", "", true},
		{"a clock that went back", everyHour, "09:00:00", "10:30:01", "", "09:00:00", "11:30:01", "", false},
		{"due before this process may", everyHour, "10:20:00", "09:10:00", "", "10:20:00", "10:10:00", "10:30:00", false},

		{"after the end", delayed, "11:50:00", "10:30:00", "10:50:00", "10:30:00", "11:50:00", "", false},
		{"end of a dead owner's run", delayed, "11:50:00", "10:30:00", "", "11:20:00", "12:20:00", "", false},
		{"first with a delay", delayed, "10:45:00", "", "", "10:45:00", "10:45:00", "", false},

		{"on the calendar", calendar, "11:10:00", "11:00:00", "", "10:30:00", "12:00:00", "", false},
		{"one missed", calendar, "12:10:00", "11:00:00", "", "12:09:00", "12:00:00", "", false},
		{"three missed", calendar, "14:10:00", "11:00:00", "", "14:09:00", "14:00:00", "", true},
		{"never run, just started", calendar, "10:30:05", "", "", "10:30:05", "11:00:00", "", false},
		{"a tick while it started", calendar, "11:00:20", "", "", "11:00:20", "11:00:00", "", false},
		{"never run, stood by for long", calendar, "15:10:00", "", "", "15:10:00", "16:00:00", "", false},
		{"calendar and initial delay", late, "12:10:00", "11:00:00", "", "12:09:00", "12:00:00", "12:30:00", false},
		{"a tick before its time is over", late, "11:10:00", "", "", "11:10:00", "13:00:00", "", false},
	} {
		got := c.plan.Next(at(c.now), Record{Tick: at(c.tick), Ended: at(c.ended)}, at(c.owned))
		when := c.at
		if when == "" {
			when = c.want
		}
		if !got.Tick.Equal(at(c.want)) || !got.At.Equal(at(when)) || got.Merged != c.merged {
			t.Errorf("%s: %+v, want %s at %s, merged %v", c.name, got, c.want, when, c.merged)
		}
	}
}

// TestNextRises: whoever owns the mutex, and whatever the clock says, a tick that was begun is never due again.
func TestNextRises(t *testing.T) {
	for _, p := range []Plan{{Every: 7 * time.Second}, {Every: time.Second, FixedDelay: true}, {Calendar: hours{}}} {
		last := Record{Tick: at("10:00:00")}
		for _, clock := range []string{"10:00:00", "09:00:00", "10:00:01", "10:30:00", "08:00:00", "13:59:59", "14:00:00"} {
			d := p.Next(at(clock), last, at(clock))
			if !d.Tick.After(last.Tick) {
				t.Fatalf("%+v at %s: %s is due after %s", p, clock, d.Tick, last.Tick)
			}
			last = Record{Tick: d.Tick, Ended: d.Tick.Add(time.Second)}
		}
	}
}

func TestRecord(t *testing.T) {
	for _, r := range []Record{
		{},
		{Tick: at("10:00:00").Add(7 * time.Millisecond), Fence: 1<<53 - 1},
		{Tick: at("10:00:00"), Fence: 1, Ended: at("10:00:02")},
	} {
		if got, err := Parse(r.String()); err != nil || got != r {
			t.Errorf("%q is read as %+v, %v", r, got, err)
		}
	}
	if r, err := Parse("tick=2026-11-30T10:00:00.000Z more=1"); err != nil || !r.Tick.Equal(at("10:00:00")) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{"x", "tick=today", "fence=1", "tick=2026-11-30T10:00:00.000Z ended=x"} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
	now := at("10:00:00")
	if (Record{Tick: now.Add(48 * time.Hour)}).Credible(now) || !(Record{Tick: now.Add(time.Hour)}).Credible(now) || !(Record{}).Credible(now) {
		t.Error("what is credible?")
	}
}
