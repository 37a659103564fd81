package lease

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// BootClock is the host's CLOCK_BOOTTIME.
type BootClock struct{}

func (BootClock) Now() Instant {
	var ts unix.Timespec
	// Cannot fail: Linux has had this clock since 2.6.39.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return Instant(ts.Nano())
}

func (BootClock) Wall() time.Time { return time.Now() }

// At arms a timerfd of the same clock: a timer of the runtime would count from
// where it stood before a suspend and fire too late after it.
func (c BootClock) At(t Instant) (<-chan struct{}, func()) {
	done := make(chan struct{})
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return polled(c, t, done)
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(t), 1))}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		_ = unix.Close(fd)
		return polled(c, t, done)
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var ticks [8]byte
		if _, err := f.Read(ticks[:]); err == nil {
			close(done)
		}
	}()
	return done, func() {
		_ = f.Close()
		<-ended
	}
}
