package lease

import "time"

// Instant is a reading of a [Clock], as the time since its zero. Instants of
// one clock compare; it is an alias so that they pass through packages which do
// not know this one.
type Instant = time.Duration

// Clock measures how long ago something was, also across a suspend of the
// machine: CLOCK_BOOTTIME where there is one. Go's own monotonic clock stands
// still during a suspend while the backend's goes on, so a lease must never be
// counted with it.
type Clock interface {
	Now() Instant
	// At returns a channel that is closed when the clock has reached t, and a
	// function that frees the timer; the channel may never be closed after that.
	At(t Instant) (<-chan struct{}, func())
	// Wall is the time of day, for people only.
	Wall() time.Time
}
