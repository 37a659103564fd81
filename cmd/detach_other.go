//go:build !linux

package cmd

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func executable() (string, error) { return os.Executable() }

// beFound: the file backend looks for nobody here.
func beFound(string) {}

// setProcessName: it is that of the arguments here.
func setProcessName(string) {}

func world() string { return "" }

// watched is a process whose end is waited for.
type watched struct {
	PID     int
	Started int64 // not known here
}

var errNoProcess = errors.New("there is no such process")

func findProcess(pid int) (w watched, err error) {
	if err := unix.Kill(pid, 0); err != nil && err != unix.EPERM {
		return w, errNoProcess
	}
	return watched{PID: pid}, nil
}

// ended returns a channel that is closed when the process has ended.
func (w watched) ended() <-chan struct{} {
	over := make(chan struct{})
	queue, err := unix.Kqueue()
	if err == nil {
		var e unix.Kevent_t
		unix.SetKevent(&e, w.PID, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
		e.Fflags = unix.NOTE_EXIT
		_, err = unix.Kevent(queue, []unix.Kevent_t{e}, nil, nil)
	}
	if err != nil { // it has ended, or cannot be watched: nothing is kept for it
		close(over)
		return over
	}
	go func() {
		defer close(over)
		for {
			events := make([]unix.Kevent_t, 1)
			if n, err := unix.Kevent(queue, nil, events, nil); n > 0 || err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	return over
}

func programOf(int) string { return "acquire" }
