package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Record is what the owners of a schedule leave in the store for the next one.
type Record struct {
	Tick  time.Time // the latest one that was begun; zero: none was
	Fence uint64    // of the owner that began it; with Tick it names one run
	Ended time.Time // when its run had ended; zero: not known
}

// Stamp is the form of an instant, in UTC, to the millisecond like the ticks.
const Stamp = "2006-01-02T15:04:05.000Z"

// String is the form in which it is stored: tick=… fence=… and, once that is known, ended=…
func (r Record) String() string {
	if r.Tick.IsZero() {
		return ""
	}
	s := fmt.Sprintf("tick=%s fence=%d", r.Tick.UTC().Format(Stamp), r.Fence)
	if !r.Ended.IsZero() {
		s += " ended=" + r.Ended.UTC().Format(Stamp)
	}
	return s
}

// Parse reads what String wrote; words that it does not know may follow. An empty
// text is a record of nothing.
func Parse(text string) (Record, error) {
	var r Record
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "tick":
			r.Tick, err = time.Parse(Stamp, value)
		case "ended":
			r.Ended, err = time.Parse(Stamp, value)
		case "fence":
			_, err = fmt.Sscanf(value, "%d", &r.Fence)
		}
		if err != nil {
			return Record{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if r.Tick.IsZero() && text != "" {
		return Record{}, fmt.Errorf("there is no tick in %q", text)
	}
	return r, nil
}

// aheadOfTime is how far a tick may lie in the future: as much as clocks of hosts are
// apart that somebody still calls right. What lies further was written by one that was wrong.
const aheadOfTime = 24 * time.Hour

// Credible is false for a tick so far in the future that to wait for the one after it
// would silence the schedule.
func (r Record) Credible(now time.Time) bool { return r.Tick.Before(now.Add(aheadOfTime)) }
