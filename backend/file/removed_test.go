package file_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/lease"
)

func shell(t *testing.T, dir, command string) {
	t.Helper()
	c := exec.Command("sh", "-ec", command)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// Whatever is done to the files of an owner that lives: nobody else gets in,
// the owner hears of it and puts everything back, and then it is as before.
func TestFilesRemovedUnderTheOwner(t *testing.T) {
	for name, command := range map[string]string{
		"lock removed":              "rm locks/m/lock",
		"lock moved away":           "mv locks/m/lock elsewhere",
		"lock replaced":             "cp locks/m/lock new; mv new locks/m/lock",
		"lock copied over":          "echo nonsense >new; cp new locks/m/lock",
		"record removed":            "rm locks/m/record",
		"record replaced":           "echo nonsense >new; mv new locks/m/record",
		"record written over":       "echo nonsense >locks/m/record",
		"mutex removed":             "rm -r locks/m",
		"mutex moved away":          "mv locks/m elsewhere",
		"mutex replaced by a copy":  "cp -a locks/m copy; mv locks/m elsewhere; mv copy locks/m",
		"all removed":               "rm -r locks",
		"all moved away":            "mv locks elsewhere",
		"all replaced by a copy":    "cp -a locks copy; mv locks elsewhere; mv copy locks",
		"all replaced by a new one": "mv locks elsewhere; mkdir locks",
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			asked := false
			b := file.New(filepath.Join(base, "locks"), file.Options{LiveGuards: func(tag string) ([]int, error) {
				if tag != file.Tag(filepath.Join(base, "locks"), "m") {
					t.Errorf("asked for %q", tag)
				}
				if !asked { // the first contender finds an empty directory
					asked = true
					return nil, nil
				}
				return []int{4711}, nil
			}})
			owner := newParty(t, b)
			mine := owner.try(true, lease.Mine)
			owner.hear()
			shell(t, base, command)
			for range 3 {
				newParty(t, b).try(false, lease.Held)
			}
			if !strings.HasPrefix(name, "record") && name != "lock copied over" {
				select {
				case <-owner.rings:
				case <-time.After(patience):
					t.Error("the owner hears nothing")
				}
			}
			if a := owner.renew(lease.Mine); a.Fence != mine.Fence {
				t.Errorf("%+v", a)
			}
			if a := newParty(t, b).try(false, lease.Held); a.Owner != owner.id && name != "record written over" {
				t.Errorf("%+v", a)
			}
			if s := inspect(t, b); s.State != lease.Held {
				t.Errorf("%+v", s)
			}
			owner.renew(lease.Mine)
			waiter := newParty(t, b)
			waiter.try(true, lease.Held)
			asked = false // the job is over: no guard
			owner.release()
			if a := waiter.try(true, lease.Mine); a.Fence <= mine.Fence && name != "record written over" {
				t.Errorf("fence %d after %d", a.Fence, mine.Fence)
			}
		})
	}
}

// Nobody looks for guards, and the new directory is locked before the owner
// looks: it finds that it has lost the mutex.
func TestOwnerFindsAnother(t *testing.T) {
	base := t.TempDir()
	b := file.New(filepath.Join(base, "locks"), file.Options{})
	owner := newParty(t, b)
	owner.try(true, lease.Mine)
	shell(t, base, "rm -r locks")
	other := newParty(t, b)
	other.try(true, lease.Mine)
	if a := owner.renew(lease.Held); a.Owner != other.id {
		t.Errorf("%+v", a)
	}
	// Until the first one's work has ended, nobody but the second gets in.
	other.release()
	third := newParty(t, b)
	third.try(false, lease.Held)
	owner.release()
	third.try(false, lease.Mine)
}

// One that saw the owner does not rush into a store that was emptied: it may be
// that the owner is about to start its job.
func TestEmptiedUnderAWaiter(t *testing.T) {
	base := t.TempDir()
	b := file.New(filepath.Join(base, "locks"), file.Options{})
	owner, waiter := newParty(t, b), newParty(t, b)
	mine := owner.try(true, lease.Mine)
	waiter.try(true, lease.Held)
	waiter.hear()
	shell(t, base, "rm -r locks")
	if a := waiter.try(true, lease.Held); a.Owner != owner.id || a.LookBy == 0 || a.Rank != 1 {
		t.Errorf("%+v", a)
	}
	owner.renew(lease.Mine)
	waiter.try(true, lease.Held)
	shell(t, base, "rm -r locks")
	_ = owner.Close() // this time nobody puts it back
	a, took := waiter.get()
	if took < time.Second/2 || took > 2*time.Second {
		t.Errorf("it was given up after %v", took)
	}
	if a.Fence <= mine.Fence {
		t.Errorf("fence %d after %d", a.Fence, mine.Fence)
	}
}

// Both directories are guarded: whoever still has the old one open gains nothing.
func TestAnchorsGrow(t *testing.T) {
	base := t.TempDir()
	b := file.New(filepath.Join(base, "locks"), file.Options{})
	owner := newParty(t, b)
	owner.try(true, lease.Mine)
	before := owner.Session.(lease.Anchored).Anchors()
	shell(t, base, "mv locks elsewhere")
	owner.renew(lease.Mine)
	after := owner.Session.(lease.Anchored).Anchors()
	if len(after) <= len(before) {
		t.Errorf("%d anchors, there were %d", len(after), len(before))
	}
	for _, dir := range []string{"locks", "elsewhere"} {
		newParty(t, file.New(filepath.Join(base, dir), file.Options{})).try(false, lease.Held)
	}
}

func TestWatchSurvivesItsDirectory(t *testing.T) {
	base := t.TempDir()
	b := file.New(filepath.Join(base, "locks"), file.Options{})
	w := &party{Session: watcher{b}, t: t, rings: make(chan struct{}, 1)}
	w.hear()
	ring := func(what string) {
		t.Helper()
		select {
		case <-w.rings:
		case <-time.After(patience):
			t.Fatalf("%s: no ring", what)
		}
		for quiet := false; !quiet; {
			select {
			case <-w.rings:
			case <-time.After(300 * time.Millisecond):
				quiet = true
			}
		}
	}
	p := newParty(t, b)
	p.try(true, lease.Mine)
	ring("made")
	p.release()
	ring("released")
	shell(t, base, "rm -r locks")
	ring("removed")
	newParty(t, b).try(true, lease.Mine)
	ring("made again")
	if err := os.Rename(filepath.Join(base, "locks"), filepath.Join(base, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	ring("moved away")
}
