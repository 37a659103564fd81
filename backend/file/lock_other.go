//go:build unix && !linux

package file

import (
	"io"

	"golang.org/x/sys/unix"
)

// Without OFD locks, flock(2) is the lock that belongs to an open file. The
// kernels of this family keep both kinds in one list, so F_GETLK sees it without
// taking anything. There are no claims on directories here.

func tryLock(fd int) (bool, error) {
	for {
		switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return false, nil
		default:
			return err == nil, err
		}
	}
}

func isLocked(fd int) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	for {
		if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l); err != unix.EINTR {
			return err == nil && l.Type != unix.F_UNLCK, err
		}
	}
}

func claim(int, int64) bool     { return false }
func isClaimed(int, int64) bool { return false }

func bootID() string { return "" }

// renameNew may replace an empty directory that another made in this instant;
// whoever is inside begins again.
func renameNew(dir int, from, to string) error {
	return unix.Renameat(dir, from, dir, to)
}

// nudge: waiters look by themselves.
func (p *place) nudge() {}
