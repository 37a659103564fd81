package zookeeper

import (
	"slices"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

func names(q queue) (n []string) {
	for _, l := range q {
		n = append(n, l.name)
	}
	return n
}

func TestQueueOrder(t *testing.T) {
	for _, c := range []struct {
		what     string
		children []string
		want     []string
	}{
		{
			"by sequence, not by prefix",
			[]string{"_c_b-latch-0000000003", "_c_a-latch-0000000010", "latch-0000000002", "_c_z-latch-0000000001"},
			[]string{"_c_z-latch-0000000001", "latch-0000000002", "_c_b-latch-0000000003", "_c_a-latch-0000000010"},
		},
		{
			"across the wrap-around",
			[]string{"_c_a-latch--2147483648", "_c_b-latch-2147483647", "_c_c-latch--2147483647", "_c_d-latch-2147483646"},
			[]string{"_c_d-latch-2147483646", "_c_b-latch-2147483647", "_c_a-latch--2147483648", "_c_c-latch--2147483647"},
		},
		{
			"from below zero",
			[]string{"_c_a-latch-0000000000", "_c_b-latch--000000001"},
			[]string{"_c_b-latch--000000001", "_c_a-latch-0000000000"},
		},
		{
			"foreign nodes are not in it",
			[]string{
				"README", "x-lock-", "zzz--2147483640", "x-lock-0000000001", "latch-", "latch-x", "latch-1", "latch-99999999999",
				"_c_", "_c_latch-0000000007", "sub",
			},
			[]string{"_c_latch-0000000007"},
		},
		{"nobody", nil, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := names(newQueue(c.children)); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestLatchNames(t *testing.T) {
	guid := newGUID()
	l, ok := parseLatch("_c_" + guid + "-latch-0000000042")
	if !ok || l.guid != guid || l.seq != 42 {
		t.Errorf("%+v, %v", l, ok)
	}
	if l, ok := parseLatch("latch-0000000001"); !ok || l.guid != "" {
		t.Errorf("without protection: %+v, %v", l, ok)
	}
}

func TestParty(t *testing.T) {
	c := lease.Contender{ID: "1:2@h/abc", Info: lease.Info{Host: "h", PID: 2, Note: "two\nlines"}}
	if p := decodeParty(encodeParty(c)); p.id != c.ID || p.info != c.Info || !p.ours {
		t.Errorf("%+v", p)
	}
	if p := decodeParty([]byte("0:7@jvm")); p.id != "0:7@jvm" || p.ours {
		t.Errorf("a JVM contender: %+v", p)
	}
	for _, garbage := range []string{"", "\n", "id\n{", "id\n[1]", "\x00\xff", `id` + "\n" + `{"pid":"x","host":"h"}`} {
		if p := decodeParty([]byte(garbage)); p.info != (lease.Info{}) {
			t.Errorf("%q: %+v", garbage, p)
		}
	}
}

func TestProof(t *testing.T) {
	const granted = 6400 * time.Millisecond // needs an age of 1.7 s
	at := func(ms int) lease.Instant { return lease.Instant(ms) * time.Millisecond }
	p := proof{granted: granted, handshake: at(1000)}
	p.answered(beat{at(1100), at(1110)})
	if p.proven != 0 {
		t.Error("answers alone prove nothing")
	}
	p.confirmed(at(1120))
	if p.proven != at(1000) {
		t.Errorf("a write proves the handshake, not %v", p.proven)
	}
	p.answered(beat{at(1150), at(1160)}) // too close to be kept
	p.answered(beat{at(2000), at(2500)})
	p.confirmed(at(3700)) // 1.7 s after the sending, but not after the answer
	if p.proven != at(1100) {
		t.Errorf("proven %v", p.proven)
	}
	p.confirmed(at(4200))
	if p.proven != at(2000) {
		t.Errorf("proven %v", p.proven)
	}
	p.confirmed(at(9000))
	if p.proven != at(2000) {
		t.Errorf("nothing new was sent, but %v", p.proven)
	}
	if p.due(at(9600)) || !p.due(at(9640)) {
		t.Error("due at a tenth of the session after the last one")
	}
	for i := range 10000 {
		p.answered(beat{at(10000 + 10*i), at(10001 + 10*i)})
		if i%100 == 99 {
			p.confirmed(at(10001 + 10*i))
		}
	}
	if len(p.beats) > 70 {
		t.Errorf("%d requests are kept", len(p.beats))
	}
	if age := at(10001+10*9999) - p.proven; age < granted/4 || age > granted/4+granted/16 {
		t.Errorf("the proof is %v old", age)
	}
}
