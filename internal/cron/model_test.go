package cron

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// model says when a line is due the slow and obvious way: it watches a clock on
// the wall from minute to minute (or second) and knows nothing of periods.
type model struct {
	text    string
	sets    [5][]bool
	stars   [5]bool
	closest int64

	highest int64 // what the clock has shown at most
	last    int64 // when it last showed a matching time,
	time    int64 // and which
	due     []int64
}

// field makes one up: its text, and the values that it stands for.
func field(r *rand.Rand, low, high int) (string, []bool) {
	set := make([]bool, high+1)
	if r.IntN(3) == 0 {
		for v := low; v <= high; v++ {
			set[v] = true
		}
		return "*", set
	}
	var parts []string
	for range 1 + r.IntN(2) {
		from, to := low+r.IntN(high-low+1), low+r.IntN(high-low+1)
		step := 1
		text := fmt.Sprint(from)
		switch r.IntN(4) {
		case 0:
			from, to, step = low, high, 2+r.IntN((high-low+1)/2)
			text = fmt.Sprintf("*/%d", step)
		case 1:
			from, to = min(from, to), max(from, to)
			text = fmt.Sprintf("%d-%d", from, to)
			if to-from > 2 {
				step = 1 + r.IntN(to-from)
				text += fmt.Sprintf("/%d", step)
			}
		default:
			to = from
		}
		for v := from; v <= to; v += step {
			set[v] = true
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ","), set
}

func newModel(fields [5]string, sets [5][]bool) *model {
	m := &model{text: strings.Join(fields[:], " "), sets: sets, highest: forever, last: -forever}
	for i, f := range fields {
		m.stars[i] = f[0] == '*'
	}
	if sets[4][7] {
		sets[4][0] = true
	}
	m.closest = 24 * 60
	var times []int64
	for i := range int64(2 * 24 * 60) {
		if sets[0][i%60] && sets[1][i/60%24] {
			times = append(times, i)
		}
	}
	for i := range times[1:] {
		m.closest = min(m.closest, times[i+1]-times[i])
	}
	m.closest *= 60
	return m
}

func random(r *rand.Rand) *model {
	var fields [5]string
	var sets [5][]bool
	for i, b := range [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}} {
		fields[i], sets[i] = field(r, b[0], b[1])
		if i == 3 && r.IntN(4) > 0 || i == 2 && r.IntN(2) > 0 { // more that are due within days
			fields[i], sets[i] = "*", slices.Repeat([]bool{true}, b[1]+1)
		}
	}
	return newModel(fields, sets)
}

// matches is for a naive time that is a whole minute.
func (m *model) matches(naive int64) bool {
	if !m.sets[0][(naive/60%60+60)%60] {
		return false
	}
	t := time.Unix(naive, 0).UTC()
	if !m.sets[1][t.Hour()] || !m.sets[3][t.Month()] {
		return false
	}
	dom, dow := m.sets[2][t.Day()], m.sets[4][t.Weekday()]
	if m.stars[2] || m.stars[4] {
		return dom && dow
	}
	return dom || dow
}

// look tells the model what the clock shows now; no instant may be left out.
func (m *model) look(instant, naive int64) {
	if m.stars[0] || m.stars[1] {
		if naive%60 == 0 && m.matches(naive) {
			if instant-m.last >= m.closest || naive > m.time {
				m.due = append(m.due, instant)
			}
			m.last, m.time = instant, naive
		}
		return
	}
	if m.highest == forever {
		m.highest = naive
	}
	due := false
	for minute := m.highest - (m.highest%60+60)%60 + 60; minute <= naive; minute += 60 {
		due = due || m.matches(minute)
	}
	if due {
		m.due = append(m.due, instant)
	}
	m.highest = max(m.highest, naive)
}

// watch lets models look at a clock from one instant on and up to another.
func watch(zone *time.Location, from, to, step int64, models ...*model) {
	for i := from; i <= to; i += step {
		for _, m := range models {
			m.look(i, i+offset(zone, i))
		}
	}
}

// watchYear is watch for a zone that changes at most once an hour, from minute to minute.
func watchYear(zone *time.Location, from, to int64, models ...*model) {
	const hour = 60 * 60
	for i := from; i <= to; i += hour {
		first, last := offset(zone, i), offset(zone, i+hour-60)
		for k := i; k < i+hour && k <= to; k += 60 {
			now := first
			if first != last {
				now = offset(zone, k)
			}
			for _, m := range models {
				m.look(k, k+now)
			}
		}
	}
}

func offset(zone *time.Location, instant int64) int64 {
	_, seconds := time.Unix(instant, 0).In(zone).Zone()
	return int64(seconds)
}

// agree compares ticks within (after, until] with those of a model that has watched.
func (m *model) agree(t *testing.T, zone *time.Location, after, until int64) []time.Time {
	t.Helper()
	s := parse(t, m.text, zone)
	got := ticks(s, time.Unix(after, 0), time.Unix(until, 0))
	var want []int64
	for _, i := range m.due {
		if i > after {
			want = append(want, i)
		}
	}
	for k := range max(len(got), len(want)) {
		if k >= len(want) || k >= len(got) || got[k].Unix() != want[k] {
			g, w := got[min(k, len(got)):], want[min(k, len(want)):]
			t.Fatalf("%q in %s after %v, tick %d: %v, but by the clock %v", m.text, zone,
				time.Unix(after, 0).In(zone), k, g[:min(2, len(g))], instants(zone, w[:min(2, len(w))]))
		}
	}
	return got
}

func instants(zone *time.Location, unix []int64) (all []time.Time) {
	for _, i := range unix {
		all = append(all, time.Unix(i, 0).In(zone))
	}
	return all
}

