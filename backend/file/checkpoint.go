package file

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

const checkpointName = "checkpoint"

// Checkpoint keeps the text in a file of the mutex's directory. Only the owner writes,
// so reading and writing are one step. It is synced to disk, since it is to outlive
// the machine's crash: a tick that was run must not be run again.
func (s *session) Checkpoint(ctx context.Context, from, to string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	if s.own == nil {
		return "", lease.ErrNotOwner
	}
	p, err := s.b.enter(s.mutex, true)
	if err != nil {
		return "", err
	}
	defer p.close()
	if !s.own.inPlace(p) {
		return "", errors.New("the lock file was removed, and is not put back yet")
	}
	b, err := p.read(p.dir, checkpointName, lease.MaxCheckpoint+1)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return "", err
	}
	// A line, so a text that was cut off by a full disk is none.
	now, whole := strings.CutSuffix(string(b), "\n")
	if !whole {
		now = ""
	}
	if now != from || from == to {
		return now, nil
	}
	err = p.replace(checkpointName, []byte(to+"\n"), true)
	for _, passing := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS} {
		// A schedule that has begun waits until there is room again.
		if errors.Is(err, passing) {
			return "", fmt.Errorf("%s: %w", p.path(checkpointName), err)
		}
	}
	return to, sorted(p.path(checkpointName), err)
}
