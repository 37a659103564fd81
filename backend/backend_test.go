package backend

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/file"
)

func TestOpen(t *testing.T) {
	for _, url := range []string{"file:", "file:///srv/locks", "file:/srv/locks", "file:///a%20b", "FILE:///x"} {
		if b, err := Open(t.Context(), url, Options{}); err != nil || !strings.HasPrefix(b.Name(), "file:///") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{
		"", " ", "/srv/locks", "locks", "file:locks", "file://host/locks", "file://user:secret@host/locks",
		"file:///", "file:///x?a=secret", "nosuch://user:secret@host", "http://user:secret@[::1", "file://user:secret@%zz/",
		"redis://user:se cret@host:x/", "user:secret@host:6379", "secret://x",
	} {
		_, err := Open(t.Context(), url, Options{})
		if !errors.Is(err, ErrURL) {
			t.Errorf("%q: %v", url, err)
			continue
		}
		if strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: the error tells it: %v", url, err)
		}
	}
}

// One directory has one identity and one tag, by whatever links it is reached,
// and whether or not it exists yet.
func TestIdentity(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	target, link := filepath.Join(base, "real"), filepath.Join(base, "link")
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	names, tags := map[string]bool{}, map[string]bool{}
	for _, exists := range []bool{false, true} {
		if exists {
			if err := os.Mkdir(target, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{target, link + "/real", link + "/real/", target + "/../real"} {
			b, err := Open(t.Context(), "file://"+dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			tag, err := Tag(t.Context(), "file://"+dir, "m")
			if err != nil || tag != file.Tag(dir, "m") {
				t.Fatal(tag, err)
			}
			names[b.Name()], tags[tag] = true, true
			if w := Warnings(t.Context(), b); len(w) != 0 {
				t.Error(w)
			}
		}
	}
	if len(names) != 1 || len(tags) != 1 {
		t.Error(names, tags)
	}
	other, _ := Tag(t.Context(), "file://"+target, "n")
	if tags[other] || strings.Contains(other, "simba") {
		t.Error(other)
	}
}