// unruly is a zone with several changes within some days.
func unruly(t testing.TB, r *rand.Rand, around int64) *time.Location {
	offset := func() time.Duration {
		switch r.IntN(4) {
		case 0:
			return time.Duration(r.IntN(24*60)-12*60) * time.Minute
		case 1:
			return time.Duration(r.IntN(5)-2) * time.Minute
		case 2:
			return time.Duration(r.IntN(5)-2) * 30 * time.Minute
		default:
			return time.Duration(r.IntN(26)-12) * time.Hour
		}
	}
	var changes []change
	when := around - around%60 - 24*60*60
	for range r.IntN(6) {
		when += 60 * int64(1+r.IntN(1<<(2+r.IntN(9))))
		changes = append(changes, change{time.Unix(when, 0), offset()})
	}
	return made(t, offset(), changes...)
}

// TestModel compares with the model: random lines, in real zones around their
// changes and in unruly ones.
func TestModel(t *testing.T) {
	const day = 24 * 60 * 60
	r := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for round := range 100 {
		around := at(t, "2000-01-01T00:00:00Z").Unix() + r.Int64N(30*365*day)
		zone := unruly(t, r, around)
		if round%2 == 0 {
			zone = named(t, years[r.IntN(len(years))].zone)
			if _, end := time.Unix(around, 0).In(zone).ZoneBounds(); !end.IsZero() {
				around = end.Unix()
			}
		}
		around -= around % 60
		models := []*model{random(r), random(r), random(r), random(r), random(r), random(r)}
		// Two days more, for what the clock has shown before.
		after, until := around-day-r.Int64N(day), around+day+r.Int64N(day)
		watch(zone, after-after%60-2*day, until, 60, models...)
		for _, m := range models {
			got := m.agree(t, zone, after, until)
			compared += len(got)
			for range 4 {
				between(t, parse(t, m.text, zone), got, after+r.Int64N(until-after), after+r.Int64N(until-after))
			}
		}
	}
	if compared < 100_000 {
		t.Errorf("only %d ticks were compared", compared)
	}
}

// between compares two instants that are no ticks with going from tick to tick.
func between(t *testing.T, s *Spec, all []time.Time, after, now int64) {
	t.Helper()
	var next, latest time.Time
	for _, i := range all {
		if i.Unix() > after && next.IsZero() {
			next = i
		}
		if i.Unix() > after && i.Unix() <= now {
			latest = i
		}
	}
	if got := s.Next(time.Unix(after, 0)); !next.IsZero() && !got.Equal(next) {
		t.Fatalf("after %d the next tick is %v, want %v", after, got, next)
	}
	if got := s.Latest(time.Unix(after, 0), time.Unix(now, 0)); !got.Equal(latest) {
		t.Fatalf("after %d and up to %d the latest tick is %v, want %v", after, now, got, latest)
	}
}

// TestSeconds is the same from second to second, where offsets had odd seconds.
func TestSeconds(t *testing.T) {
	const span = 2 * 60 * 60
	for _, c := range []struct{ zone, change string }{
		{"Africa/Monrovia", "1972-01-07T00:44:30Z"},
		{"Europe/Paris", "1911-03-10T23:50:39Z"},
		{"America/New_York", "1883-11-18T17:00:00Z"},
		{"Asia/Manila", "1844-12-31T15:56:08Z"}, // a day was left out
	} {
		zone, change := named(t, c.zone), at(t, c.change).Unix()
		if _, end := time.Unix(change-1, 0).In(zone).ZoneBounds(); end.Unix() != change {
			t.Fatalf("%s changes at %v", c.zone, end.UTC())
		}
		var models []*model
		for _, fields := range [][5]string{{"*", "*", "*", "*", "*"}, {"0-59", "*", "*", "*", "*"}, {"0-59", "0-23", "*", "*", "*"}} {
			var sets [5][]bool
			for i := range sets {
				sets[i] = slices.Repeat([]bool{true}, 60)
			}
			models = append(models, newModel(fields, sets))
		}
		watch(zone, change-2*span, change+span, 1, models...)
		for _, m := range models {
			m.agree(t, zone, change-span, change+span)
		}
	}
}

// years are years with changes of many kinds.
var years = []struct {
	zone string
	year int
}{
	{"Europe/Berlin", 2026}, {"America/New_York", 2026}, {"Australia/Lord_Howe", 2026}, {"Europe/Dublin", 2026},
	{"Pacific/Apia", 2011}, {"America/Sao_Paulo", 2018}, {"Asia/Beirut", 2022}, {"Africa/Cairo", 2014},
	{"Antarctica/Troll", 2026}, {"America/St_Johns", 2006}, {"Africa/Casablanca", 2026}, {"Asia/Kathmandu", 2026},
}

// TestYears loses and doubles nothing over a year, and a line of fixed times is
// due once for each day that it matches.
func TestYears(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, y := range years {
		zone := named(t, y.zone)
		from := time.Date(y.year, 1, 1, 0, 0, 0, 0, zone).Add(-time.Second)
		until := time.Date(y.year+1, 1, 1, 0, 0, 0, 0, zone).Add(-time.Second)
		var models []*model
		for len(models) < 3 {
			if m := random(r); m.closest >= 15*60 { // a year of minutes would last too long
				models = append(models, m)
			}
		}
		watchYear(zone, from.Unix()-59-2*24*60*60, until.Unix(), models...)
		for _, m := range models {
			m.agree(t, zone, from.Unix(), until.Unix())
		}
		for _, hour := range []int{0, 1, 2, 3, 12, 23} {
			s := parse(t, fmt.Sprintf("30 %d * * *", hour), zone)
			if n := len(ticks(s, from, until)); n != 365 {
				t.Errorf("%s: a daily line at %d:30 has %d ticks in %d", y.zone, hour, n, y.year)
			}
		}
	}
}
