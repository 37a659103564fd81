package backendtest

import (
	"time"

	"github.com/simba-lock/simba/lease"
)

var _ lease.Clock = BubbleClock{}

// BubbleClock counts by package time, so that it follows the clock of a
// testing/synctest bubble. Its zero is the one of the Unix epoch.
type BubbleClock struct{}

// Now is the time of day.
func (BubbleClock) Now() lease.Instant { return lease.Instant(time.Now().UnixNano()) }

// Wall is the same.
func (BubbleClock) Wall() time.Time { return time.Now() }

// At sets a timer of package time.
func (c BubbleClock) At(t lease.Instant) (<-chan struct{}, func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(t-c.Now(), func() { close(done) })
	return done, func() { timer.Stop() }
}
