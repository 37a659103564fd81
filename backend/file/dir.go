package file

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// inode tells one file from another that took its name.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode {
	return inode{uint64(st.Dev), st.Ino} //nolint:unconvert // 32 bits on some systems
}

// place is a mutex's directory in the store, opened. Everything in it is
// reached relative to these descriptors, never by a path that somebody could
// redirect in between.
type place struct {
	b       *Backend
	mutex   string
	root    int
	rootSt  unix.Stat_t
	dir     int // -1 if the mutex has none
	rootRef inode
}

const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	fileFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
)

// enter opens the store and the mutex's directory, and makes them if asked to.
// Without that, what is missing is fs.ErrNotExist (the store) or dir -1.
func (b *Backend) enter(mutex string, create bool) (*place, error) {
	p := &place{b: b, mutex: mutex, root: -1, dir: -1}
	if err := p.openRoot(create); err != nil {
		p.close()
		return nil, err
	}
	if err := p.openDir(create); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *place) close() {
	for _, fd := range []int{p.root, p.dir} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	p.root, p.dir = -1, -1
}

// keepRoot hands the root's descriptor over to the caller.
func (p *place) keepRoot() *os.File {
	f := os.NewFile(uintptr(p.root), p.b.dir)
	p.root = -1
	return f
}

func (p *place) openRoot(create bool) error {
	flags := dirFlags
	if p.b.private {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := open(unix.AT_FDCWD, p.b.dir, flags, 0)
	if create && errors.Is(err, unix.ENOENT) {
		if err := p.b.makeRoot(); err != nil {
			return sorted(p.b.dir, err)
		}
		fd, err = open(unix.AT_FDCWD, p.b.dir, flags, 0)
	}
	if err != nil {
		return sorted(p.b.dir, err)
	}
	p.root = fd
	if err := unix.Fstat(fd, &p.rootSt); err != nil {
		return sorted(p.b.dir, err)
	}
	p.rootRef = inodeOf(&p.rootSt)
	if p.b.private {
		if err := p.checkPrivate(); err != nil {
			return err
		}
	}
	p.b.mode.Store(p.mode() & 0o7777)
	return nil
}

// makeRoot makes a directory that is missing. One that was there before, and
// was removed, gets the mode that it had.
func (b *Backend) makeRoot() error {
	if b.private {
		return os.MkdirAll(b.dir, 0o700)
	}
	if err := os.MkdirAll(filepath.Dir(b.dir), 0o777); err != nil {
		return err
	}
	mode := b.mode.Load()
	if mode == 0 {
		return ignore(os.Mkdir(b.dir, 0o777), os.ErrExist)
	}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return ignore(err, os.ErrExist)
	}
	return unix.Chmod(b.dir, mode)
}

func ignore(err, which error) error {
	if errors.Is(err, which) {
		return nil
	}
	return err
}

// checkPrivate: the default directory is this user's alone. Whoever else could
// write to it could put a lock in our way or a link under our feet.
func (p *place) checkPrivate() error {
	st := &p.rootSt
	if int(st.Uid) != os.Geteuid() {
		return refuse(p.b.dir, "belongs to user %d, not to user %d who runs this", st.Uid, os.Geteuid())
	}
	if st.Mode&0o022 != 0 {
		return refuse(p.b.dir, "can be written by others (mode %04o): chmod go-w it", st.Mode&0o7777)
	}
	return nil
}

// mode is the store's.
func (p *place) mode() uint32 {
	return uint32(p.rootSt.Mode) //nolint:unconvert // 16 bits on some systems
}

// shared: others than its owner may contend in this directory.
func (p *place) shared() bool { return p.rootSt.Mode&0o022 != 0 }

// checkOwner: in a directory that only its owner can write to, a file of
// somebody else was put there on purpose.
func (p *place) checkOwner(path string, st *unix.Stat_t) error {
	if p.shared() || int(st.Uid) == os.Geteuid() || st.Uid == p.rootSt.Uid && !p.b.private || st.Uid == 0 && !p.b.private {
		return nil
	}
	return refuse(path, "belongs to user %d, not to user %d who runs this", st.Uid, os.Geteuid())
}

