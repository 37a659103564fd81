package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/simba-lock/simba/lease"
)

// metric describes one series of the file, as Prometheus wants it.
type metric struct {
	name, kind, help string
}

const (
	counter = "counter"
	gauge   = "gauge"
)

// The series. Counters go on where the file of an earlier run left them.
var (
	mAcquired   = metric{"simba_acquisitions_total", counter, "Acquisitions of the mutex."}
	mReleased   = metric{"simba_releases_total", counter, "Releases of the mutex."}
	mLost       = metric{"simba_losses_total", counter, "Losses of ownership."}
	mBusy       = metric{"simba_busy_total", counter, "Runs that did not get the mutex in time."}
	mErrors     = metric{"simba_backend_errors_total", counter, "Calls to the backend that failed or got no answer."}
	mJumps      = metric{"simba_clock_jumps_total", counter, "Jumps of the backend's clock."}
	mOwner      = metric{"simba_is_owner", gauge, "1 while this run owns the mutex."}
	mWait       = metric{"simba_wait_seconds", gauge, "How long the last acquisition was waited for."}
	mHeld       = metric{"simba_hold_seconds", gauge, "How long the mutex was held the last time."}
	mSlowest    = metric{"simba_backend_call_seconds_max", gauge, "The slowest call to the backend in the last run."}
	mStatus     = metric{"simba_exit_status", gauge, "Exit status of the last run."}
	mFinished   = metric{"simba_last_run_timestamp_seconds", gauge, "When the last run ended."}
	allMetrics  = []metric{mAcquired, mReleased, mLost, mBusy, mErrors, mJumps, mOwner, mWait, mHeld, mSlowest, mStatus, mFinished}
	metricsMode = fs.FileMode(0o644) // it is for a collector of another user
)

// metrics keeps the file that node_exporter's textfile collector reads. All of its
// methods do nothing if there is none.
type metrics struct {
	path  string
	mutex string
	log   *slog.Logger

	mu     sync.Mutex
	values map[string]float64
	began  time.Time
	got    time.Time
	failed bool // it was told that the file cannot be written
}

// newMetrics is nil without a file.
func newMetrics(path, mutex string, log *slog.Logger) *metrics {
	if path == "" {
		return nil
	}
	m := &metrics{path: path, mutex: mutex, log: log, values: map[string]float64{}, began: time.Now()}
	m.load()
	for _, g := range []metric{mOwner, mWait, mHeld, mSlowest} {
		m.values[g.name] = 0
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
		name, value, ok := strings.Cut(strings.TrimSpace(line), m.label()+" ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			m.values[name] = v
		}
	}
}

// label needs no escaping: names of mutexes have no quotes.
func (m *metrics) label() string { return fmt.Sprintf("{mutex=%q}", m.mutex) }

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
		m.values[mAcquired.name]++
		m.values[mOwner.name] = 1
		m.values[mWait.name] = m.got.Sub(m.began).Seconds()
	case e.Kind == lease.EventReleased:
		m.values[mReleased.name]++
		m.notOwner()
	case e.Kind == lease.EventStopping && errors.Is(e.Err, lease.ErrLost):
		m.values[mLost.name]++
	case e.Kind == lease.EventLost:
		m.notOwner()
	case e.Kind == lease.EventClockStep:
		m.values[mJumps.name]++
	default:
		return
	}
	m.write()
}

func (m *metrics) notOwner() {
	m.values[mOwner.name] = 0
	m.values[mHeld.name] = time.Since(m.got).Seconds()
}

// measure is told of each call to the backend; it writes nothing, as it must not
// block.
func (m *metrics) measure(c lease.Call) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[mSlowest.name] = max(m.values[mSlowest.name], c.Took.Seconds())
	if c.Err != nil {
		m.values[mErrors.name]++
	}
}

// end writes what the run came to.
func (m *metrics) end(status exitCode, busy bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if busy {
		m.values[mBusy.name]++
	}
	m.values[mOwner.name] = 0
	m.values[mStatus.name] = float64(status)
	m.values[mFinished.name] = float64(time.Now().UnixMilli()) / 1000
	m.write()
}

// write replaces the file by rename, so that nobody reads half of it. A failure is
// told once; no run is worth less for it.
func (m *metrics) write() {
	if err := m.replace(); err != nil && !m.failed {
		m.failed = true
		m.log.Warn("--metrics-file: " + err.Error())
	}
}

func (m *metrics) replace() error {
	f, err := os.CreateTemp(filepath.Dir(m.path), "."+filepath.Base(m.path)+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it is renamed by then
	_, err = f.WriteString(m.text())
	err = errors.Join(err, f.Chmod(metricsMode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), m.path)
}

func (m *metrics) text() string {
	var b strings.Builder
	for _, s := range allMetrics {
		if _, known := m.values[s.name]; known {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s%s %s\n", s.name, s.help, s.name, s.kind,
				s.name, m.label(), strconv.FormatFloat(m.values[s.name], 'f', -1, 64))
		}
	}
	return b.String()
}
