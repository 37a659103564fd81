package file

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

var _ lease.Backend = (*Backend)(nil)

// Options are what the caller knows and a directory does not.
type Options struct {
	// LiveGuards finds the processes that watch over a running job and carry
	// this tag (see [Tag]). It is asked when a lock file cannot be trusted.
	// Without it, a directory that is removed under an owner may be locked anew
	// by somebody else until the owner notices.
	LiveGuards func(tag string) ([]int, error)
	// Private is for the default directory: it is made with mode 0700, and
	// refused if it is anybody else's, can be written by others or is a link.
	Private bool
}

// Backend is a directory of mutexes.
type Backend struct {
	dir     string // absolute
	name    string
	private bool
	guards  func(tag string) ([]int, error)
	mode    atomic.Uint32 // of the directory as it was last seen; 0: not yet
}

// New is the backend of an absolute path. It does not touch the directory: one
// that is missing has no mutexes, and is made by the first contender.
func New(dir string, o Options) *Backend {
	dir = filepath.Clean(dir)
	u := url.URL{Scheme: "file", Path: realPath(dir)}
	if o.Private {
		// A link in place of the directory itself is refused, not followed.
		u.Path = filepath.Join(realPath(filepath.Dir(dir)), filepath.Base(dir))
	}
	return &Backend{dir: dir, name: u.String(), private: o.Private, guards: o.LiveGuards}
}

// Name is the URL of the real directory.
func (b *Backend) Name() string { return b.name }

// Close does nothing: sessions hold what there is to close.
func (b *Backend) Close() error { return nil }

// Session prepares a contender; it is also lease.Anchored.
func (b *Backend) Session(mutex string, c lease.Contender) lease.Session {
	return &session{b: b, mutex: mutex, c: c}
}

// Inspect asks the kernel who holds the lock, and the record for his name.
func (b *Backend) Inspect(ctx context.Context, mutex string) (lease.Snapshot, error) {
	s := lease.Snapshot{Mutex: mutex}
	if err := ctx.Err(); err != nil {
		return s, err
	}
	p, err := b.enter(mutex, false)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer p.close()
	held, err := p.held()
	if err != nil || p.dir < 0 && !held {
		return s, err
	}
	if p.dir < 0 {
		s.State, s.TTL, s.Lease = lease.Held, lease.Forever, lease.Forever
		s.Detail = "its directory was removed while it is held"
		return s, nil
	}
	rec, detail, err := p.readRecord()
	if err != nil {
		return s, err
	}
	s.Detail = detail
	if s.Waiters, err = p.waiters(); err != nil {
		return s, err
	}
	switch {
	case held:
		s.State, s.TTL, s.Lease = lease.Held, lease.Forever, lease.Forever
		if rec == nil || rec.released() { // the owner has not written it yet
			break
		}
		s.Owner, s.Info, s.Fence, s.Acquired = rec.Owner, rec.Info, rec.Fence, rec.Acquired
		s.Revoked, _ = p.readRevoked(rec.Owner)
		return s, nil
	case rec.cooldown() > 0:
		s.State, s.Lease = lease.Cooldown, rec.cooldown()
	case len(s.Waiters) > 0:
		s.State, s.Lease = lease.Promised, lease.PromiseLife
	}
	if rec != nil {
		s.Last, s.Released, s.Fence = rec.Owner, rec.released(), rec.Fence
	}
	return s, nil
}

// held asks both locks of an owner, without taking either.
func (p *place) held() (bool, error) {
	if isClaimed(p.root, claimByte(p.mutex)) {
		return true, nil
	}
	if p.dir < 0 {
		return false, nil
	}
	fd, _, err := p.openFile(p.dir, lockName, p.path(lockName), unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, sorted(p.path(lockName), err)
	}
	defer unix.Close(fd)
	locked, err := isLocked(fd)
	return locked, sorted(p.path(lockName), err)
}

// List names the mutexes that have a directory here.
func (b *Backend) List(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &place{b: b, root: -1, dir: -1}
	defer p.close()
	err := p.openRoot(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := readNames(p.root)
	if err != nil {
		return nil, sorted(b.dir, err)
	}
	var names []string
	for _, e := range entries {
		var st unix.Stat_t
		err := unix.Fstatat(p.root, e+"/"+lockName, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT || err == unix.ENOTDIR {
			continue // not ours, or nobody has locked it yet
		}
		if mutex, ok := unescape(e); ok {
			names = append(names, mutex)
		} else if strings.Contains(e, hashMark) {
			if mutex := p.hashed(e); mutex != "" {
				names = append(names, mutex)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// hashed is the name that a mutex's lock file tells, if it is the right one.
func (p *place) hashed(entry string) string {
	fd, err := open(p.root, entry, dirFlags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	b, err := p.read(fd, lockName, maxID)
	mutex := strings.TrimSuffix(string(b), "\n")
	if err != nil || escape(mutex) != entry {
		return ""
	}
	return mutex
}

// Revoke leaves a mark that wakes the owner's doorbell.
func (b *Backend) Revoke(ctx context.Context, mutex, owner string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := b.enter(mutex, false)
	if errors.Is(err, fs.ErrNotExist) {
		return lease.ErrNotOwner
	}
	if err != nil {
		return err
	}
	defer p.close()
	held, err := p.held()
	if err != nil {
		return err
	}
	if !held || p.dir < 0 {
		return lease.ErrNotOwner
	}
	rec, _, err := p.readRecord()
	if err != nil {
		return err
	}
	if rec == nil || rec.released() || rec.Owner != owner {
		return lease.ErrNotOwner
	}
	return sorted(p.path(revokeName), p.writeRevoked(owner))
}

// Warnings says what is doubtful about the directory, for people.
func (b *Backend) Warnings(ctx context.Context) []string {
	if ctx.Err() != nil {
		return nil
	}
	path := b.dir
	for {
		kind, err := networkFS(path)
		switch {
		case err == nil && kind != "":
			return []string{b.dir + " is on a network file system (" + kind + "): its locks may not reach other hosts, or may be lost while a job runs"}
		case err == nil || path == filepath.Dir(path):
			return nil
		}
		path = filepath.Dir(path)
	}
}
