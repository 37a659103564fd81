package cron

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestChanges has ticks around changes of local time, to the second.
func TestChanges(t *testing.T) {
	noon := at(t, "2026-06-01T12:00:00Z")
	minutes := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	zones := map[string]*time.Location{
		"back 2min":    made(t, 2*time.Minute, change{noon, 0}),
		"forward 2min": made(t, 0, change{noon, 2 * time.Minute}),
		// Half an hour forward, and back again before the first half hour was over.
		"forward and back": made(t, 0, change{noon, time.Hour}, change{minutes(20), 0}),
		"back and back":    made(t, 2*time.Hour, change{noon, time.Hour}, change{minutes(20), 0}),
		"back and forward": made(t, time.Hour, change{noon, 0}, change{minutes(20), time.Hour}),
	}
	for _, c := range []struct {
		zone, expr, after, want string // the ticks in a row, as clocks show them
	}{
		// An hour forward, 02:00 to 03:00, and back, 03:00 to 02:00.
		{"Europe/Berlin", "30 2 * * *", "2026-03-27T12:00:00Z", "2026-03-28T02:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-23T12:00:00Z", "2026-10-24T02:30:00+02:00 2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"Europe/Berlin", "0,20,40 2,3 * * *", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-29T03:20:00+02:00 2026-03-29T03:40:00+02:00 2026-03-30T02:00:00+02:00"},
		{"Europe/Berlin", "0 3 * * *", "2026-10-24T12:00:00Z", "2026-10-25T03:00:00+01:00 2026-10-26T03:00:00+01:00"},
		{"Europe/Berlin", "0 3 * * *", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00 2026-10-26T03:00:00+01:00"},
		{"Europe/Berlin", "@hourly", "2026-03-29T00:00:00+01:00", "2026-03-29T01:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00"},
		{"Europe/Berlin", "@hourly", "2026-10-25T01:00:00+02:00", "2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T03:00:00+01:00"},
		{"Europe/Berlin", "*/30 2 * * *", "2026-10-25T01:00:00+02:00", "2026-10-25T02:00:00+02:00 2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-26T02:00:00+01:00"},
		{"Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T02:00:00+02:00 2026-03-30T02:30:00+02:00"},
		// Every two hours is no sooner than that.
		{"Europe/Berlin", "0 */2 * * *", "2026-10-25T00:00:00+02:00", "2026-10-25T02:00:00+02:00 2026-10-25T04:00:00+01:00"},
		{"Europe/Berlin", "0 */2 * * *", "2026-03-28T23:00:00+01:00", "2026-03-29T00:00:00+01:00 2026-03-29T04:00:00+02:00"},
		// But it is when the clock says so, also if that is sooner because it went forward.
		{"Europe/Berlin", "0 */3 * * *", "2026-03-28T22:00:00+01:00", "2026-03-29T00:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T06:00:00+02:00"},
		{"Europe/Berlin", "0 */12 * * *", "2026-03-28T22:00:00+01:00", "2026-03-29T00:00:00+01:00 2026-03-29T12:00:00+02:00 2026-03-30T00:00:00+02:00"},
		{"Europe/Berlin", "0 */12 * * *", "2026-10-24T22:00:00+02:00", "2026-10-25T00:00:00+02:00 2026-10-25T12:00:00+01:00 2026-10-26T00:00:00+01:00"},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", "2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00"},
		{"America/New_York", "30 2 * * SUN", "2026-03-07T12:00:00Z", "2026-03-08T03:00:00-04:00 2026-03-15T02:30:00-04:00"},
		// After the last change that the file has one by one, and on the last day of a leap year.
		{"America/New_York", "30 2 * * *", "2072-03-12T12:00:00Z", "2072-03-13T03:00:00-04:00 2072-03-14T02:30:00-04:00"},
		{"America/New_York", "0 0 * * *", "2072-12-30T12:00:00Z", "2072-12-31T00:00:00-05:00 2073-01-01T00:00:00-05:00"},
		{"America/New_York", "0 */12 * * *", "2072-12-31T12:00:00-05:00", "2073-01-01T00:00:00-05:00 2073-01-01T12:00:00-05:00"},
		{"America/New_York", "*/30 12 1 7 *", "2072-12-31T12:00:00-05:00", "2073-07-01T12:00:00-04:00 2073-07-01T12:30:00-04:00 2074-07-01T12:00:00-04:00"},
		// The winter is what is saved: +1 in summer is standard time.
		{"Europe/Dublin", "30 1 * * *", "2026-03-28T12:00:00Z", "2026-03-29T02:00:00+01:00 2026-03-30T01:30:00+01:00"},
		{"Europe/Dublin", "30 1 * * *", "2026-10-24T12:00:00Z", "2026-10-25T01:30:00+01:00 2026-10-26T01:30:00Z"},
		{"Europe/Dublin", "30 * * * *", "2026-10-25T00:30:00+01:00", "2026-10-25T01:30:00+01:00 2026-10-25T01:30:00Z 2026-10-25T02:30:00Z"},
		// Half an hour, 02:00 to 02:30 and 02:00 to 01:30.
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		{"Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"Australia/Lord_Howe", "45 * * * *", "2026-04-05T00:45:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-05T02:45:00+10:30"},
		{"Australia/Lord_Howe", "*/15 * * * *", "2026-04-05T01:30:00+11:00", "2026-04-05T01:45:00+11:00 2026-04-05T01:30:00+10:30 2026-04-05T01:45:00+10:30 2026-04-05T02:00:00+10:30"},
		{"Asia/Kathmandu", "15 0 * * *", "2026-01-01T00:00:00Z", "2026-01-02T00:15:00+05:45 2026-01-03T00:15:00+05:45"},
		// Two hours at once.
		{"Antarctica/Troll", "30 1,2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T01:30:00+02:00"},
		// No 30 December 2011: the clock went from the 29th's midnight to the 31st's.
		{"Pacific/Apia", "0 12 * * *", "2011-12-28T23:00:00-10:00", "2011-12-29T12:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
		{"Pacific/Apia", "@daily", "2011-12-28T23:00:00-10:00", "2011-12-29T00:00:00-10:00 2011-12-31T00:00:00+14:00 2012-01-01T00:00:00+14:00"},
		{"Pacific/Apia", "0 */8 * * *", "2011-12-29T08:00:00-10:00", "2011-12-29T16:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T08:00:00+14:00"},
		{"Pacific/Apia", "0 12 30 12 *", "2011-01-01T00:00:00Z", "2011-12-31T00:00:00+14:00 2012-12-30T12:00:00+14:00"},
		// No midnight: 00:00 to 01:00; and back from midnight to 23:00 of the same day.
		{"America/Sao_Paulo", "@daily", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		{"America/Sao_Paulo", "30 23 * * *", "2019-02-16T12:00:00-02:00", "2019-02-16T23:30:00-02:00 2019-02-17T23:30:00-03:00"},
		{"America/Sao_Paulo", "@daily", "2019-02-16T00:00:00-02:00", "2019-02-17T00:00:00-03:00 2019-02-18T00:00:00-03:00"},
		{"Asia/Beirut", "0,30 0 * * *", "2022-03-26T12:00:00+02:00", "2022-03-27T01:00:00+03:00 2022-03-28T00:00:00+03:00"},
		{"Asia/Beirut", "0 0 * * SUN", "2022-03-26T12:00:00+02:00", "2022-03-27T01:00:00+03:00 2022-04-03T00:00:00+03:00"},
		// Back one minute after midnight, to the day before.
		{"America/St_Johns", "@daily", "2006-10-28T12:00:00-02:30", "2006-10-29T00:00:00-02:30 2006-10-30T00:00:00-03:30"},
		// Local time of Monrovia was 44 minutes and 30 seconds late until the 7th.
		{"Africa/Monrovia", "0 12 * * *", "1972-01-05T13:00:00Z", "1972-01-06T12:44:30Z 1972-01-07T12:00:00Z"},
		{"Africa/Monrovia", "20 0 * * *", "1972-01-06T12:00:00Z", "1972-01-07T00:44:30Z 1972-01-08T00:20:00Z"},
		{"Africa/Monrovia", "* * * * *", "1972-01-07T00:43:00Z", "1972-01-07T00:43:30Z 1972-01-07T00:45:00Z 1972-01-07T00:46:00Z"},

		// 12:02 to 12:00 and 12:00 to 12:02.
		{"back 2min", "* * * * *", "2026-06-01T11:58:00Z", "2026-06-01T12:01:00+00:02 2026-06-01T12:00:00Z 2026-06-01T12:01:00Z 2026-06-01T12:02:00Z"},
		{"back 2min", "0,1 12 * * *", "2026-06-01T11:00:00Z", "2026-06-01T12:00:00+00:02 2026-06-01T12:01:00+00:02 2026-06-02T12:00:00Z"},
		{"back 2min", "*/5 * * * *", "2026-06-01T11:55:00Z", "2026-06-01T12:00:00+00:02 2026-06-01T12:05:00Z"},
		{"back 2min", "@hourly", "2026-06-01T11:00:00Z", "2026-06-01T12:00:00+00:02 2026-06-01T13:00:00Z"},
		{"forward 2min", "* * * * *", "2026-06-01T11:58:00Z", "2026-06-01T11:59:00Z 2026-06-01T12:02:00+00:02 2026-06-01T12:03:00+00:02"},
		{"forward 2min", "0,1 12 * * *", "2026-06-01T11:00:00Z", "2026-06-01T12:02:00+00:02 2026-06-02T12:00:00+00:02"},
		{"forward 2min", "*/4 * * * *", "2026-06-01T11:52:00Z", "2026-06-01T11:56:00Z 2026-06-01T12:04:00+00:02"},
		{"forward 2min", "3,59 * * * *", "2026-06-01T11:50:00Z", "2026-06-01T11:59:00Z 2026-06-01T12:03:00+00:02"},
		{"forward 2min", "*/5 * * * *", "2026-06-01T11:50:00Z", "2026-06-01T11:55:00Z 2026-06-01T12:05:00+00:02"},

		// 13:00, gone past at noon, is not due again when it comes 40 minutes later.
		{"forward and back", "30 12 * * *", "2026-06-01T11:00:00Z", "2026-06-01T13:00:00+01:00 2026-06-02T12:30:00Z"},
		{"forward and back", "10 13 * * *", "2026-06-01T11:00:00Z", "2026-06-01T13:10:00+01:00 2026-06-02T13:10:00Z"},
		{"forward and back", "30 13 * * *", "2026-06-01T11:00:00Z", "2026-06-01T13:30:00Z 2026-06-02T13:30:00Z"},
		{"forward and back", "10 * * * *", "2026-06-01T11:00:00Z", "2026-06-01T11:10:00Z 2026-06-01T13:10:00+01:00 2026-06-01T13:10:00Z"},
		{"back and back", "15 13 * * *", "2026-06-01T11:00:00Z", "2026-06-01T13:15:00+02:00 2026-06-02T13:15:00Z"},
		{"back and back", "15 * * * *", "2026-06-01T11:00:00Z", "2026-06-01T13:15:00+02:00 2026-06-01T13:15:00+01:00 2026-06-01T13:15:00Z"},
		{"back and forward", "10 12 * * *", "2026-06-01T11:00:00Z", "2026-06-01T12:10:00+01:00 2026-06-02T12:10:00+01:00"},
		{"back and forward", "30 12 * * *", "2026-06-01T11:00:00Z", "2026-06-01T12:30:00+01:00 2026-06-02T12:30:00+01:00"},
	} {
		zone := zones[c.zone]
		if zone == nil {
			zone = named(t, c.zone)
		}
		s := parse(t, c.expr, zone)
		after := at(t, c.after)
		i := after
		for _, w := range strings.Fields(c.want) {
			i = s.Next(i)
			if !i.Equal(at(t, w)) || i.Location() != zone {
				t.Errorf("%s %q after %s: %v, want %s", c.zone, c.expr, c.after, i, w)
				break
			}
			if latest := s.Latest(after, i.Add(time.Second-1)); !latest.Equal(i) {
				t.Errorf("%s %q: the latest tick after %v and up to %v is %v", c.zone, c.expr, after, i, latest)
			}
		}
	}
}

// TestZoneFiles takes changes by two minutes from files that TZ and a path name.
func TestZoneFiles(t *testing.T) {
	noon := at(t, "2026-06-01T12:00:00Z")
	files := map[string]string{
		"back by hand":    write(t, tzif(2*time.Minute, change{noon, 0})),
		"forward by hand": write(t, tzif(0, change{noon, 2 * time.Minute})),
	}
	if zic := program("zic"); zic != "" {
		dir := t.TempDir()
		source := "Zone Back 0:02 - A 2026 Jun 1 12:00u\n 0:00 - B\nZone Forward 0:00 - A 2026 Jun 1 12:00u\n 0:02 - B\n"
		if err := os.WriteFile(filepath.Join(dir, "source"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(zic, "-d", dir, filepath.Join(dir, "source")).CombinedOutput(); err != nil {
			t.Fatalf("zic: %v\n%s", err, out)
		}
		files["back by zic"], files["forward by zic"] = filepath.Join(dir, "Back"), filepath.Join(dir, "Forward")
	}
	want := map[string]map[string]string{
		"back":    {"* * * * *": "11:57 11:58 11:59 12:00 12:01 12:02", "0,1 12 * * *": "11:58 11:59"},
		"forward": {"* * * * *": "11:57 11:58 11:59 12:00 12:01 12:02", "0,1 12 * * *": "12:00"},
	}
	for name, path := range files {
		kind, _, _ := strings.Cut(name, " ")
		for _, as := range []string{path, "TZ=" + path, "TZ=:" + path} {
			tz := path
			if env, ok := strings.CutPrefix(as, "TZ="); ok {
				tz = ""
				t.Setenv("TZ", env)
			}
			zone := named(t, tz)
			for expr, want := range want[kind] {
				var got []string
				for _, i := range ticks(parse(t, expr, zone), noon.Add(-4*time.Minute), noon.Add(2*time.Minute)) {
					got = append(got, i.UTC().Format("15:04"))
				}
				if g := strings.Join(got, " "); g != want {
					t.Errorf("%s, %q with %s: due at %s in UTC, want %s", name, expr, as, g, want)
				}
			}
		}
	}
}

// program finds one also where PATH is that of a user.
func program(name string) string {
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return ""
}
