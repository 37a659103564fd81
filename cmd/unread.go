package cmd

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// untilUnread returns when nobody can read any more what is written to f: the
// other end of a pipe was closed. A write would tell as well, but there may be
// nothing to write for hours.
func untilUnread(f *os.File) {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil, fds[0].Revents&unix.POLLNVAL != 0:
			select {} // not to be known
		case fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
			return
		}
	}
}
