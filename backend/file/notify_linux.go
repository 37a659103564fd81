package file

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	goneMask = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	entries  = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
)

// A record is written over in place, which shows as IN_MODIFY. Looking at a file opens it for reading only, so IN_CLOSE_WRITE comes from
// those who lock it. Unlinking shows as IN_ATTRIB as long as it is open.
var masks = map[subject]uint32{
	standing: goneMask,
	entering: entries | goneMask,
	closing:  entries | goneMask | unix.IN_CLOSE_WRITE | unix.IN_MODIFY,
	locked:   unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | goneMask,
	linked:   unix.IN_ATTRIB | goneMask,
}

// notifier is an inotify instance that a context or another goroutine can wake.
type notifier struct {
	file   *os.File
	fd     int
	wds    map[watched]int
	kicked atomic.Bool
	buf    [4096]byte
}

func newNotifier() (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &notifier{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, wds: make(map[watched]int)}, nil
}

func (n *notifier) close() { _ = n.file.Close() }

// kick ends the present or the next wait. It may be called at any time.
func (n *notifier) kick() {
	n.kicked.Store(true)
	_ = n.file.SetReadDeadline(time.Unix(1, 0))
}

// set makes these the files that are watched. It tells whether anything was
// added: then what was seen before may be old.
func (n *notifier) set(want []watched) (added bool, err error) {
	keep := make(map[watched]bool, len(want))
	for _, w := range want {
		keep[w] = true
		if _, ok := n.wds[w]; ok {
			continue
		}
		wd, err := unix.InotifyAddWatch(n.fd, w.path, masks[w.why])
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
			return false, err
		case err == nil:
			// A path that leads elsewhere by now is seen at the next look.
			n.wds[w] = wd
		}
		added = true
	}
	for w, wd := range n.wds {
		if !keep[w] {
			delete(n.wds, w)
			if !n.uses(wd) {
				_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
			}
		}
	}
	return added, nil
}

func (n *notifier) uses(wd int) bool {
	for _, other := range n.wds {
		if other == wd {
			return true
		}
	}
	return false
}

// wait blocks until something happens, until the deadline, or until it is
// kicked. closed tells that a file was closed that somebody could have locked:
// the event comes a moment before the lock ends.
func (n *notifier) wait(deadline time.Time) (happened, closed bool) {
	_ = n.file.SetReadDeadline(deadline)
	if n.kicked.Swap(false) {
		return true, false
	}
	got, err := n.file.Read(n.buf[:])
	if err != nil {
		return n.kicked.Swap(false), false
	}
	for b := n.buf[:got]; len(b) >= unix.SizeofInotifyEvent; {
		wd := int(int32(binary.NativeEndian.Uint32(b)))
		mask := binary.NativeEndian.Uint32(b[4:])
		if mask&unix.IN_CLOSE_WRITE != 0 {
			closed = true
		}
		if mask&unix.IN_IGNORED != 0 {
			for w, have := range n.wds {
				if have == wd {
					delete(n.wds, w)
				}
			}
		}
		b = b[unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(b[12:]):]
	}
	return true, closed
}
