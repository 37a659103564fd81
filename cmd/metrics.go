package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

// metric describes a family of series, as Prometheus wants it.
type metric struct {
	name, kind, help string
}

const (
	counter = "counter"
	gauge   = "gauge"
	summary = "summary"
)

// The series. Counters go on where the file of an earlier run left them.
var (
	mAcquired   = metric{"simba_acquisitions_total", counter, "Acquisitions of the mutex."}
	mReleased   = metric{"simba_releases_total", counter, "Releases of the mutex."}
	mLost       = metric{"simba_losses_total", counter, "Losses of ownership."}
	mBusy       = metric{"simba_busy_total", counter, "Runs that did not get the mutex in time."}
	mErrors     = metric{"simba_backend_errors_total", counter, "Calls to the backend that failed or got no answer."}
	mCalls      = metric{"simba_backend_call_seconds", summary, "How long calls to the backend took."}
	mJumps      = metric{"simba_clock_jumps_total", counter, "Jumps of the backend's clock."}
	mOwner      = metric{"simba_is_owner", gauge, "1 while a run on this host owns the mutex."}
	mWait       = metric{"simba_wait_seconds", gauge, "How long the last acquisition was waited for."}
	mHeld       = metric{"simba_hold_seconds", gauge, "How long the mutex was held the last time."}
	mSlowest    = metric{"simba_backend_call_seconds_max", gauge, "The slowest call to the backend of this process."}
	mRuns       = metric{"simba_runs_total", counter, "Runs of a schedule, by how they ended."}
	mTick       = metric{"simba_last_tick_timestamp_seconds", gauge, "The tick of the last run of a schedule."}
	mStatus     = metric{"simba_exit_status", gauge, "Exit status of the last run."}
	mTook       = metric{"simba_run_seconds", gauge, "How long the last run of a schedule took."}
	mFinished   = metric{"simba_last_run_timestamp_seconds", gauge, "When the last run ended."}
	allMetrics  = []metric{mAcquired, mReleased, mLost, mBusy, mErrors, mCalls, mJumps, mOwner, mWait, mHeld, mSlowest, mRuns, mTick, mStatus, mTook, mFinished}
	metricsMode = fs.FileMode(0o644) // it is for a collector of another user
)

// metrics counts what happens to a mutex. All of its methods do nothing if nobody
// wants to know.
//
// Other runs on this host may keep the same file. So what is written is what the file
// says, with this run's counts added and what this run knows better put in its place,
// under a lock on the directory.
type metrics struct {
	path  string // of the file for node_exporter's textfile collector; empty: none
	mutex string
	log   *slog.Logger

	writing sync.Mutex // one at a time; the others are never held up by a disk
	failed  bool       // it was told that the file cannot be written

	mu     sync.Mutex
	series series // as they were last written
	counts series // since then
	sets   series // the same
	max    float64
	owner  string    // the id under which this run owned the mutex last
	began  time.Time // to wait for the mutex
	got    time.Time
}

// series are values by name and labels, as they are printed.
type series map[string]float64

// newMetrics is nil without a reader.
func newMetrics(path string, served bool, mutex string, log *slog.Logger) *metrics {
	if path == "" && !served {
		return nil
	}
	return &metrics{path: path, mutex: mutex, log: log, began: time.Now(), series: series{}, counts: series{}, sets: series{}}
}

// labels need no escaping: names of mutexes have no quotes, nor has what stands for
// more here.
func (m *metrics) labels(more ...string) string {
	s := fmt.Sprintf("{mutex=%q", m.mutex)
	for i := 0; i+1 < len(more); i += 2 {
		s += fmt.Sprintf(",%s=%q", more[i], more[i+1])
	}
	return s + "}"
}

func (m *metrics) set(s metric, v float64) { m.sets[s.name+m.labels()] = v }

func (m *metrics) count(s metric, labels ...string) { m.counts[s.name+m.labels(labels...)]++ }

// observe counts the events of a lease.
func (m *metrics) observe(e lease.Event) {
	if m == nil {
		return
	}
	if m.counted(e) {
		m.write()
	}
}

func (m *metrics) counted(e lease.Event) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Kind == lease.EventAcquired:
		m.got, m.owner = time.Now(), e.Owner
		m.count(mAcquired)
		m.set(mOwner, 1)
		m.set(mWait, m.got.Sub(m.began).Seconds())
	case e.Kind == lease.EventReleased:
		m.count(mReleased)
		m.notOwner()
	case e.Kind == lease.EventStopping && errors.Is(e.Err, lease.ErrLost):
		m.count(mLost)
	case e.Kind == lease.EventLost:
		m.notOwner()
	case e.Kind == lease.EventClockStep:
		m.count(mJumps)
	default:
		return false
	}
	return true
}

