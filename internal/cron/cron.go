// Package cron says when a line of cron's is due, also where local time is
// changed. A library reads the five fields and finds what matches them on a
// naive time line, one without zones; which instant such a time stands for is
// decided here, since libraries lose or double ticks around a change.
package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	lib "github.com/netresearch/go-cron"
)

// Spec is a cron expression in a zone.
type Spec struct {
	fields *lib.SpecSchedule
	zone   *time.Location
	// clock: the line counts by the clock, since its minute or hour begins with
	// a star. Otherwise it names fixed times of a day.
	clock bool
	// closest is how many seconds there are at least between two times that match.
	closest int64
}

// Days of the Gregorian calendar that exist at all come again within 40 years:
// 29 February on a given weekday, over a year such as 2100 that has none.
const searchYears = 40

const (
	maxLength = 1000
	star      = "*?" // what a field begins with that restricts nothing, or only by a step
)

// names are the fields, and what may stand in each.
var names = [...]struct{ name, takes string }{
	{"minute", "0-59"},
	{"hour", "0-23"},
	{"day of month", "1-31"},
	{"month", "1-12 or JAN-DEC"},
	{"day of week", "0-7 or SUN-SAT, 0 and 7 being Sunday"},
}

// Parse reads five fields (minute, hour, day, month, weekday) or a
// word: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually. Its
// error is for the one who wrote the expression.
func Parse(expr string, zone *time.Location) (*Spec, error) {
	if len(expr) > maxLength {
		return nil, fmt.Errorf("cron expression is longer than %d characters", maxLength)
	}
	// The library takes the H of THU for something else, but not in small letters.
	fields := strings.Fields(strings.ToLower(expr))
	s := &Spec{zone: zone}
	var err error
	if len(fields) > 0 && strings.HasPrefix(fields[0], "@") {
		s.fields, err = word(fields)
		s.clock = fields[0] == "@hourly"
	} else {
		s.fields, err = five(fields)
		s.clock = err == nil && (starred(fields[0]) || starred(fields[1]))
	}
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w", expr, err)
	}
	s.fields.Location = time.UTC
	s.closest = closest(s.fields)
	return s, nil
}

func starred(field string) bool { return strings.ContainsAny(field[:1], star) }

func word(fields []string) (*lib.SpecSchedule, error) {
	switch {
	case fields[0] == "@every":
		return nil, errors.New("use --every for intervals")
	case fields[0] == "@reboot":
		return nil, errors.New("@reboot is no time; start simba at boot instead")
	case len(fields) > 1:
		return nil, fmt.Errorf("nothing may follow %s", fields[0])
	}
	s, err := read(lib.Descriptor, fields...)
	if err != nil {
		return nil, fmt.Errorf("%s is not known; there are @hourly, @daily, @weekly, @monthly and @yearly", fields[0])
	}
	return s, nil
}

func five(fields []string) (*lib.SpecSchedule, error) {
	if len(fields) > 0 && (strings.HasPrefix(fields[0], "tz=") || strings.HasPrefix(fields[0], "cron_tz=")) {
		return nil, errors.New("use --tz for the time zone")
	}
	if n := len(fields); n != len(names) {
		hint := ""
		if n == len(names)+1 {
			hint = "; leave out seconds, or a year"
		}
		return nil, fmt.Errorf("it has %d fields, not the five: minute, hour, day, month, weekday%s", n, hint)
	}
	const all = lib.Minute | lib.Hour | lib.Dom | lib.Month | lib.Dow
	for i, field := range fields {
		// Alone, so that the error can say which one is wrong.
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field
		if _, err := read(all, alone...); err != nil || !tidy(field) {
			return nil, fmt.Errorf("%s %q: it takes %s, also as lists (a,b), ranges (a-b) and steps (*/n, a-b/n) "+
				"smaller than the range", names[i].name, field, names[i].takes)
		}
	}
	if crooked(fields[4]) {
		return nil, fmt.Errorf("day of week %q: a range over the end of the week cannot have a step; list the days", fields[4])
	}
	s, err := read(all, fields...)
	if err != nil {
		return nil, err
	}
	// As in cron: if both fields for days are restricted one of them is enough,
	// and one that begins with a star does not count as restricted.
	s.DowOrDom = !starred(fields[2]) && !starred(fields[4])
	return s, nil
}

func read(options lib.ParseOption, fields ...string) (*lib.SpecSchedule, error) {
	parser, err := lib.TryNewParser(options)
	if err != nil {
		return nil, err
	}
	schedule, err := parser.WithMaxSearchYears(searchYears).Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, err
	}
	s, ok := schedule.(*lib.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("not a line of fields but a %T", schedule)
	}
	return s, nil
}

// tidy is false for what the library reads as something else than was written:
// it passes over empty elements, what follows a star, and signs.
func tidy(field string) bool {
	for element := range strings.SplitSeq(field, ",") {
		if element == "" || strings.Contains(element, "+") ||
			strings.ContainsAny(element[:1], star) && len(element) > 1 && element[1] != '/' {
			return false
		}
	}
	return true
}

// crooked finds FRI-MON/2: the library counts Sunday twice on the way.
func crooked(field string) bool {
	for element := range strings.SplitSeq(field, ",") {
		days, _, stepped := strings.Cut(element, "/")
		if from, to, ok := strings.Cut(days, "-"); ok && stepped && weekday(from) > weekday(to) {
			return true
		}
	}
	return false
}

func weekday(day string) int {
	if i := strings.Index("sunmontuewedthufrisat", day); i >= 0 && len(day) == len("sun") {
		return i / len("sun")
	}
	n, _ := strconv.Atoi(day) // one or the other: it has been read before
	return n
}

// closest is the least distance between matching times of a day and the next.
func closest(f *lib.SpecSchedule) int64 {
	const minutes = 24 * 60
	least, last := minutes, -1
	for m := range 2 * minutes {
		if f.Hour&(1<<(m/60%24)) == 0 || f.Minute&(1<<(m%60)) == 0 {
			continue
		}
		if last >= 0 {
			least = min(least, m-last)
		}
		last = m
	}
	return int64(least) * 60
}
