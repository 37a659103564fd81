package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
	mOwner      = metric{"simba_is_owner", gauge, "1 while this process owns the mutex."}
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
type metrics struct {
	path  string // of the file for node_exporter's textfile collector; empty: none
	mutex string
	log   *slog.Logger

	mu     sync.Mutex
	series map[string]float64 // by name and labels, as they are printed
	began  time.Time          // to wait for the mutex
	got    time.Time
	failed bool // it was told that the file cannot be written
}

// newMetrics is nil without a reader.
func newMetrics(path string, served bool, mutex string, log *slog.Logger) *metrics {
	if path == "" && !served {
		return nil
	}
	m := &metrics{path: path, mutex: mutex, log: log, series: map[string]float64{}, began: time.Now()}
	if path != "" {
		m.load()
	}
	for _, g := range []metric{mOwner, mWait, mHeld, mSlowest} {
		m.set(g, 0)
	}
	return m
}

// load goes on counting where an earlier run of the same mutex ended.
func (m *metrics) load() {
	text, _, err := readSmall(m.path)
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && strings.Contains(series, m.labels()) {
			m.series[series] = v
		}
	}
}

// labels need no escaping: names of mutexes have no quotes, nor has what stands for
// more here.
func (m *metrics) labels(more ...string) string {
	s := fmt.Sprintf("{mutex=%q", m.mutex)
	for i := 0; i+1 < len(more); i += 2 {
		s += fmt.Sprintf(",%s=%q", more[i], more[i+1])
	}
	return s
}

func (m *metrics) set(s metric, v float64) { m.series[s.name+m.labels()+"}"] = v }

func (m *metrics) count(s metric, labels ...string) { m.series[s.name+m.labels(labels...)+"}"]++ }

// observe counts the events of a lease.
func (m *metrics) observe(e lease.Event) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Kind == lease.EventAcquired:
		m.got = time.Now()
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
		return
	}
	m.write()
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
	slowest := mSlowest.name + m.labels() + "}"
	m.series[slowest] = max(m.series[slowest], took)
	m.series[mCalls.name+"_sum"+m.labels("op", c.Op)+"}"] += took
	m.series[mCalls.name+"_count"+m.labels("op", c.Op)+"}"]++
	if c.Err != nil {
		m.count(mErrors)
	}
}

// ran writes what one run of a schedule came to.
func (m *metrics) ran(status exitCode, tick time.Time, took time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	result := "ok"
	if status != exitOK {
		result = "failed"
	}
	m.count(mRuns, "result", result)
	m.set(mTick, float64(tick.UnixMilli())/1000)
	m.set(mTook, took.Seconds())
	m.ended(status)
}

// end writes what a run came to.
func (m *metrics) end(status exitCode, busy bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if busy {
		m.count(mBusy)
	}
	m.set(mOwner, 0)
	m.ended(status)
}

func (m *metrics) ended(status exitCode) {
	m.set(mStatus, float64(status))
	m.set(mFinished, float64(time.Now().UnixMilli())/1000)
	m.write()
}

// write replaces the file by rename, so that nobody reads half of it. A failure is
// told once; no run is worth less for it.
func (m *metrics) write() {
	if m.path == "" {
		return
	}
	if err := replaceFile(m.path, m.text(), metricsMode); err != nil && !m.failed {
		m.failed = true
		m.log.Warn("--metrics-file: " + err.Error())
	}
}

func (m *metrics) text() string {
	families := map[string][]string{} // by name without labels
	for s := range m.series {
		name, _, _ := strings.Cut(s, "{")
		families[name] = append(families[name], s)
	}
	var b strings.Builder
	for _, f := range allMetrics {
		names := families[f.name]
		if f.kind == summary {
			names = append(slices.Clone(families[f.name+"_sum"]), families[f.name+"_count"]...)
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, s := range names {
			fmt.Fprintf(&b, "%s %s\n", s, strconv.FormatFloat(m.series[s], 'f', -1, 64))
		}
	}
	return b.String()
}
