package lease

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTerms(t *testing.T) {
	const (
		s  = time.Second
		ms = time.Millisecond
	)
	for _, c := range []struct {
		ttl, transition, killAfter time.Duration // asked
		wantTransition, wantKill   time.Duration
		err                        string // part of the message
	}{
		{Unset, Unset, Unset, 6 * s, 5 * s, ""},
		{10 * s, 6 * s, 5 * s, 6 * s, 5 * s, ""},
		{3 * s, 2 * s, Unset, 2 * s, 4950*ms - 156250*time.Microsecond - 3*s, ""},
		{100 * ms, 200 * ms, Unset, 200 * ms, 147 * ms, ""},
		{200 * ms, 100 * ms, Unset, 100 * ms, 47 * ms, ""},
		{300 * ms, Unset, Unset, 6 * s, 5 * s, ""},
		{24 * time.Hour, Unset, Unset, 72 * time.Minute, 5 * s, ""},
		{10 * s, 6 * s, 0, 6 * s, 0, ""},
		{10 * s, 6 * s, 6 * s, 0, 0, "kill-after may be at most 5.34s"},
		{10 * s, 6 * s, -2 * s, 0, 0, "negative"},
		{24 * time.Hour, 100 * ms, Unset, 0, 0, "exceed the transition"},
		{0, 6 * s, Unset, 0, 0, "ttl 0s is not between 100ms and 24h"},
		{time.Nanosecond, 6 * s, Unset, 0, 0, "not between"},
		{99 * ms, 6 * s, Unset, 0, 0, "not between"},
		{25 * time.Hour, 6 * s, Unset, 0, 0, "not between"},
		{10 * s, 0, Unset, 0, 0, "transition 0s is not between"},
		{10 * s, 1<<63 - 1, Unset, 0, 0, "not between"},
	} {
		got, err := NewTerms(c.ttl, c.transition, c.killAfter)
		if c.err != "" {
			if !errors.Is(err, ErrTerms) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v %v %v: %v; it should say %q", c.ttl, c.transition, c.killAfter, err, c.err)
			}
			continue
		}
		if err != nil || got.Transition != c.wantTransition || got.KillAfter != c.wantKill {
			t.Errorf("%v %v %v: %+v, %v", c.ttl, c.transition, c.killAfter, got, err)
			continue
		}
		d := got.deadlines(1000*time.Hour, 0)
		if d.Held > d.Stop || d.Stop > d.Kill || d.Kill+got.kappa() > d.DeadBy+time.Nanosecond || d.DeadBy >= d.End {
			t.Errorf("%v %v: deadlines out of order: %+v", c.ttl, c.transition, d)
		}
	}
}

func TestDeadlinesShortenedByTheBackend(t *testing.T) {
	terms, _ := NewTerms(10*time.Second, 6*time.Second, Unset)
	full, short := terms.deadlines(time.Hour, 16*time.Second), terms.deadlines(time.Hour, 10*time.Second)
	if full.End-short.End != 6*time.Second || full.Stop-short.Stop != 6*time.Second {
		t.Fatalf("%+v %+v", full, short)
	}
	if longer := terms.deadlines(time.Hour, time.Hour); longer != full {
		t.Fatalf("a longer remaining time lengthened it: %+v", longer)
	}
}

func TestGrantedScales(t *testing.T) {
	terms, _ := NewTerms(10*time.Second, 6*time.Second, Unset)
	for _, l := range []time.Duration{4 * time.Second, 20 * time.Second, time.Hour} {
		got, err := terms.granted(l)
		if err != nil || got.Lease() != l || got.TTL != l*10/16 || got.KillAfter > DefaultKillAfter {
			t.Errorf("%v: %+v %v", l, got, err)
		}
	}
	if s := terms.squeezed(time.Second); s.Lease() != time.Second || s.KillAfter < 0 {
		t.Errorf("%+v", s)
	}
}

func TestCheckName(t *testing.T) {
	for _, ok := range []string{"a", "0", "nightly-job", "a/b/C", "x.y_z:1@h+=-", strings.Repeat("n", 128)} {
		if err := CheckName(ok); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "-a", "a b", "a@@b", "latch-1", "x-latch-1", "a/", "/a", "a//b", "a/1", "a/-",
		"é", "a\n", "a\x00", strings.Repeat("n", 129)} {
		if err := CheckName(bad); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		for _, f := range []IDForm{IDHost, IDUUID} {
			id := NewID(f)
			if seen[id] || len(id) > 128 || strings.Contains(id, "@@") {
				t.Fatal(id)
			}
			seen[id] = true
		}
	}
	id := NewID(IDHost)
	if short := ShortID(id); !strings.Contains(short, "@") || strings.Contains(short, "/") || len(id)-len(short) != 33 {
		t.Fatal(id, short)
	}
	if id := NewID(IDUUID); ShortID(id) != id || len(id) != 32 {
		t.Fatal(id)
	}
}

func TestBootClock(t *testing.T) {
	c := BootClock{}
	for _, timer := range []func(Instant) (<-chan struct{}, func()){
		c.At,
		func(i Instant) (<-chan struct{}, func()) { return polled(c, i, make(chan struct{})) },
	} {
		begin := c.Now()
		reached, free := timer(begin + 30*time.Millisecond)
		<-reached
		if d := c.Now() - begin; d < 30*time.Millisecond {
			t.Fatalf("fired after %v", d)
		}
		free()
		past, free := timer(begin)
		<-past
		free()
		_, free = timer(begin + time.Hour)
		free() // ends its goroutine though it never fired
	}
}

func TestPermanent(t *testing.T) {
	base := errors.New("x")
	if err := Permanent(base); !IsPermanent(err) || !errors.Is(err, base) || IsPermanent(base) || Permanent(nil) != nil {
		t.Fatal(err)
	}
}
