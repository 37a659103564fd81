package cmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

// held, waits and so on build readings; the table below reads as a story.

func held(owner string, fence uint64, ttl, lives time.Duration) lease.Snapshot {
	return lease.Snapshot{Mutex: "m", State: lease.Held, Owner: owner, Fence: fence, TTL: ttl, Lease: lives}
}

func free(last string, released bool) lease.Snapshot {
	return lease.Snapshot{Mutex: "m", State: lease.Free, Last: last, Released: released}
}

func waits(s lease.Snapshot, ids ...string) lease.Snapshot {
	for _, id := range ids {
		s.Waiters = append(s.Waiters, lease.Waiter{ID: id, Info: lease.Info{PID: 7}})
	}
	return s
}

func revoked(s lease.Snapshot) lease.Snapshot {
	s.Revoked = true
	return s
}

// promised names an owner-to-be in some backends; nobody owns it yet.
func promised(to string) lease.Snapshot {
	return lease.Snapshot{Mutex: "m", State: lease.Promised, Owner: to, TTL: time.Second, Lease: time.Second}
}

func TestDiff(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name     string
		old, now lease.Snapshot
		elapsed  time.Duration
		want     string
	}{
		{"nothing, still free", free("", false), free("", false), s, ""},
		{"nothing, renewed", held("A", 1, 3*s, 9*s), held("A", 1, 10*s, 16*s), s, ""},
		{"nothing, time passed", held("A", 1, 9*s, 15*s), held("A", 1, 3*s, 9*s), 6 * s, ""},
		{"nothing, still waiting", waits(held("A", 1, s, s), "B"), waits(held("A", 1, s, s), "B"), s, ""},
		{"acquired", free("", false), held("A", 1, s, s), s, "acquired A 1"},
		{"acquired by a JVM owner", free("", false), held("J", 0, s, s), s, "acquired J 0"},
		{"held by nobody knows whom", free("", false), held("", 0, s, s), s, "acquired unknown 0"},
		{"released", held("A", 1, s, s), free("A", true), s, "released A 1"},
		{"expired", held("A", 1, s, s), free("A", false), s, "expired A 1"},
		{"gone without a word before its end", held("A", 0, s, 9*s), free("", false), s, "released A 0"},
		{"gone without a word after its end", held("A", 0, s, 9*s), free("", false), 9 * s, "expired A 0"},
		{"died on a lease without an end", held("A", 1, lease.Forever, lease.Forever), free("A", false), s, "expired A 1"},
		{"transition", held("A", 1, s, 7*s), held("A", 1, 0, 5*s), 2 * s, "transition A 1"},
		{"recovered", held("A", 1, 0, 5*s), held("A", 1, 9*s, 15*s), s, "recovered A 1"},
		{"revoked", held("A", 1, s, s), revoked(held("A", 1, s, s)), s, "revoked A 1"},
		{"still revoked", revoked(held("A", 1, s, s)), revoked(held("A", 1, s, s)), s, ""},
		{"handed over", waits(held("A", 1, s, 9*s), "B"), held("B", 2, s, 9*s), s, "released A 1, acquired B 2"},
		{"taken over", waits(held("A", 1, 0, s), "B"), held("B", 2, s, 9*s), 2 * s, "expired A 1, acquired B 2"},
		{
			"followed on a lease without an end", held("A", 1, lease.Forever, lease.Forever),
			held("B", 2, lease.Forever, lease.Forever), s, "acquired B 2",
		},
		{"waits", held("A", 1, s, s), waits(held("A", 1, s, s), "B", "C"), s, "waiting B 0, waiting C 0"},
		{"left", waits(held("A", 1, s, s), "B", "C"), waits(held("A", 1, s, s), "C"), s, "left B 0"},
		{"left a free one", waits(free("", false), "B"), free("", false), s, "left B 0"},
		{
			"all at once", waits(held("A", 1, s, 9*s), "B", "C", "D"), waits(held("C", 2, s, 9*s), "D", "E"), s,
			"released A 1, left B 0, acquired C 2, waiting E 0",
		},
		{"promised", waits(held("A", 1, s, 9*s), "B"), waits(promised("B"), "B"), s, "released A 1"},
		{"promise kept", waits(promised("B"), "B"), held("B", 2, s, s), s, "acquired B 2"},
		{"missed both ends", held("A", 1, s, 2*s), free("C", true), 10 * s, "expired A 1"},
		{"cooldown", held("A", 1, s, 2*s), lease.Snapshot{Mutex: "m", State: lease.Cooldown, Lease: s}, s, "expired A 1"},
		{"found in transition", free("", false), held("A", 1, 0, s), s, "acquired A 1, transition A 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range diff(c.old, c.now, c.elapsed) {
				if e.Mutex != "m" || e.State != stateName(c.now) || e.Before != stateName(c.old) {
					t.Errorf("%s says mutex %q, %q to %q", e.Kind, e.Mutex, e.Before, e.State)
				}
				got = append(got, fmt.Sprintf("%s %s %d", e.Kind, e.Owner, e.Fence))
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}
