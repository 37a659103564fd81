package cmd

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/simba-lock/simba/backend"
	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/internal/schedule"
	"github.com/simba-lock/simba/lease"
)

// scheduler is a schedule on one host. Its runner is used for one run after the
// other, each with a guard of its own: a run is a job like any other, and what keeps
// two jobs of a mutex apart keeps two runs apart.
type scheduler struct {
	*runner
	o       *scheduleOptions
	plan    schedule.Plan
	environ []string      // of this process
	quit    chan struct{} // closed when a signal asked for the end

	// Only of the work of a lease.
	last     schedule.Record // the latest that this process knows
	unbegun  schedule.Record // a tick that was put into the store and could not be begun
	failures int             // in a row
	over     error           // what too many of them come to

	mu      sync.Mutex
	leading bool           // the mutex is owned
	running *guard.Guard   // of the present run
	silent  bool           // the backend does not answer
	sig     syscall.Signal // that asked for the end
	since   time.Time
	second  bool          // another one did
	doing   func() string // for people
}

// schedule contends for the mutex again and again until a signal ends it.
func (a *app) schedule(ctx context.Context, o *scheduleOptions) (err error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	env := os.Environ()
	s := &scheduler{
		runner: &runner{app: a, o: &o.runOptions, env: env, timing: newTiming(), giveUp: giveUp},
		o:      o, environ: env, plan: o.plan(time.Now()), quit: make(chan struct{}),
	}
	s.does("is not in contact with the backend yet")
	signal.Ignore(syscall.SIGPIPE) // a closed stderr is no reason to end
	defer onSignals(s.heard, syscall.SIGUSR1)()
	if s.tag, err = backend.Tag(ctx, o.url, o.mutex); err != nil {
		return badURL(err)
	}
	if s.backend, err = o.open(ctx); err != nil {
		return err
	}
	defer func() { _ = s.backend.Close() }()
	if s.path, s.argv, err = guard.Find(o.argv, s.env); err != nil {
		return err
	}
	if heldAbove(s.env, s.backend.Name(), o.mutex, s.tag) != noClaim {
		return usagef("this schedule is part of a job that runs under the mutex %s: it would wait for its own ancestor", o.mutex)
	}
	defer s.warn(ctx)()
	s.metrics = newMetrics(o.metricsFile, o.listen != "", o.mutex, a.log)
	unserve, err := a.serveMetrics(o.listen, s.metrics)
	if err != nil {
		return err
	}
	defer unserve()
	s.hooks = newHooks(s.runner)
	defer s.hooks.wait()
	s.log.Info("scheduled", "due", o.says())
	for again := false; ; again = true {
		err = s.own(ctx, again)
		if !errors.Is(err, lease.ErrLost) || s.over != nil || s.asked() {
			return s.end(err)
		}
		s.log.Warn("standing by again")
	}
}

// own contends for the mutex and owns it once.
func (s *scheduler) own(ctx context.Context, again bool) error {
	s.line = newWaitingLine(s.app, &s.o.runOptions, s.acquired)
	defer s.line.erase()
	s.news = &news{log: s.log, line: s.line, o: &s.o.runOptions, idle: s.idle}
	return s.contend(ctx, lease.Config{
		Backend:        s.backend,
		Mutex:          s.o.mutex,
		Terms:          s.o.terms,
		Wait:           lease.Forever,
		ConnectTimeout: s.o.connectTimeout,
		IDForm:         s.o.idForm,
		Info:           lease.Info{User: userName(), Program: filepath.Base(s.o.argv[0]), Note: s.o.note},
		Observe:        s.observe,
		Measure: func(c lease.Call) {
			s.measure(c)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.silent = c.Err != nil
		},
	}, s.lead, again)
}

func (s *scheduler) observe(e lease.Event) {
	if e.Kind == lease.EventWaiting {
		holder := ""
		if e.Owner != "" {
			holder = " for " + who(e.Owner, e.Info)
		}
		s.does("stands by" + holder)
	}
	s.runner.observe(e)
}

// end is what the schedule comes to.
func (s *scheduler) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var told *ended
	switch {
	case s.over != nil:
		return s.over
	case s.sig == 0:
		return err
	case err != nil && !errors.Is(err, lease.ErrLost) && !errors.As(err, &told):
		return err
	case s.sig == syscall.SIGTERM && !s.second:
		return nil // this is how it is meant to end
	}
	return &ended{sig: s.sig}
}

// oneSignal: the same signal within this time is the same wish. timeout(1), for one, signals
// its command and then the group that it is in.
const oneSignal = 100 * time.Millisecond

// heard is told of the signals that are meant for the schedule. The first one that asks
// for the end lets the present run finish, the next one ends the run as well.
func (s *scheduler) heard(sig syscall.Signal) {
	if sig == syscall.SIGUSR1 {
		s.tell()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sig == sig && time.Since(s.since) < oneSignal {
		return
	}
	if s.sig == 0 {
		s.sig, s.since = sig, time.Now()
		close(s.quit)
		s.log.Info("asked to end; a run that goes on is waited for", "signal", signalName(sig))
		if !s.leading {
			s.giveUp(&ended{sig: sig})
		}
		return
	}
	s.second = true
	if s.running != nil {
		s.running.Stop()
	}
}

// idle: there is no run.
func (s *scheduler) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running == nil
}

// asked tells whether a signal asked for the end.
func (s *scheduler) asked() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

// does keeps what is being done, for those who ask.
func (s *scheduler) does(what string) { s.doesNow(func() string { return what }) }

func (s *scheduler) doesNow(what func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = what
}

func (s *scheduler) tell() {
	s.mu.Lock()
	what := "this host " + s.doing()
	if s.silent {
		what += "; the backend does not answer at present"
	}
	s.mu.Unlock()
	s.log.Warn(what)
}
