package file_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/lease"
)

const nobody = 65534

// refused: every call says so at once, for good, and names the path.
func refused(t *testing.T, b *file.Backend, inspects bool, words ...string) {
	t.Helper()
	began := time.Now()
	check := func(what string, err error) {
		t.Helper()
		if !lease.IsPermanent(err) {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %q", what, w, err)
			}
		}
	}
	a, err := newParty(t, b).Try(t.Context(), lease.TryRequest{Queue: true})
	if a.State != lease.Free {
		t.Errorf("%+v", a)
	}
	check("try", err)
	s, err := b.Inspect(t.Context(), "m")
	if inspects {
		if err != nil {
			t.Errorf("inspect: %v", err)
		}
	} else {
		check("inspect", err)
		if s.State == lease.Held || s.Owner != "" {
			t.Errorf("%+v", s)
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestPlantedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		plant    string
		inspects bool
		words    []string
	}{
		"lock is a link":         {"mkdir locks/m; ln -s ../../victim locks/m/lock", false, []string{"m/lock", "symbolic link"}},
		"lock is a dangling one": {"mkdir locks/m; ln -s ../../nothing locks/m/lock", false, []string{"m/lock", "symbolic link"}},
		"lock is a pipe":         {"mkdir locks/m; mkfifo locks/m/lock", false, []string{"m/lock", "not an ordinary file"}},
		"lock is a directory":    {"mkdir -p locks/m/lock", false, []string{"m/lock"}},
		"record is a link":       {"mkdir locks/m; ln -s ../../victim locks/m/record", false, []string{"m/record", "symbolic link"}},
		"record is a pipe":       {"mkdir locks/m; mkfifo locks/m/record", false, []string{"m/record", "not an ordinary file"}},
		"mutex is a link":        {"mkdir other; ln -s ../other locks/m", false, []string{"locks/m", "not a directory"}},
		"mutex is a file":        {"touch locks/m", false, []string{"locks/m", "not a directory"}},
		"mutex is a pipe":        {"mkfifo locks/m", false, []string{"locks/m", "not a directory"}},
		"queue is a link":        {"mkdir locks/m other; ln -s ../../other locks/m/queue", false, []string{"m/queue", "not a directory"}},
		"store is a file":        {"rmdir locks; touch locks", false, []string{"locks", "not a directory"}},
		"store is a pipe":        {"rmdir locks; mkfifo locks", false, []string{"locks", "not a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			shell(t, base, "mkdir locks; echo precious >victim")
			shell(t, base, c.plant)
			before := tree(t, filepath.Join(base, "victim"))
			refused(t, file.New(filepath.Join(base, "locks"), file.Options{}), c.inspects, c.words...)
			if after := tree(t, filepath.Join(base, "victim")); after != before {
				t.Errorf("the victim was touched: %s", after)
			}
			if _, err := os.Lstat(filepath.Join(base, "nothing")); err == nil {
				t.Error("made through a dangling link")
			}
			if left, _ := os.ReadDir(filepath.Join(base, "other")); len(left) != 0 {
				t.Errorf("made through a link: %v", left)
			}
		})
	}
}

// What is planted where simba makes its own files is cleared away, not written to.
func TestPlantedTemporaries(t *testing.T) {
	base := t.TempDir()
	shell(t, base, "mkdir -p locks/m/queue; echo precious >victim; ln -s ../../victim locks/m/.record.new; ln -s ../../victim locks/m/revoke")
	shell(t, base, "ln -s ../../../victim locks/m/queue/0000000000000001-0123456789abcdef; mkfifo locks/m/queue/0000000000000002-0123456789abcdef")
	b := file.New(filepath.Join(base, "locks"), file.Options{})
	p := newParty(t, b)
	p.try(true, lease.Mine)
	q := newParty(t, b)
	if a := q.try(true, lease.Held); a.Rank != 1 {
		t.Errorf("%+v", a)
	}
	if err := b.Revoke(t.Context(), "m", p.id); err != nil {
		t.Error(err)
	}
	p.renew(lease.Mine)
	p.release()
	q.try(true, lease.Mine)
	q.release()
	if text, err := os.ReadFile(filepath.Join(base, "victim")); string(text) != "precious\n" {
		t.Errorf("the victim is %q, %v", text, err)
	}
}

