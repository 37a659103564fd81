package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

// ownership is what an owner holds open.
type ownership struct {
	anchors []*os.File
	lock    inode // the lock file that is locked and was last found at its path
	root    inode // the directory that is claimed
	claimed bool
	rec     record
	file    *os.File // the record, as this owner wrote it; nil if it could not
	revoked bool
	// begun: the work was started under this lease, so what earlier owners left
	// has been ended.
	begun bool
}

func (o *ownership) close() {
	if o.file != nil {
		_ = o.file.Close()
	}
	for _, f := range o.anchors {
		_ = f.Close()
	}
}

// take locks the mutex, if it is free and nothing is suspicious about it. Until
// everything is in order the locks belong to this call and end with it.
func (s *session) take(p *place, r lease.TryRequest) (lease.Answer, error) {
	lock, st, err := p.openLock()
	if err != nil {
		return lease.Answer{}, err
	}
	kept := false
	file := os.NewFile(uintptr(lock), p.path(lockName))
	defer func() {
		if !kept {
			_ = file.Close()
		}
	}()
	ok, err := tryLock(lock)
	if err != nil {
		return lease.Answer{}, sorted(p.path(lockName), err)
	}
	if !ok {
		return s.wait(p, r, front{})
	}
	if !p.leadsTo(inodeOf(st)) {
		return lease.Answer{}, errAgain
	}
	at := claimByte(s.mutex)
	claimed := claim(p.root, at) // ends with p, unless the root is kept
	if isClaimed(p.root, at) {
		return s.doubt(p, r)
	}
	last, _, old, err := p.openRecord(unix.O_RDWR)
	if err != nil {
		return lease.Answer{}, err
	}
	defer func() {
		if !kept && old != nil {
			_ = old.Close()
		}
	}()
	if last == nil || !last.released() || last.Lock != st.Ino {
		if a, err := s.suspect(p, r); err != nil || a.State == lease.Held {
			return a, err
		}
	}
	rec, err := s.newRecord(last, st.Ino, r)
	if err != nil {
		return lease.Answer{}, err
	}
	written, err := p.writeRecord(rec, old)
	old = nil
	if err != nil {
		return lease.Answer{}, sorted(p.path(recordName), err)
	}
	kept = true
	s.own = &ownership{
		anchors: []*os.File{file, p.keepRoot()},
		lock:    inodeOf(st), root: p.rootRef, claimed: claimed,
		rec: *rec, file: written,
	}
	if s.ticket != nil {
		// It is dead from now on, and wakes the one behind. Removing it can wait
		// until the next look of a waiter or until the release.
		_ = s.ticket.file.Close()
	}
	s.changed()
	return s.mine(), nil
}

func (s *session) newRecord(last *record, ino uint64, r lease.TryRequest) (*record, error) {
	fence, err := nextFence(last, r.Seen.Fence)
	if err != nil {
		return nil, err
	}
	return &record{
		Mutex: s.mutex, Owner: s.c.ID, Info: s.c.Info, Fence: fence,
		Acquired: time.Now().UTC().Truncate(time.Millisecond),
		TTL:      r.TTL.Milliseconds(), Lease: r.Lease.Milliseconds(),
		Boot: bootID(), Lock: ino, Pending: last.unreleased(s.c.ID),
	}, nil
}

// suspect looks for a job that is at work although nobody holds the lock: its
// owner's directory was removed or replaced, and he has not noticed yet.
func (s *session) suspect(p *place, r lease.TryRequest) (lease.Answer, error) {
	if s.b.guards == nil {
		return lease.Answer{}, nil
	}
	pids, err := s.b.guards(Tag(s.b.dir, s.mutex))
	if err != nil {
		return lease.Answer{}, fmt.Errorf("cannot look for a job that still runs under %s: %w", s.mutex, err)
	}
	if len(pids) == 0 {
		return lease.Answer{}, nil
	}
	a, err := s.doubt(p, r)
	if a.Owner == "" {
		a.Info = lease.Info{Host: lease.Host(), PID: pids[0]}
	}
	return a, err
}

// doubt: the lock was free, but somebody owns the mutex all the same. The end of
// that ownership may ring no bell.
func (s *session) doubt(p *place, r lease.TryRequest) (lease.Answer, error) {
	a, err := s.wait(p, r, front{})
	a.State, a.LookBy = lease.Held, lookSoon
	return a, ignore(err, errAgain)
}

// openLock opens the lock file and makes it if it is missing. It appears with
// its final mode and with the mutex's name in it, which is for people and for
// names that are hashed.
func (p *place) openLock() (int, *unix.Stat_t, error) {
	path := p.path(lockName)
	for range 3 {
		fd, st, err := p.openFile(p.dir, lockName, path, unix.O_RDWR)
		if !errors.Is(err, unix.ENOENT) {
			return fd, st, sorted(path, err)
		}
		tmp := ".lock-" + random()
		fd, err = p.create(p.dir, tmp)
		if err != nil {
			return -1, nil, sorted(path, err)
		}
		err = write(fd, []byte(p.mutex+"\n"))
		_ = unix.Close(fd)
		if err == nil {
			err = ignore(unix.Linkat(p.dir, tmp, p.dir, lockName, 0), unix.EEXIST)
		}
		_ = unix.Unlinkat(p.dir, tmp, 0)
		if err != nil {
			return -1, nil, sorted(path, err)
		}
	}
	return -1, nil, sorted(path, unix.ENOENT)
}