func (p *place) openDir(create bool) error {
	name := escape(p.mutex)
	path := filepath.Join(p.b.dir, name)
	for range 3 {
		fd, err := open(p.root, name, dirFlags|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOENT) {
			if !create {
				return nil
			}
			if err := p.makeDir(p.root, name); err != nil {
				return sorted(path, err)
			}
			continue
		}
		if err != nil {
			return sorted(path, err)
		}
		p.dir = fd
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return sorted(path, err)
		}
		return p.checkOwner(path, &st)
	}
	return sorted(path, unix.ENOENT)
}

// makeDir makes a directory that exists with its final mode from the beginning,
// so that nobody who may use it finds it closed.
func (p *place) makeDir(at int, name string) error {
	mode := p.dirMode()
	if !p.shared() && p.heir() < 0 && mode == 0o700 {
		return ignore(unix.Mkdirat(at, name, mode), unix.EEXIST)
	}
	tmp := ".new-" + random()
	if err := unix.Mkdirat(at, tmp, 0o700); err != nil {
		return err
	}
	err := func() error {
		fd, err := open(at, tmp, dirFlags|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := p.adopt(fd, mode); err != nil {
			return err
		}
		return renameNew(at, tmp, name)
	}()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // no such rename on this file system
		err = unix.Renameat(at, tmp, at, name)
		err = ignore(err, unix.ENOTEMPTY)
	}
	if err != nil {
		_ = unix.Unlinkat(at, tmp, unix.AT_REMOVEDIR)
	}
	return ignore(err, unix.EEXIST)
}

// adopt gives what was just made the mode, and the owner, that the store has:
// who may use the one may use the other, whatever the umask is and though root
// was the first to come.
func (p *place) adopt(fd int, mode uint32) error {
	if uid := p.heir(); uid >= 0 {
		if err := unix.Fchown(fd, uid, -1); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, mode)
}

// heir is who owns what root makes in somebody else's directory; -1: nobody.
func (p *place) heir() int {
	if os.Geteuid() == 0 && p.rootSt.Uid != 0 {
		return int(p.rootSt.Uid)
	}
	return -1
}

// dirMode is the store's own, without the sticky bit: in a mutex's directory
// everybody who contends replaces the record and clears away dead tickets.
func (p *place) dirMode() uint32 {
	return p.mode()&0o777 | 0o700 | p.mode()&unix.S_ISGID
}

// fileMode lets those lock who may contend, and those read who may look.
func (p *place) fileMode() uint32 {
	mode := uint32(0o600)
	for _, shift := range []int{3, 0} {
		switch m := p.mode() >> shift & 7; {
		case m&2 != 0:
			mode |= 6 << shift
		case m&4 != 0:
			mode |= 4 << shift
		}
	}
	return mode
}

// create makes a file that does not exist, with the right mode.
func (p *place) create(at int, name string) (int, error) {
	fd, err := open(at, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|fileFlags, 0o600)
	if err != nil {
		return -1, err
	}
	if mode := p.fileMode(); mode != 0o600 || p.heir() >= 0 {
		if err := p.adopt(fd, mode); err != nil {
			_ = unix.Close(fd)
			_ = unix.Unlinkat(at, name, 0)
			return -1, err
		}
	}
	return fd, nil
}

// openFile opens a file that must be an ordinary one, without waiting for the
// other end of a pipe, touching a device or following a link.
func (p *place) openFile(at int, name, path string, flags int) (int, *unix.Stat_t, error) {
	fd, err := open(at, name, flags|fileFlags, 0)
	if err != nil {
		return -1, nil, err
	}
	st := &unix.Stat_t{}
	if err = unix.Fstat(fd, st); err == nil {
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			err = refuse(path, "is not an ordinary file")
		} else {
			err = p.checkOwner(path, st)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, st, nil
}

func (p *place) path(name string) string {
	return filepath.Join(p.b.dir, escape(p.mutex), name)
}

func open(at int, path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(at, path, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// replace writes a small file that others see either as it was or as it is.
func (p *place) replace(name string, text []byte, sync bool) error {
	tmp := "." + name + "-" + random()
	fd, err := p.create(p.dir, tmp)
	if err != nil {
		return err
	}
	if err = write(fd, text); err == nil && sync {
		err = unix.Fsync(fd)
	}
	_ = unix.Close(fd)
	if err == nil {
		err = unix.Renameat(p.dir, tmp, p.dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(p.dir, tmp, 0)
		return err
	}
	if sync {
		return unix.Fsync(p.dir)
	}
	return nil
}

func write(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
