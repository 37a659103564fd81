package cron

import (
	"strings"
	"testing"
	"time"
)

// TestFields has what the fields mean, where nothing is changed.
func TestFields(t *testing.T) {
	for expr, want := range map[string]string{
		"* * * * *":              "2026-11-30T00:01 2026-11-30T00:02",
		"*/20 * * * *":           "2026-11-30T00:20 2026-11-30T00:40 2026-11-30T01:00",
		"5/25 * * * *":           "2026-11-30T00:05 2026-11-30T00:30 2026-11-30T00:55 2026-11-30T01:05",
		"0 22-2/2 * * *":         "2026-11-30T02:00 2026-11-30T22:00 2026-12-01T00:00",
		"30 9-17/4 * * 1-5":      "2026-11-30T09:30 2026-11-30T13:30 2026-11-30T17:30 2026-12-01T09:30",
		"  15\t6 1,15 * *\n":     "2026-12-01T06:15 2026-12-15T06:15",
		"0 0 * * 0":              "2026-12-06T00:00 2026-12-13T00:00",
		"0 0 * * 7":              "2026-12-06T00:00 2026-12-13T00:00",
		"0 0 * * 5-7":            "2026-12-04T00:00 2026-12-05T00:00 2026-12-06T00:00 2026-12-11T00:00",
		"0 0 * * SAT-SUN":        "2026-12-05T00:00 2026-12-06T00:00 2026-12-12T00:00",
		"0 0 * * 1-7/2":          "2026-12-02T00:00 2026-12-04T00:00 2026-12-06T00:00 2026-12-07T00:00",
		"0 0 * * Mon,THU":        "2026-12-03T00:00 2026-12-07T00:00",
		"0 0 1 MAR,Jul *":        "2027-03-01T00:00 2027-07-01T00:00",
		"0 0 1 NOV-FEB/3 ?":      "2027-02-01T00:00 2027-11-01T00:00",
		"0 0 31 * *":             "2026-12-31T00:00 2027-01-31T00:00 2027-03-31T00:00",
		"0 0 13 * FRI":           "2026-12-04T00:00 2026-12-11T00:00 2026-12-13T00:00", // either
		"0 0 13 * *":             "2026-12-13T00:00",
		"0 0 */2 * FRI":          "2026-12-11T00:00 2026-12-25T00:00", // both: a star restricts nothing
		"0 0 1-7 * */3":          "2026-12-02T00:00 2026-12-05T00:00 2026-12-06T00:00 2027-01-02T00:00",
		"0 0 29 2 *":             "2028-02-29T00:00 2032-02-29T00:00",
		"0 0 29 2 */7":           "2032-02-29T00:00 2060-02-29T00:00 2088-02-29T00:00 2128-02-29T00:00", // a Sunday
		"0 0 */28 2 1":           "2027-02-01T00:00 2038-02-01T00:00 2044-02-01T00:00 2044-02-29T00:00",
		"0 0 30 2 *":             "never",
		"0 0 31 4,6,9,11 *":      "never",
		"@hourly":                "2026-11-30T01:00 2026-11-30T02:00",
		"@Daily":                 "2026-12-01T00:00 2026-12-02T00:00",
		"@midnight":              "2026-12-01T00:00 2026-12-02T00:00",
		"@weekly":                "2026-12-06T00:00 2026-12-13T00:00",
		"@monthly":               "2026-12-01T00:00 2027-01-01T00:00",
		"@yearly":                "2027-01-01T00:00 2028-01-01T00:00",
		"@annually":              "2027-01-01T00:00 2028-01-01T00:00",
		"59 23 31 12 *":          "2026-12-31T23:59 2027-12-31T23:59",
		"0,30,30 12,11-12 * * *": "2026-11-30T11:00 2026-11-30T11:30 2026-11-30T12:00 2026-11-30T12:30 2026-12-01T11:00",
	} {
		s := parse(t, expr, time.UTC)
		i := at(t, "2026-11-30T00:00:00Z")
		for _, w := range strings.Fields(want) {
			got := "never"
			if i = s.Next(i); !i.IsZero() {
				got = i.Format("2006-01-02T15:04")
			}
			if got != w {
				t.Errorf("%q: %s, want %s of %s", expr, got, w, want)
				break
			}
		}
	}
}

