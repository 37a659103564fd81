package file_test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/lease"
)

// fullDisk returns a directory and what makes writing to it fail, with the
// words that the error has then. Root mounts a small disk and fills it; for
// others no file may be written to. On a disk that is merely full, what is there
// already can be written over.
func fullDisk(t *testing.T) (dir string, fill func() (empty func()), words string) {
	t.Helper()
	base := t.TempDir()
	if os.Geteuid() == 0 && exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "none", base).Run() == nil {
		t.Cleanup(func() {
			if out, err := exec.Command("umount", base).CombinedOutput(); err != nil {
				t.Errorf("%s", out)
			}
		})
		return filepath.Join(base, "locks"), func() func() {
			_ = exec.Command("dd", "if=/dev/zero", "of="+base+"/fill").Run()
			return func() {
				if err := os.Remove(base + "/fill"); err != nil {
					t.Error(err)
				}
			}
		}, "no space left"
	}
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	return filepath.Join(base, "locks"), func() func() {
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
				t.Error(err)
			}
		}
	}, "file too large"
}

func TestFullBefore(t *testing.T) {
	dir, fill, words := fullDisk(t)
	b := file.New(dir, file.Options{})
	empty := fill()
	refused(t, b, true, dir, words)
	empty()
	p := newParty(t, b)
	p.try(true, lease.Mine)
	p.release()
	empty = fill()
	if words == "no space left" {
		p = newParty(t, b)
		p.try(true, lease.Mine)
		p.release()
		shell(t, dir, "rm m/record")
		fill() // what was removed made room
	}
	refused(t, b, true, dir, words) // the lock file is there
	if s := inspect(t, b); s.State != lease.Free || s.Last != "" && s.Last != p.id {
		t.Errorf("%+v", s)
	}
	empty()
	newParty(t, b).try(true, lease.Mine)
}

// What is held stays held, and is given back.
func TestFullDuring(t *testing.T) {
	dir, fill, words := fullDisk(t)
	b := file.New(dir, file.Options{})
	for _, command := range []string{"true", "rm m/record", "rm m/lock", "rm -r m"} {
		p := newParty(t, b)
		p.try(true, lease.Mine)
		empty := fill()
		shell(t, dir, command)
		if command != "true" {
			fill() // what was removed made room
		}
		p.renew(lease.Mine)
		p.renew(lease.Mine)
		other := newParty(t, b)
		if a, err := other.Try(t.Context(), lease.TryRequest{}); a.State == lease.Mine || err == nil && a.State != lease.Held {
			t.Errorf("%s: %+v, %v", command, a, err)
		}
		p.release()
		if s := inspect(t, b); s.State != lease.Free || words == "no space left" && command == "true" && !s.Released {
			t.Errorf("%s: %+v", command, s)
		}
		empty()
		q := newParty(t, b)
		q.try(true, lease.Mine)
		q.release()
	}
}

// A checkpoint that cannot be written may be written later, and what was there stays.
func TestFullCheckpoint(t *testing.T) {
	dir, fill, words := fullDisk(t)
	p := newParty(t, file.New(dir, file.Options{}))
	p.try(true, lease.Mine)
	if _, err := p.Checkpoint(t.Context(), "", "first"); err != nil {
		t.Fatal(err)
	}
	empty := fill()
	if got, err := p.Checkpoint(t.Context(), "first", "second"); words == "no space left" && (err == nil || lease.IsPermanent(err)) {
		t.Errorf("on a full disk: %q, %v", got, err)
	}
	empty()
	for _, text := range []string{"second", "third"} {
		now, err := p.Checkpoint(t.Context(), "", "")
		if err == nil {
			now, err = p.Checkpoint(t.Context(), now, text)
		}
		if err != nil || now != text {
			t.Errorf("%q, %v; want %q", now, err, text)
		}
	}
	p.release()
}

func TestReadOnly(t *testing.T) {
	base := t.TempDir()
	b := file.New(base, file.Options{})
	p := newParty(t, b)
	p.try(true, lease.Mine)
	p.release()
	if os.Geteuid() == 0 && exec.Command("mount", "--bind", base, base).Run() == nil {
		defer func() { _ = exec.Command("umount", base).Run() }()
		shell(t, base, "mount -o remount,bind,ro "+base)
		refused(t, b, true, base, "read-only file system")
	} else {
		shell(t, base, "chmod -R a-w .")
		defer shell(t, base, "chmod -R u+w .")
		refused(t, b, true, base, "permission denied")
	}
	if s := inspect(t, b); s.State != lease.Free || s.Last != p.id {
		t.Errorf("%+v", s)
	}
}

// A user who has no more inotify instances is woken all the same.
func TestWithoutInotify(t *testing.T) {
	var hogs []int
	defer func() {
		for _, fd := range hogs {
			_ = unix.Close(fd)
		}
	}()
	b := file.New(t.TempDir(), file.Options{})
	owner, waiter := newParty(t, b), newParty(t, b)
	owner.try(true, lease.Mine)
	waiter.try(true, lease.Held)
	for {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			break
		}
		hogs = append(hogs, fd)
	}
	waiter.hear()
	w := &party{Session: watcher{b}, t: t, rings: make(chan struct{}, 1)}
	w.hear()
	owner.release()
	<-waiter.rings
	<-w.rings
	waiter.try(true, lease.Mine)
}
