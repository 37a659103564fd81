package file

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The locks belong to the open file description: they are shared with whoever
// was sent the descriptor, and end with its last close, however that happens.

// tryLock takes the write lock of a whole file if it is free.
func tryLock(fd int) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := fcntl(fd, unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// isLocked asks without taking it for an instant, so that nobody is told busy
// because of the question. It needs no right to write.
func isLocked(fd int) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := fcntl(fd, unix.F_OFD_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK, err
}

// claim sets a claim on a directory. A file system that has no such locks is
// done without: the claim is only the second of two locks.
func claim(fd int, at int64) (ok bool) {
	l := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: at, Len: 1}
	return fcntl(fd, unix.F_OFD_SETLK, &l) == nil
}

// isClaimed tells whether another open file description than fd's has a claim.
func isClaimed(fd int, at int64) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: at, Len: 1}
	return fcntl(fd, unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}

func fcntl(fd, cmd int, l *unix.Flock_t) error {
	for {
		if err := unix.FcntlFlock(uintptr(fd), cmd, l); err != unix.EINTR {
			return err
		}
	}
}

// bootID differs after every start of the machine. What an owner of another
// boot left behind is gone.
var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

// renameNew renames a directory to a name that must not exist.
func renameNew(dir int, from, to string) error {
	return unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
}

// nudge wakes the first waiter once more, now that the lock is surely free: the
// closing was told before that, and the waiter it woke often runs in place of
// the one that was about to drop the lock.
func (p *place) nudge() {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	_ = unix.UtimesNanoAt(p.dir, lockName, now, unix.AT_SYMLINK_NOFOLLOW)
}
