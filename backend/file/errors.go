package file

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/simba-lock/simba/lease"
)

var (
	// ErrDefaultDir says that there is no default directory, since it is not
	// known where this user is at home.
	ErrDefaultDir = errors.New("no default directory for mutexes")

	errClosed = errors.New("the session is closed")
)

// lasting are the errors that trying again does not mend, with what to say if
// the system's own words would mislead.
var lasting = []struct {
	errno syscall.Errno
	text  string
}{
	{syscall.EACCES, ""},
	{syscall.EPERM, ""},
	{syscall.ENOSPC, ""},
	{syscall.EDQUOT, ""},
	{syscall.EFBIG, ""},
	{syscall.EROFS, ""},
	{syscall.ENAMETOOLONG, ""},
	{syscall.ENXIO, "is a pipe or a device, not a lock of simba's"},
	{syscall.EISDIR, "is a directory, not a lock of simba's"},
	{syscall.ENOTDIR, "is not a directory (a symbolic link is not followed)"},
	{syscall.ELOOP, "is a symbolic link, which is not followed"},
}

// sorted says what could not be done, and whether trying again may help.
func sorted(path string, err error) error {
	if err == nil || lease.IsPermanent(err) {
		return err
	}
	for _, l := range lasting {
		if !errors.Is(err, l.errno) {
			continue
		}
		if l.text != "" {
			return lease.Permanent(fmt.Errorf("%s %s: %w", path, l.text, l.errno))
		}
		return lease.Permanent(fmt.Errorf("%s: %w", path, bare(err)))
	}
	return fmt.Errorf("%s: %w", path, bare(err))
}

// bare drops the path that the os package put in front.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func refuse(path, format string, args ...any) error {
	return lease.Permanent(fmt.Errorf("%s "+format, append([]any{path}, args...)...))
}
