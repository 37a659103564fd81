package cron

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// change is a change of local time: from an instant on, so much east of UTC.
type change struct {
	at     time.Time
	offset time.Duration
}

// tzif is a zone file of these changes, in the form of RFC 9636, version 1.
func tzif(first time.Duration, changes ...change) []byte {
	n := uint32(len(changes))
	b := append([]byte("TZif"), make([]byte, 16)...)
	for _, count := range []uint32{0, 0, 0, n, n + 1, 4} {
		b = binary.BigEndian.AppendUint32(b, count)
	}
	for _, c := range changes {
		b = binary.BigEndian.AppendUint32(b, uint32(c.at.Unix()))
	}
	for i := range changes {
		b = append(b, byte(i+1))
	}
	b = append(binary.BigEndian.AppendUint32(b, uint32(int32(first.Seconds()))), 0, 0)
	for _, c := range changes {
		b = append(binary.BigEndian.AppendUint32(b, uint32(int32(c.offset.Seconds()))), 0, 0)
	}
	return append(b, "ZZZ\x00"...)
}

// made is a zone of these changes.
func made(t testing.TB, first time.Duration, changes ...change) *time.Location {
	t.Helper()
	zone, err := time.LoadLocationFromTZData("made", tzif(first, changes...))
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func write(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func named(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func parse(t testing.TB, expr string, zone *time.Location) *Spec {
	t.Helper()
	s, err := Parse(expr, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at reads an instant: 2026-03-29T01:30:00+01:00.
func at(t testing.TB, s string) time.Time {
	t.Helper()
	i, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// ticks are those after one instant and up to another.
func ticks(s *Spec, after, until time.Time) []time.Time {
	var all []time.Time
	for i := s.Next(after); !i.IsZero() && !i.After(until); i = s.Next(i) {
		all = append(all, i)
	}
	return all
}