func TestPrivateDirectory(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	base := t.TempDir()
	dir := filepath.Join(base, "a/b/locks")
	private := file.New(dir, file.Options{Private: true})
	p := newParty(t, private)
	p.try(true, lease.Mine)
	for _, d := range []string{"a", "a/b", "a/b/locks", "a/b/locks/m"} {
		if info, err := os.Stat(filepath.Join(base, d)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", d, info.Mode(), err)
		}
	}
	p.release()
	for _, mode := range []os.FileMode{0o770, 0o702} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		refused(t, private, false, dir, "written by others")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	newParty(t, private).try(true, lease.Mine)

	link := filepath.Join(base, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	refused(t, file.New(link, file.Options{Private: true}), false, link, "symbolic link")
	newParty(t, file.New(link, file.Options{})).try(true, lease.Held) // one that was named may be one

	foreign := "/" // root's
	if os.Geteuid() == 0 {
		foreign = filepath.Join(base, "foreign")
		if err := os.Mkdir(foreign, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, file.New(foreign, file.Options{Private: true}), false, foreign, "belongs to user")
}

// In a directory that others may write to, they may contend, whatever the umask.
func TestSharedDirectory(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky, 0o770, 0o775, 0o755, 0o700} {
		base := t.TempDir()
		dir := filepath.Join(base, "locks")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		b := file.New(dir, file.Options{})
		p, q := newParty(t, b), newParty(t, b)
		p.try(true, lease.Mine)
		q.try(true, lease.Held)
		want := mode.Perm() | 0o700
		if info, err := os.Stat(filepath.Join(dir, "m")); err != nil || info.Mode().Perm() != want {
			t.Errorf("%v: %v, %v", mode, info.Mode(), err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "m", "[lr]*"))
		if err != nil || len(files) != 2 {
			t.Fatal(files, err)
		}
		tickets, _ := filepath.Glob(filepath.Join(dir, "m", "queue", "*"))
		for _, f := range append(files, tickets...) {
			if info, err := os.Stat(f); err != nil || info.Mode().Perm() != want&0o666 {
				t.Errorf("%v: %s: %v, %v", mode, f, info.Mode(), err)
			}
		}
		q.release()
		p.release()
	}
}

// Two users meet in one directory; a root that came first locks nobody out.
func TestTwoUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		otherUsersFiles(t)
		return
	}
	base, err := os.MkdirTemp("/tmp", "two-users")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(base, "test")
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, text, 0o755); err != nil {
		t.Fatal(err)
	}
	asNobody := func(c *exec.Cmd) {
		c.Path = binary
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	for name, c := range map[string]struct {
		mode  os.FileMode
		owner int
		works bool
	}{
		"for all":       {0o777, 0, true},
		"sticky":        {0o777 | os.ModeSticky, 0, true},
		"the other's":   {0o755, nobody, true},
		"root's":        {0o755, 0, false},
		"root's secret": {0o700, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(base, fmt.Sprint(c.mode, c.owner))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, c.owner, c.owner); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			b := file.New(dir, file.Options{})
			owner := newParty(t, b)
			owner.try(true, lease.Mine)
			if !c.works {
				got := start(t, dir, "once", asNobody).want("state")
				if !strings.Contains(got, "permission denied") {
					t.Error(got)
				}
				return
			}
			other := start(t, dir, "hold", asNobody)
			other.want("rank 1")
			waiter := newParty(t, b)
			if a := waiter.try(true, lease.Held); a.Rank != 2 {
				t.Errorf("%+v", a)
			}
			owner.release()
			other.want("mine")
			if a := waiter.try(true, lease.Held); a.Owner != other.id {
				t.Errorf("%+v", a)
			}
			other.finish()
			waiter.try(true, lease.Mine)
		})
	}
	// A lock of somebody who has no business there.
	dir := filepath.Join(base, "planted")
	shell(t, base, "mkdir -p planted/m; touch planted/m/lock; chmod 755 planted; chown -R 65533 planted/m")
	refused(t, file.New(dir, file.Options{}), false, "belongs to user 65533")
}

// otherUsersFiles is what there is of it for a user that is not root: root's.
func otherUsersFiles(t *testing.T) {
	t.Helper()
	refused(t, file.New("/etc", file.Options{}), true, "permission denied")
}
