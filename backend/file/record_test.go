package file_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/lease"
)

// Nothing that stands in a record, or beside it, outweighs the kernel's lock.
func TestRecordsThatMakeNoSense(t *testing.T) {
	valid := func(change map[string]any) string {
		r := map[string]any{
			"mutex": "m", "owner": "someone", "fence": 5, "acquired": time.Now(), "ended": "", "lock": 1,
			"info": map[string]any{"host": lease.Host(), "pid": os.Getpid()},
		}
		for k, v := range change {
			r[k] = v
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, text := range map[string]string{
		"empty":           "",
		"text":            "this is no record\n",
		"binary":          "\x00\xff\x1b[2J",
		"wrong types":     `{"mutex":["m"],"owner":7,"fence":"x"}`,
		"null":            "null",
		"deep":            strings.Repeat("[", 30000),
		"huge":            `{"mutex":"m","owner":"` + strings.Repeat("x", 1<<20) + `"}`,
		"another mutex":   valid(map[string]any{"mutex": "n"}),
		"live pid":        valid(nil),
		"year 2100":       valid(map[string]any{"acquired": "2100-01-01T00:00:00Z", "ended": "2100-01-01T00:00:00.000Z"}),
		"odd end":         valid(map[string]any{"ended": "yesterday"}),
		"another boot":    valid(map[string]any{"boot": "another"}),
		"fence too big":   valid(map[string]any{"fence": uint64(1<<53 - 1)}),
		"fence negative":  valid(map[string]any{"fence": -1}),
		"fence beyond":    `{"mutex":"m","owner":"someone","fence":1e400}`,
		"long owner":      valid(map[string]any{"owner": strings.Repeat("x", 5000)}),
		"control letters": valid(map[string]any{"owner": "a\x1b]52;c;x\x07\n\u202e", "pending": []string{"", strings.Repeat("y", 9000)}}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := file.New(dir, file.Options{})
			owner := newParty(t, b)
			first := owner.try(true, lease.Mine)
			record := filepath.Join(dir, "m", "record")
			if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			newParty(t, b).try(false, lease.Held)
			if s := inspect(t, b); s.State != lease.Held || len(s.Owner) > 600 {
				t.Errorf("held: %+v", s)
			}
			owner.renew(lease.Mine)
			_ = owner.Close() // it dies
			if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if s := inspect(t, b); s.State != lease.Free {
				t.Errorf("free: %+v", s)
			}
			next := newParty(t, b)
			if a := next.try(true, lease.Mine); a.Fence <= first.Fence || a.Fence >= 1<<53 {
				t.Errorf("fence %d after %d", a.Fence, first.Fence)
			} else if name == "another boot" && len(a.Unreleased) != 0 {
				t.Errorf("unreleased since another boot: %v", a.Unreleased)
			}
			next.release()
			if s := inspect(t, b); s.Last != next.id || !s.Released || s.Detail != "" {
				t.Errorf("%+v", s)
			}
		})
	}
}

// The record is for other programs to read, too.
func TestRecordIsJSON(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	info := lease.Info{Note: "<\"\x1b\u202e", Since: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}
	s := b.Session("m", lease.Contender{ID: "me", Info: info})
	defer s.Close()
	if a, err := s.Try(t.Context(), lease.TryRequest{}); err != nil || a.State != lease.Mine {
		t.Fatal(a, err)
	}
	for _, ended := range []bool{false, true} {
		text, err := os.ReadFile(filepath.Join(dir, "m", "record"))
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			Mutex, Owner, Ended string
			Fence               uint64
			Info                lease.Info
		}
		if err := json.Unmarshal(text, &r); err != nil || r.Mutex != "m" || r.Owner != "me" || r.Fence == 0 || r.Info.Note != info.Note {
			t.Errorf("%s: %v", text, err)
		}
		if bytes.Count(text, []byte("\n")) != 1 {
			t.Errorf("%q is more than a line", text)
		}
		if (strings.TrimSpace(r.Ended) != "") != ended {
			t.Errorf("ended: %q", r.Ended)
		}
		_ = s.Release(t.Context(), lease.ReleaseRequest{})
	}
}

// Long names share a cut prefix; the lock file tells which one it is.
func TestHashedNames(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	want := make([]string, 0, 3)
	for i := range 3 {
		name := strings.Repeat("A", 120) + strconv.Itoa(i)
		want = append(want, name)
		s := b.Session(name, lease.Contender{ID: "x"})
		if a, err := s.Try(t.Context(), lease.TryRequest{}); err != nil || a.State != lease.Mine {
			t.Fatal(a, err)
		}
		defer s.Close()
	}
	shell(t, dir, "mkdir README lost+found .hidden; touch file; mkdir -p Foo%%bar; touch Foo%%bar/lock")
	if got, err := b.List(t.Context()); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
}

// One who may only read is told the truth, and one who may not read is told so.
func TestInspectWithFewRights(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	owner, waiter := newParty(t, b), newParty(t, b)
	owner.try(true, lease.Mine)
	waiter.try(true, lease.Held)
	shell(t, dir, "chmod -R a-w .")
	if s := inspect(t, b); s.Owner != owner.id || len(s.Waiters) != 1 {
		t.Errorf("%+v", s)
	}
	shell(t, dir, "chmod -R u+w .")
	missing := file.New(filepath.Join(dir, "missing"), file.Options{})
	if s := inspect(t, missing); s.State != lease.Free {
		t.Errorf("%+v", s)
	}
	if names, err := missing.List(t.Context()); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Error("looking made a directory")
	}
	if os.Geteuid() == 0 {
		return // who may read everything
	}
	for _, what := range []string{".", "m", "m/record"} {
		shell(t, dir, "chmod a-r "+what)
		if s, err := b.Inspect(t.Context(), "m"); !lease.IsPermanent(err) {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
		shell(t, dir, "chmod u+r "+what)
	}
}