// leadsTo tells whether the lock's path, from the top, ends at this inode.
func (p *place) leadsTo(i inode) bool {
	got, err := statPath(p.path(lockName))
	return err == nil && got == i
}

func statPath(path string) (inode, error) {
	var st unix.Stat_t
	err := unix.Fstatat(unix.AT_FDCWD, path, &st, unix.AT_SYMLINK_NOFOLLOW)
	return inodeOf(&st), err
}

// Renew looks whether everything is in its place, and puts it back if it is
// not; it never answers Gone to an owner. What cannot be written is no reason
// to end the work as long as the kernel's locks are held.
func (s *session) Renew(ctx context.Context, r lease.RenewRequest) (lease.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return lease.Answer{}, err
	}
	if s.own == nil {
		return s.look()
	}
	p, err := s.b.enter(s.mutex, false)
	if err == nil {
		inPlace := s.own.inPlace(p)
		if inPlace {
			s.own.keepRecord(p)
			if revoked, err := p.readRevoked(s.c.ID); err == nil {
				s.own.revoked = revoked
			}
		}
		p.close()
		if inPlace {
			return s.mine(), nil
		}
	}
	return s.restore(ctx)
}

// look is the answer to somebody who owns nothing.
func (s *session) look() (lease.Answer, error) {
	p, err := s.b.enter(s.mutex, false)
	if errors.Is(err, fs.ErrNotExist) {
		return lease.Answer{State: lease.Gone}, nil
	}
	if err != nil {
		return lease.Answer{}, err
	}
	defer p.close()
	held, err := p.held()
	if err != nil || !held || p.dir < 0 {
		return lease.Answer{State: lease.Gone}, err
	}
	return p.heldBy()
}

// inPlace: the paths still lead to what is locked.
func (o *ownership) inPlace(p *place) bool {
	return p.dir >= 0 && p.rootRef == o.root && p.leadsTo(o.lock)
}

// recordInPlace: the record is still the file, and the text, of this owner.
func (o *ownership) recordInPlace(p *place) bool {
	var st unix.Stat_t
	if o.file == nil || unix.Fstat(int(o.file.Fd()), &st) != nil {
		return false
	}
	at, err := statPath(p.path(recordName))
	if err != nil || at != inodeOf(&st) {
		_ = o.file.Close()
		o.file = nil
		return false
	}
	b, err := readFD(int(o.file.Fd()), maxRead)
	return err == nil && bytes.Equal(b, o.rec.encode(st.Size))
}

// keepRecord writes the record again if somebody removed or changed it.
func (o *ownership) keepRecord(p *place) {
	if !o.recordInPlace(p) {
		o.writeRecord(p)
	}
}

// writeRecord may fail: then there is none to be kept.
func (o *ownership) writeRecord(p *place) {
	o.file, _ = p.writeRecord(&o.rec, o.file)
}

const (
	// restorePatience is for how long another's claim is taken for that of
	// somebody who is about to back off: he reads a file, and may look through
	// the process table.
	restorePatience = 250 * time.Millisecond
	restorePause    = time.Millisecond
)

// restore puts back what was removed or replaced, see the package comment. What
// is held already stays held.
func (s *session) restore(ctx context.Context) (lease.Answer, error) {
	p, err := s.b.enter(s.mutex, true)
	if err != nil {
		return s.mine(), nil // nobody gets in there
	}
	defer p.close()
	o := s.own
	at := claimByte(s.mutex)
	if p.rootRef != o.root {
		o.claimed = claim(p.root, at)
		// Kept also if the mutex is lost: nobody else then gets in beside the
		// work that is still to be ended. p is needed until the end.
		defer func() { o.anchors = append(o.anchors, p.keepRoot()) }()
		for began := time.Now(); isClaimed(p.root, at); {
			if time.Since(began) > restorePatience || !pause(ctx, restorePause) {
				return s.lost(p)
			}
		}
		o.root = p.rootRef
	}
	lock, st, err := p.openLock()
	if err != nil {
		return s.mine(), nil
	}
	file := os.NewFile(uintptr(lock), filepath.Join(s.b.dir, lockName))
	for began := time.Now(); ; {
		ok, err := tryLock(lock)
		if ok {
			break
		}
		if err == nil && time.Since(began) < restorePatience/10 && pause(ctx, restorePause) {
			continue
		}
		_ = file.Close()
		if o.claimed || err != nil {
			return s.mine(), nil // whoever has it backs off; the next renewal locks it
		}
		return s.lost(p)
	}
	o.anchors = append(o.anchors, file)
	o.lock = inodeOf(st)
	o.rec.Lock = st.Ino
	o.keepRecord(p)
	s.changed()
	return s.mine(), nil
}

// pause waits, and tells whether the context let it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lost: somebody else owns the mutex. The locks that this owner still has are
// kept until it releases, since its work is only now told to stop.
func (s *session) lost(p *place) (lease.Answer, error) {
	a, err := p.heldBy()
	if a.Owner == s.c.ID {
		a.Owner, a.Info, a.Fence = "", lease.Info{}, 0
	}
	return a, err
}

// sign writes into the record that the owner has released, unless the path
// leads to what somebody else has locked by now.
func (o *ownership) sign(p *place) {
	if !o.inPlace(p) {
		return
	}
	_ = unix.Unlinkat(p.dir, revokeName, 0)
	if o.begun && len(o.rec.Pending) > 0 {
		o.rec.Pending = nil
		o.writeRecord(p)
	} else {
		o.keepRecord(p)
	}
	if o.file != nil {
		_ = o.rec.end(o.file)
	}
}
