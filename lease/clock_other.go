//go:build !linux

package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock is the host's CLOCK_MONOTONIC, read from the kernel: on macOS and
// the BSDs it goes on during sleep, other than the runtime's own clock there.
type BootClock struct{}

func (BootClock) Now() Instant {
	var ts unix.Timespec
	_ = unix.ClockGettime(clockMonotonic, &ts)
	return Instant(ts.Nano())
}

func (BootClock) Wall() time.Time { return time.Now() }

func (c BootClock) At(t Instant) (<-chan struct{}, func()) {
	return polled(c, t, make(chan struct{}))
}
