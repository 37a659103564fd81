package cmd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

func exampleToken() *token {
	return &token{
		Mutex: "m", Owner: "0:1@h/00000000000000000000000000000000", Fence: 1 << 52, Backend: "redis://u@h:6379/0",
		TTL: int64(3 * time.Second), Rest: int64(2 * time.Second),
		Keeper: &keeperAt{PID: 1, Host: "h", Socket: "/run/simba/0.sock"},
	}
}

// A token is one printable word that says the same again, and no other word is one.
func TestToken(t *testing.T) {
	want := exampleToken()
	word := want.String()
	got, err := parseToken(word)
	if err != nil {
		t.Fatal(err)
	}
	if *got.Keeper != *want.Keeper {
		t.Errorf("%+v, not %+v", got.Keeper, want.Keeper)
	}
	got.Keeper = want.Keeper
	if got != *want {
		t.Errorf("%+v, not %+v", got, want)
	}
	for i, c := range word {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", c) {
			t.Errorf("%q is in it", c)
		}
		if _, err := parseToken(word[:i]); !errors.Is(err, errToken) {
			t.Errorf("its first %d bytes: %v", i, err)
		}
		other := "A"
		if c == 'A' {
			other = "B"
		}
		// The last characters have bits that stand for nothing.
		if _, err := parseToken(word[:i] + other + word[i+1:]); !errors.Is(err, errToken) && i < len(word)-1 {
			t.Errorf("changed at %d: %v", i, err)
		}
	}
	if _, err := parseToken(word + strings.Repeat("A", maxToken)); !errors.Is(err, errToken) {
		t.Error(err)
	}
}

// What is well-formed must also make sense: it decides what is done to a backend.
func TestTokenOfNonsense(t *testing.T) {
	for name, spoil := range map[string]func(*token){
		"no mutex":        func(t *token) { t.Mutex = "" },
		"a bad mutex":     func(t *token) { t.Mutex = "a b" },
		"no owner":        func(t *token) { t.Owner = "" },
		"a long owner":    func(t *token) { t.Owner = strings.Repeat("x", 129) },
		"a line in it":    func(t *token) { t.Owner = "a\nb" },
		"two parts":       func(t *token) { t.Owner = "a@@b" },
		"no backend":      func(t *token) { t.Backend = "" },
		"no ttl":          func(t *token) { t.TTL = 0 },
		"a long ttl":      func(t *token) { t.TTL = 1 << 62 },
		"no transition":   func(t *token) { t.Rest = 0 },
		"a negative one":  func(t *token) { t.Rest = -1 },
		"a relative path": func(t *token) { t.Keeper.Socket = "0.sock" },
	} {
		bad := exampleToken()
		spoil(bad)
		if got, err := parseToken(bad.String()); !errors.Is(err, errToken) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// No answer is younger than the question.
func TestAnswerAges(t *testing.T) {
	a := answer{Held: true, TTL: time.Second, Lease: 2 * time.Second}
	a.age(400 * time.Millisecond)
	if !a.Held || a.TTL != 600*time.Millisecond || a.Lease != 1600*time.Millisecond {
		t.Errorf("%+v", a)
	}
	if a.age(600 * time.Millisecond); a.Held || a.Why == "" {
		t.Errorf("%+v", a)
	}
	a = answer{Held: true, TTL: lease.Forever, Lease: lease.Forever}
	if a.age(time.Hour); !a.Held || a.TTL != lease.Forever {
		t.Errorf("%+v", a)
	}
}

func TestStaysInStore(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://h": true, "rediss://h": true, "redis+cluster://h1,h2": true, "redis+unix:///s": true, "mysql://u@h/d": true,
		"file:": false, "file:///d": false, "zk://h:2181": false, "": false,
	} {
		if got := staysInStore(url); got != want {
			t.Errorf("%q: %v", url, got)
		}
	}
}
