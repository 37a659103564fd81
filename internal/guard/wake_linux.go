package guard

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// A waker interrupts a poll from another goroutine.
type waker struct{ fd int }

func newWaker() (waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return waker{fd}, err
}

func (w waker) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(w.fd, one[:]) // fails only when the counter is full: awake anyhow
}

// poll sleeps until the waker or one of the others (that are not negative) has something, or for the time
// given; a negative time is for ever.
func (w waker) poll(timeout time.Duration, others ...int) {
	poll(timeout, append(others, w.fd)...)
	var buf [8]byte
	unix.Read(w.fd, buf[:])
}

func poll(timeout time.Duration, of ...int) {
	fds := make([]unix.PollFd, len(of))
	for i, fd := range of {
		fds[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	// An interrupted or failed poll is a spurious wake-up; callers look at everything again.
	unix.Ppoll(fds, ts, nil)
}
