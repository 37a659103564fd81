package cmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/simba-lock/simba/lease"
)

// describe.go says who has a mutex, in words. What came from a backend is
// escaped here.

// who is an owner or a waiter for people: 0:4242@web3 (backup.sh).
func who(id string, info lease.Info) string {
	s := escape(lease.ShortID(id))
	if !strings.Contains(s, "@") && info.Host != "" { // an id of the form uuid
		s = fmt.Sprintf("%s, %d@%s", s, info.PID, escape(info.Host))
	}
	if info.Program != "" {
		s += " (" + escape(info.Program) + ")"
	}
	return s
}

// when is a time of day, with the day if that is not today.
func when(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// left rounds a remaining time so that people can read it.
func left(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// busyText says why a mutex could not be had.
func busyText(e *lease.BusyError, acquired, now time.Time) string {
	a := e.Answer
	var s string
	switch a.State {
	case lease.Promised, lease.Free:
		s = "free, but promised to a waiter"
		if a.Owner != "" {
			s += " " + who(a.Owner, a.Info)
		}
		if a.Remaining > 0 && a.Remaining < lease.Forever {
			s += " for " + left(a.Remaining)
		}
	case lease.Cooldown:
		s = "nobody may have it for another " + left(a.Remaining)
	default:
		s = "held"
		if a.Owner != "" {
			s += " by " + who(a.Owner, a.Info)
		}
		if !acquired.IsZero() {
			s += " since " + when(acquired, now)
		}
		if a.Remaining > 0 && a.Remaining != lease.Forever {
			s += ", lease ends in " + left(a.Remaining)
		}
	}
	if e.Waited >= time.Second {
		s += "; waited " + left(e.Waited)
	}
	return "busy: " + s
}