func (m *metrics) notOwner() {
	m.set(mOwner, 0)
	m.set(mHeld, time.Since(m.got).Seconds())
	m.began = time.Now()
}

// measure is told of each call to the backend; it writes nothing, as it must not
// block.
func (m *metrics) measure(c lease.Call) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	took := c.Took.Seconds()
	m.max = max(m.max, took)
	m.set(mSlowest, m.max)
	m.counts[mCalls.name+"_sum"+m.labels("op", c.Op)] += took
	m.counts[mCalls.name+"_count"+m.labels("op", c.Op)]++
	if c.Err != nil {
		m.count(mErrors)
	}
}

// ran writes what one run of a schedule came to.
func (m *metrics) ran(status exitCode, tick time.Time, took time.Duration) {
	if m == nil {
		return
	}
	result := "ok"
	if status != exitOK {
		result = "failed"
	}
	m.mu.Lock()
	m.count(mRuns, "result", result)
	m.set(mTick, float64(tick.UnixMilli())/1000)
	m.set(mTook, took.Seconds())
	m.ended(status)
	m.mu.Unlock()
	m.write()
}

// end writes what a run came to.
func (m *metrics) end(status exitCode, busy bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	if busy {
		m.count(mBusy)
	}
	if !m.got.IsZero() {
		m.set(mOwner, 0)
	}
	m.ended(status)
	m.mu.Unlock()
	m.write()
}

func (m *metrics) ended(status exitCode) {
	m.set(mStatus, float64(status))
	m.set(mFinished, float64(time.Now().UnixMilli())/1000)
}

// take hands out what is not written yet, and for whom.
func (m *metrics) take() (counts, sets series, owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts, sets = m.counts, m.sets
	m.counts, m.sets = series{}, series{}
	return counts, sets, m.owner
}

// with are the series brought up to date.
func (m *metrics) with(old, counts, sets series) series {
	s := maps.Clone(old)
	for name, n := range counts {
		s[name] += n
	}
	maps.Copy(s, sets)
	if owner := mOwner.name + m.labels(); s[owner] == 0 {
		s[owner] = 0 // also if nobody ever was
	}
	return s
}

// write replaces the file by rename, so that nobody reads half of it. A failure is
// told once; no run is worth less for it.
func (m *metrics) write() {
	if m.path == "" {
		return
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	counts, sets, owner := m.take()
	now, err := m.merge(counts, sets, owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.series = now
		return
	}
	for name, n := range counts { // for the next time
		m.counts[name] += n
	}
	maps.Copy(sets, m.sets)
	m.sets = sets
	if !m.failed {
		m.failed = true
		m.log.Warn("--metrics-file: " + err.Error())
	}
}

// patienceForFile is for another run that is just writing the file.
const patienceForFile = time.Second

func (m *metrics) merge(counts, sets series, owner string) (series, error) {
	dir, err := os.Open(filepath.Dir(m.path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // the lock ends with it
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Since(began) > patienceForFile {
			return nil, fmt.Errorf("cannot lock %s: %w", dir.Name(), err)
		}
	}
	old, last := m.load()
	sets = maps.Clone(sets)
	switch owns, known := sets[mOwner.name+m.labels()]; {
	case owns > 0:
		last = owner
	case known && last != "" && last != owner:
		delete(sets, mOwner.name+m.labels()) // another run owns the mutex by now
	}
	now := m.with(old, counts, sets)
	return now, replaceFile(m.path, ownerLine+last+"\n"+textOf(now), metricsMode)
}

// ownerLine begins a comment in the file: who set the series of ownership last.
const ownerLine = "# simba: owner "

// load reads what earlier and other runs of the same mutex have counted.
func (m *metrics) load() (s series, owner string) {
	s = series{}
	text, _, err := readSmall(m.path)
	if err != nil {
		return s, ""
	}
	mine := strings.TrimSuffix(m.labels(), "}")
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), ownerLine); ok {
			owner = id
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && strings.Contains(name, mine) {
			s[name] = v
		}
	}
	return s, owner
}

// served is the text for a collector that asks.
func (m *metrics) served() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return textOf(m.with(m.series, m.counts, m.sets))
}

func textOf(all series) string {
	families := map[string][]string{} // by name without labels
	for s := range all {
		name, _, _ := strings.Cut(s, "{")
		families[name] = append(families[name], s)
	}
	var b strings.Builder
	for _, f := range allMetrics {
		names := families[f.name]
		if f.kind == summary {
			names = slices.Concat(families[f.name+"_sum"], families[f.name+"_count"])
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, s := range names {
			fmt.Fprintf(&b, "%s %s\n", s, strconv.FormatFloat(all[s], 'f', -1, 64))
		}
	}
	return b.String()
}
