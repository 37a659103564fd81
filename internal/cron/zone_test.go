package cron

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestZone(t *testing.T) {
	when := at(t, "2026-07-01T00:00:00Z")
	file := write(t, tzif(90*time.Minute))
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	garbage := write(t, []byte("TZif2 and no more"))
	for _, c := range []struct{ tz, name, want string }{ // want: the offset in July, or a word of the error
		{"Asia/Tokyo", "", "+09:00"},
		{"Asia/Tokyo", "Local", "+09:00"},
		{"Asia/Tokyo", "UTC", "Z"},
		{"Asia/Tokyo", "Europe/Berlin", "+02:00"},
		{"Asia/Tokyo", file, "+01:30"},
		{":Asia/Tokyo", "", "+09:00"},
		{file, "", "+01:30"},
		{":" + file, "Local", "+01:30"},
		{"", "", "Z"},
		{"", "EST", "-05:00"},
		{"Nowhere", "", "TZ in the environment"},
		{"CET-1CEST", "", "TZ in the environment"},
		{"Local", "", "TZ in the environment"},
		{"", "Nowhere", "Europe/Berlin"},
		{"", "CET-1CEST,M3.5.0,M10.5.0/3", "Europe/Berlin"},
		{"", "Europe", "Europe/Berlin"},
		{"", "../zone", "Europe/Berlin"},
		{"", "/", "no zone file"},
		{"", "/dev/zero", "no zone file"},
		{"", "/nowhere", "no such file"},
		{"", fifo, "no zone file"},
		{"", garbage, "no zone file"},
		{garbage, "", "no zone file"},
	} {
		t.Setenv("TZ", c.tz)
		zone, err := Zone(c.name)
		if err != nil {
			if zone != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("TZ=%s, %q: %v, want %s", c.tz, c.name, err, c.want)
			}
			continue
		}
		if got := when.In(zone).Format("Z07:00"); got != c.want {
			t.Errorf("TZ=%s, %q: %s, want %s", c.tz, c.name, got, c.want)
		}
	}
}
