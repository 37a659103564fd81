package cmd

import (
	"log/slog"
	"sync"
	"time"

	"github.com/simba-lock/simba/lease"
)

// timing keeps where the time of a run went.
type timing struct {
	mu       sync.Mutex
	stages   map[string]time.Time // when each was reached, the first time
	renewals int
	slowest  time.Duration // of the calls to the backend
	failed   int
}

// The stages of a run.
const (
	atStart    = "start"
	atContact  = "contact" // the backend answered
	atAcquired = "acquired"
	atRunning  = "running" // the job was started
	atEnded    = "ended"   // nothing of it is left
	atOver     = "over"    // the mutex is released
)

func newTiming() *timing {
	return &timing{stages: map[string]time.Time{atStart: time.Now()}}
}

func (t *timing) reach(stage string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stages[stage].IsZero() {
		t.stages[stage] = time.Now()
	}
}

// measure is told of each call to the backend.
func (t *timing) measure(c lease.Call) {
	if c.Err == nil {
		t.reach(atContact)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slowest = max(t.slowest, c.Took)
	switch {
	case c.Err != nil:
		t.failed++
	case c.Op == "renew":
		t.renewals++
	}
}

// tell writes the closing line: how long each part took that was reached.
func (t *timing) tell(log *slog.Logger) {
	t.reach(atOver)
	t.mu.Lock()
	defer t.mu.Unlock()
	var attrs []any
	last := t.stages[atStart]
	end := "release"
	if t.stages[atAcquired].IsZero() {
		end = "wait" // in vain
	}
	for _, part := range [][2]string{
		{"connect", atContact}, {"wait", atAcquired}, {"launch", atRunning}, {"run", atEnded}, {end, atOver},
	} {
		at := t.stages[part[1]]
		if at.Before(last) { // not reached; or a standby's, which runs from the start on
			continue
		}
		attrs = append(attrs, part[0], at.Sub(last).Round(10*time.Microsecond).String())
		last = at
	}
	attrs = append(attrs, "renewals", t.renewals, "failures", t.failed, "slowest", t.slowest.Round(10*time.Microsecond).String())
	log.Info("over", attrs...)
}
