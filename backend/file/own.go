package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	if s.emptied(last) {
		known := s.seen
		a, err := s.doubt(p, r)
		s.seen = known // what the record says meanwhile is older
		a.Owner, a.Info, a.Fence = known.rec.Owner, known.rec.Info, known.rec.Fence
		return a, err
	}
	if rest := last.cooldown(); rest > 0 {
		return s.cool(p, r, rest)
	}
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
		// The lock is closed last: its end is what wakes the next.
		anchors: []*os.File{p.keepRoot(), file},
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
	fence, err := nextFence(last, max(r.Seen.Fence, s.seen.rec.Fence))
	if err != nil {
		return nil, err
	}
	rec := &record{
		Mutex: s.mutex, Owner: s.c.ID, Info: s.c.Info, Fence: fence,
		Acquired: time.Now().UTC().Truncate(time.Millisecond),
		TTL:      r.TTL.Milliseconds(), Lease: r.Lease.Milliseconds(),
		Boot: bootID(), Lock: ino, Pending: last.unreleased(s.c.ID),
	}
	if r.Hold > 0 {
		rec.Hold, rec.Reading = r.Hold.Milliseconds(), lease.BootClock{}.Now().Milliseconds()
	}
	return rec, nil
}

// cool: it is free, but its last owner had it kept from everybody for longer.
func (s *session) cool(p *place, r lease.TryRequest, rest time.Duration) (lease.Answer, error) {
	s.stuck, s.coolUntil = stuck{}, time.Now().Add(rest)
	rank, err := s.enqueue(p, r, front{})
	return lease.Answer{State: lease.Cooldown, Remaining: rest, Rank: rank}, err
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
	a, _, err := p.heldBy()
	return a, err
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

// sign writes into the record that the owner has released, unless the path
// leads to what somebody else has locked by now. What was of no use is not held.
func (o *ownership) sign(p *place, unused bool) {
	if !o.inPlace(p) {
		return
	}
	_ = unix.Unlinkat(p.dir, revokeName, 0)
	ends := o.begun && len(o.rec.Pending) > 0
	if ends {
		o.rec.Pending = nil
	}
	if unused {
		o.rec.Hold = 0
	}
	if ends || unused {
		o.writeRecord(p)
	} else {
		o.keepRecord(p)
	}
	if o.file != nil {
		_ = o.rec.end(o.file)
	}
}
