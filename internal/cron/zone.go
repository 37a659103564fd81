package cron

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // zones are known also where the system has no files of them
)

// A zone file of all transitions since 1850 has less than 4 kB.
const maxZoneFile = 1 << 20

// Zone finds a time zone: "" and "Local" (what TZ in the environment says, or
// the system), "UTC", a name of the IANA database, or the absolute path of a zone
// file. It is stricter than package time, which takes an unknown TZ for UTC.
func Zone(name string) (*time.Location, error) {
	if name != "" && name != "Local" {
		return load(name)
	}
	tz, set := os.LookupEnv("TZ")
	if !set {
		return time.Local, nil
	}
	zone, err := load(strings.TrimPrefix(tz, ":"))
	if err != nil {
		return nil, fmt.Errorf("TZ in the environment: %w", err)
	}
	return zone, nil
}

func load(name string) (*time.Location, error) {
	if filepath.IsAbs(name) {
		return file(name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("no time zone %q; give a name such as Europe/Berlin, UTC, or the absolute path of a zone file", name)
	}
	return zone, nil
}

func file(path string) (*time.Location, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("time zone: %w", err)
	}
	// Reading a FIFO or a device could last for ever.
	if !info.Mode().IsRegular() || info.Size() > maxZoneFile {
		return nil, fmt.Errorf("time zone: %s is no zone file", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("time zone: %w", err)
	}
	zone, err := time.LoadLocationFromTZData(path, data)
	if err != nil {
		return nil, fmt.Errorf("time zone: %s is no zone file", path)
	}
	return zone, nil
}
