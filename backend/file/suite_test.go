package file_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/lease"
)

func harness(private bool) backendtest.Harness {
	dirs := make(map[lease.Backend]string)
	return backendtest.Harness{
		Open: func(t *testing.T) lease.Backend {
			t.Helper()
			// The directory itself is made by the first contender.
			dir := filepath.Join(t.TempDir(), "locks")
			b := file.New(dir, file.Options{Private: private})
			dirs[b] = dir
			return b
		},
		Fingerprint: func(t *testing.T, b lease.Backend) string {
			t.Helper()
			return tree(t, dirs[b])
		},
		Vanish: func(t *testing.T, b lease.Backend, _ string) {
			t.Helper()
			if err := os.RemoveAll(dirs[b]); err != nil {
				t.Fatal(err)
			}
		},
		Endless: true,
	}
}

func TestSuite(t *testing.T)        { backendtest.Suite(t, harness(false)) }
func TestSuitePrivate(t *testing.T) { backendtest.Suite(t, harness(true)) }

// tree tells everything about the files of a directory but when they were read.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s %v %v %d", strings.TrimPrefix(path, dir), info.Mode(), info.ModTime(), info.Size())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, " %s", b)
		}
		fmt.Fprintln(&text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}
