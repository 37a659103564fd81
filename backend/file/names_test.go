package file

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

func TestEscape(t *testing.T) {
	const letters = "aAbB.:/@+=-_%0"
	seen := map[string]string{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		n := 1 + rnd.IntN(128)
		if rnd.IntN(2) == 0 {
			n = 1 + rnd.IntN(4)
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[rnd.IntN(len(letters))]
		}
		mutex := string(b)
		name := escape(mutex)
		if len(name) > 255 || name == "" || name[0] == '.' || strings.ContainsAny(name, "/\x00") || strings.ToLower(name) != name {
			t.Fatalf("%q: %q", mutex, name)
		}
		if other, ok := seen[name]; ok && other != mutex {
			t.Fatalf("%q and %q are both %q", other, mutex, name)
		}
		seen[name] = mutex
		back, ok := unescape(name)
		if ok && back != mutex || !ok && !strings.Contains(name, hashMark) {
			t.Fatalf("%q: %q: %q, %v", mutex, name, back, ok)
		}
	}
	for _, foreign := range []string{"", "Job", "%", "%4", "%zz", "%61", "%4A", "a%", ".hidden", "a%%b"} {
		if mutex, ok := unescape(foreign); ok {
			t.Errorf("%q is %q", foreign, mutex)
		}
	}
	if escape("nightly-job") != "nightly-job" {
		t.Error("a plain name is not kept")
	}
	if escape("") == "" {
		t.Error("the empty name has no file name")
	}
}

func TestHomeOf(t *testing.T) {
	const db = "root:x:0:0:root:/root:/bin/sh\n# a comment\nbroken:x:1000\nrel:x:1001:1::rel:/bin/sh\n" +
		"me:x:1000:100:Me,,,:/home/me/:/bin/sh\nother:x:1000:100::/home/other:/bin/sh\nempty:x:1002:1:::\n"
	for uid, want := range map[int]string{0: "/root", 1000: "/home/me", 1001: "", 1002: "", 7: ""} {
		if got := homeOf([]byte(db), uid); got != want {
			t.Errorf("%d: %q", uid, got)
		}
	}
}

// Neither HOME nor XDG variables count: a cron job has others than a login shell.
func TestDefaultDir(t *testing.T) {
	before, err := DefaultDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(v, "/nowhere")
	}
	if after, err := DefaultDir(t.Context()); err != nil || after != before {
		t.Error(before, after, err)
	}
	if os.Geteuid() == 0 && before != rootDir {
		t.Error(before)
	}
}
