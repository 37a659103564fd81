package cmd

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

const nasty = "\x1b[2J\r\n\u202e\u009bx"

func TestStatusJSON(t *testing.T) {
	acquired := time.Date(2026, 2, 3, 2, 0, 7, 5e6, time.UTC)
	for _, c := range []struct {
		name string
		snap lease.Snapshot
		want string
	}{
		{
			"free", lease.Snapshot{Mutex: "m", Last: "old", Released: true},
			`{"mutex":"m","state":"free","owner":null,"host":null,"pid":null,"user":null,"program":null,"note":null,` +
				`"fence":null,"acquired_at":null,"ttl_ms":null,"transition_ms":null,"waiting":[],"backend":"b"}`,
		},
		{
			"held", lease.Snapshot{
				Mutex: "m", State: lease.Held, Owner: "0:1@h/ff", Fence: 7, Acquired: acquired,
				TTL: 4 * time.Second, Lease: 10 * time.Second,
				Info:    lease.Info{Host: "h", PID: 1, User: "u", Program: "p", Note: "n"},
				Waiters: []lease.Waiter{{ID: "w", Info: lease.Info{Host: "g", PID: 2, Since: acquired}}},
			},
			`{"mutex":"m","state":"held","owner":"0:1@h/ff","host":"h","pid":1,"user":"u","program":"p","note":"n",` +
				`"fence":7,"acquired_at":"2026-02-03T02:00:07.005Z","ttl_ms":4000,"transition_ms":6000,` +
				`"waiting":[{"owner":"w","host":"g","pid":2,"since":"2026-02-03T02:00:07.005Z"}],"backend":"b"}`,
		},
		{
			"in transition, a JVM owner", lease.Snapshot{Mutex: "m", State: lease.Held, Owner: "o", Lease: 3 * time.Second},
			`{"mutex":"m","state":"transition","owner":"o","host":null,"pid":null,"user":null,"program":null,"note":null,` +
				`"fence":null,"acquired_at":null,"ttl_ms":0,"transition_ms":3000,"waiting":[],"backend":"b"}`,
		},
		{
			"without an end", lease.Snapshot{
				Mutex: "m", State: lease.Held, Owner: "o", Fence: 1, TTL: lease.Forever, Lease: lease.Forever, Detail: "no expiry",
			},
			`{"mutex":"m","state":"held","owner":"o","host":null,"pid":null,"user":null,"program":null,"note":null,` +
				`"fence":1,"acquired_at":null,"ttl_ms":null,"transition_ms":null,"waiting":[],"backend":"b","detail":"no expiry"}`,
		},
	} {
		var b strings.Builder
		if err := writeJSON(&b, "b", []lease.Snapshot{c.snap}); err != nil {
			t.Fatal(err)
		}
		if b.String() != c.want+"\n" {
			t.Errorf("%s:\ngot  %swant %s", c.name, b.String(), c.want)
		}
	}
}

// What others wrote into a backend must not reach a terminal raw.
func TestStatusIsHarmless(t *testing.T) {
	info := lease.Info{Host: nasty, User: nasty, Program: nasty, Note: nasty}
	snap := lease.Snapshot{
		Mutex: nasty, State: lease.Held, Owner: nasty, Info: info, TTL: time.Second, Lease: time.Second,
		Detail: nasty, Waiters: []lease.Waiter{{ID: nasty, Info: info}},
	}
	var table, lines strings.Builder
	if err := writeTable(&table, []lease.Snapshot{snap}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(&lines, nasty, []lease.Snapshot{snap}); err != nil {
		t.Fatal(err)
	}
	busy := busyText(&lease.BusyError{Answer: lease.Answer{State: lease.Held, Owner: nasty, Info: info}}, time.Time{}, time.Now())
	event := lease.Event{Kind: lease.EventAcquired, Mutex: nasty, Owner: nasty, Info: info}
	for name, text := range map[string]string{
		"table": table.String(), "json": lines.String(), "busy": busy, "event": eventText(event),
	} {
		for _, r := range text {
			if r != '\n' && (r < ' ' || r >= 0x7f) {
				t.Errorf("%s contains %q: %q", name, r, text)
				break
			}
		}
	}
	if n := strings.Count(table.String(), "\n"); n != 2 {
		t.Errorf("%d lines for one mutex:\n%s", n-1, table.String())
	}
	var line statusLine
	if err := json.Unmarshal([]byte(lines.String()), &line); err != nil || *line.Note != nasty {
		t.Errorf("json reads as %q, %v", *line.Note, err)
	}
}

func TestBusyText(t *testing.T) {
	now := time.Date(2026, 2, 3, 12, 0, 0, 0, time.Local)
	info := lease.Info{Host: "web3", PID: 4242, Program: "backup.sh"}
	for _, c := range []struct {
		answer lease.Answer
		since  time.Time
		want   string
	}{
		{
			lease.Answer{State: lease.Held, Owner: "0:4242@web3/ab", Info: info, Remaining: 9 * time.Second},
			time.Date(2026, 2, 3, 2, 0, 7, 0, time.Local),
			"busy: held by 0:4242@web3 (backup.sh) since 02:00:07, lease ends in 9s",
		},
		{
			lease.Answer{State: lease.Held, Owner: "abcd", Info: info, Remaining: lease.Forever},
			time.Date(2026, 2, 2, 2, 0, 7, 0, time.Local),
			"busy: held by abcd, 4242@web3 (backup.sh) since 2026-02-02 02:00:07",
		},
		{
			lease.Answer{State: lease.Promised, Owner: "1:7@db/ab", Remaining: 800 * time.Millisecond}, time.Time{},
			"busy: free, but promised to a waiter 1:7@db for 800ms",
		},
		{lease.Answer{State: lease.Cooldown, Remaining: time.Minute}, time.Time{}, "busy: nobody may have it for another 1m0s"},
	} {
		if got := busyText(&lease.BusyError{Answer: c.answer}, c.since, now); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