// TestRefused has what is no expression, and a word that the answer must have.
func TestRefused(t *testing.T) {
	for expr, hint := range map[string]string{
		"":                                      "five",
		"* * * *":                               "4 fields",
		"0 * * * * *":                           "seconds",
		"0 0 1 1 * 2027":                        "year",
		"0 3 * * * /bin/backup x":               "7 fields",
		"@every 5m":                             "--every",
		"@reboot":                               "boot",
		"@fortnightly":                          "@hourly",
		"@":                                     "@hourly",
		"@daily 5":                              "follow",
		"TZ=UTC 0 3 * * *":                      "--tz",
		"CRON_TZ=UTC 0 3 * * *":                 "--tz",
		"TZ=":                                   "--tz",
		"60 * * * *":                            `minute "60": it takes 0-59`,
		"-1 * * * *":                            "minute",
		"+1 * * * *":                            "minute",
		"1.5 * * * *":                           "minute",
		", * * * *":                             "minute",
		"1,,2 * * * *":                          "minute",
		"*-5 * * * *":                           "minute",
		"*5 * * * *":                            "minute",
		"*/0 * * * *":                           "minute",
		"*/60 * * * *":                          "smaller than the range",
		"*/5/5 * * * *":                         "minute",
		"1-2-3 * * * *":                         "minute",
		"99999999999999999999 * * * *":          "minute",
		"H * * * *":                             "minute",
		"* 24 * * *":                            `hour "24": it takes 0-23`,
		"* * 0 * *":                             `day of month "0": it takes 1-31`,
		"* * L * *":                             "day of month",
		"* * 15W * *":                           "day of month",
		"* * * 13 *":                            "month",
		"* * * MON *":                           "JAN-DEC",
		"* * * * 8":                             "day of week",
		"* * * * JAN":                           "SUN-SAT",
		"* * * * FRI#3":                         "day of week",
		"* * * * FRI-MON/2":                     "list the days",
		"* * * * 5-0/2":                         "list the days",
		"* * * * ÄÖÜ":                           "day of week",
		"\x00 * * * *":                          "minute",
		strings.Repeat("1,", 600) + "1 * * * *": "longer",
	} {
		s, err := Parse(expr, time.UTC)
		if err == nil || s != nil {
			t.Errorf("%q is accepted", expr)
		} else if !strings.Contains(err.Error(), hint) || !strings.HasPrefix(err.Error(), "cron expression ") {
			t.Errorf("%q: %v; want %q in it", expr, err, hint)
		}
	}
}

func TestLatest(t *testing.T) {
	for _, c := range []struct{ expr, after, now, want string }{
		{"0 3 * * *", "2026-11-29T03:00:00Z", "2026-11-30T02:59:59Z", ""},
		{"0 3 * * *", "2026-11-29T03:00:00Z", "2026-11-30T03:00:00Z", "2026-11-30T03:00:00Z"},
		{"0 3 * * *", "2026-11-29T02:59:59Z", "2026-11-30T02:59:59Z", "2026-11-29T03:00:00Z"},
		{"0 3 * * *", "2026-11-30T03:00:00Z", "2026-11-29T03:00:00Z", ""}, // a clock that was set back
		{"* * * * *", "2001-01-01T00:00:00Z", "2026-11-30T12:34:56Z", "2026-11-30T12:34:00Z"},
		{"* * * * *", "0001-01-01T00:00:00Z", "2026-11-30T12:34:56Z", "2026-11-30T12:34:00Z"},
		{"* * * 1-6 *", "2001-01-01T00:00:00Z", "2026-11-30T12:34:56Z", "2026-06-30T23:59:00Z"},
		{"0 0 29 2 *", "1990-01-01T00:00:00Z", "2026-11-30T12:34:56Z", "2024-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2024-02-29T00:00:00Z", "2026-11-30T12:34:56Z", ""},
		{"0 0 30 2 *", "0001-01-01T00:00:00Z", "2026-11-30T12:34:56Z", ""},
	} {
		got := parse(t, c.expr, time.UTC).Latest(at(t, c.after), at(t, c.now))
		if c.want == "" && !got.IsZero() || c.want != "" && !got.Equal(at(t, c.want)) {
			t.Errorf("%q: after %s and up to %s: %v, want %s", c.expr, c.after, c.now, got, c.want)
		}
	}
	// Parts of a second.
	s := parse(t, "0 3 * * *", time.UTC)
	three := at(t, "2026-11-30T03:00:00Z")
	if got := s.Next(three.Add(-1)); !got.Equal(three) {
		t.Errorf("a nanosecond before: %v", got)
	}
	if got := s.Latest(three.Add(-1), three); !got.Equal(three) {
		t.Errorf("within a nanosecond: %v", got)
	}
	if got := s.Latest(three, three.Add(1)); !got.IsZero() {
		t.Errorf("after a nanosecond: %v", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, expr := range []string{"* * * * *", "*/5 1-3,7 29 FEB SUN-2", "@hourly", "TZ=UTC * * * * *", "0 0 31 2 *", ", * * * *", "1-9/3,? 22-2 */7 1-12/2 0-7"} {
		f.Add(expr, int64(1796000000))
	}
	berlin := named(f, "Europe/Berlin")
	f.Fuzz(func(t *testing.T, expr string, unix int64) {
		start := time.Now()
		s, err := Parse(expr, berlin)
		if err != nil {
			if s != nil || len(err.Error()) > 10*maxLength {
				t.Fatalf("%q: %v, %v", expr, s, err)
			}
		} else {
			after := time.Unix(unix%(1<<33), 0)
			next := s.Next(after)
			if !next.IsZero() && (!next.After(after) || !s.Latest(after, next).Equal(next)) {
				t.Fatalf("%q: %v is next after %v, %v the latest", expr, next, after, s.Latest(after, next))
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Fatalf("%q took %v", expr, took)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	after := at(b, "2026-11-30T12:00:00Z")
	for _, expr := range []string{"* * * * *", "*/5 * * * *", "30 2 * * *", "0 0 29 2 *", "0 0 29 2 */7", "* * 29 2 */7", "0 0 30 2 *", "* * 30 2 *"} {
		s := parse(b, expr, named(b, "Europe/Berlin"))
		b.Run(strings.ReplaceAll(expr, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				s.Next(after)
			}
		})
	}
}

func BenchmarkLatest(b *testing.B) {
	for _, expr := range []string{"* * * * *", "30 2 * * *", "0 0 29 2 */7", "* * * 1-6 *"} {
		s := parse(b, expr, named(b, "Europe/Berlin"))
		b.Run(strings.ReplaceAll(expr, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				s.Latest(time.Unix(0, 0), time.Unix(1796000000, 0))
			}
		})
	}
}
