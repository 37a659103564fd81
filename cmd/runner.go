package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/simba-lock/simba/backend"
	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// runner is one run from the contention to the exit status.
type runner struct {
	*app
	o       *runOptions
	path    string   // of the executable
	argv    []string // as it is executed
	env     []string // simba's own
	backend lease.Backend
	guard   *guard.Guard
	tag     string // of the guard
	line    *waitingLine
	news    *news
	timing  *timing
	hooks   *hooks
	metrics *metrics

	again    bool // the mutex was held before, and lost
	started  bool // a job ran
	status   guard.Status
	timedOut bool
	wasLost  bool
	told     atomic.Bool // somebody sent a signal that ends a run
	giveUp   context.CancelCauseFunc
}

// run contends once or, with --recontend, again after each loss.
func (a *app) run(ctx context.Context, o *runOptions) error {
	told := &news{log: a.log, o: o}
	for again := false; ; again = true {
		r := &runner{app: a, o: o, again: again, env: os.Environ(), timing: newTiming(), news: told}
		err := r.once(ctx)
		if !o.recontend || !r.wasLost || r.told.Load() {
			return err
		}
		a.log.Warn("contending for it again")
	}
}

// comeback is the pause before whoever lost the mutex contends for it again, and
// between attempts at a backend that cannot be reached: what took it away may do
// so again at once.
const comeback = time.Second

// contend is lease.Do, for one ownership: it returns lease.Do's error, so
// lease.ErrLost after a loss, and whoever wants to go on calls it again.
//
// Again says that this is such another time. What was usable before is then out of
// reach only for a while, however long that lasts: where the first contact of a
// first time fails with lease.ErrUnreachable after cfg.ConnectTimeout, it is tried
// again until the backend answers, cfg.Wait is over or ctx has ended (its cause is
// the error then, at once). What goes wrong meanwhile are the usual events of
// trouble, for news to tell now and then. Permanent errors are returned at any time.
//
// It pauses for a moment before another time, so a caller may loop without one.
func (a *app) contend(ctx context.Context, cfg lease.Config, work lease.Work, again bool) error {
	if !again {
		return lease.Do(ctx, cfg, work)
	}
	wait := cfg.Wait
	for began := time.Now(); ; {
		if err := pause(ctx, comeback); err != nil {
			return err
		}
		err := lease.Do(ctx, cfg, work)
		if !errors.Is(err, lease.ErrUnreachable) || wait == 0 {
			return err
		}
		if wait != lease.Forever {
			if cfg.Wait = wait - time.Since(began); cfg.Wait <= 0 {
				return err
			}
		}
	}
}

// pause returns the cause if ctx ends before it is over.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *runner) once(ctx context.Context) error {
	a, o := r.app, r.o
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r.giveUp = giveUp
	// First of all, since the start of a process is what takes longest.
	var err error
	if r.guard, err = r.launch(ctx, giveUp); err != nil {
		return err
	}
	defer func() {
		// After a job there is nothing to clean up any more but the guard process,
		// which has ended by now: whoever inherits it may not reap it. To give back
		// the signals as well would cost a short run a tenth of its time.
		if r.started && !o.recontend {
			r.guard.AwaitEnd(lastWords)
		} else {
			_ = r.guard.Close()
		}
	}()
	if r.backend, err = o.open(ctx); err != nil {
		return err
	}
	defer func() { _ = r.backend.Close() }()
	// Before the mutex is asked for: a mistyped command keeps nobody waiting.
	if r.path, r.argv, err = guard.Find(o.argv, r.env); err != nil {
		return err
	}
	r.line = newWaitingLine(a, o, r.acquired)
	defer r.line.erase()
	r.news.begin(r.line)
	switch heldAbove(r.env, r.backend.Name(), o.mutex, r.tag) {
	case proved:
		if o.standby.on() {
			return &coded{errors.New("a job that this run is part of holds it, so it could never be won"), exitBusy}
		}
		return r.result(r.nested(ctx))
	case doubtful:
		if r.again {
			break // it was settled the first time
		}
		if err := r.unproved(ctx); err != nil {
			return err
		}
	case noClaim:
	}
	if !r.again {
		defer r.warn(ctx)()
	}
	r.metrics = newMetrics(o.metricsFile, false, o.mutex, a.log)
	r.hooks = newHooks(r)
	defer r.hooks.wait()
	if !strings.HasPrefix(r.backend.Name(), "file:") {
		r.guard.AwaitSignals() // a signal leaves nothing behind; in a directory the kernel sees to that
	}
	cfg := lease.Config{
		Backend:        r.backend,
		Mutex:          o.mutex,
		Terms:          o.terms,
		Wait:           o.wait,
		Hold:           o.hold,
		ConnectTimeout: o.connectTimeout,
		IDForm:         o.idForm,
		Info:           lease.Info{User: userName(), Program: filepath.Base(o.argv[0]), Note: o.note},
		Observe:        r.observe,
		Measure:        r.measure,
	}
	var result error
	if o.standby.on() {
		result = r.standBy(ctx, cfg)
	} else {
		err = a.contend(ctx, cfg, r.work, r.again)
		r.line.erase()
		result = r.result(err)
	}
	r.timing.tell(a.log)
	r.metrics.end(statusOf(result), errors.Is(err, lease.ErrBusy))
	return result
}

func (r *runner) observe(e lease.Event) {
	if e.Kind == lease.EventWaiting && r.isAncestor(e.Owner) {
		r.giveUp(r.busyByAncestor(e.Owner, e.Info))
	}
	r.news.observe(e)
	r.hooks.observe(e)
	r.metrics.observe(e)
}

func (r *runner) measure(c lease.Call) {
	r.timing.measure(c)
	r.metrics.measure(c)
}

// launch starts the guard process. It comes up while the mutex is contended for,
// so that it costs the job no time.
func (r *runner) launch(ctx context.Context, giveUp context.CancelCauseFunc) (*guard.Guard, error) {
	var err error
	if r.tag, err = backend.Tag(ctx, r.o.url, r.o.mutex); err != nil {
		return nil, badURL(err)
	}
	g, err := guard.Launch(guard.Config{
		Tag:       r.tag,
		Signal:    syscall.Signal(r.o.signal),
		KillAfter: r.o.terms.KillAfter,
		OnLost:    r.o.onLost,
		Leftover:  r.o.leftover,
		KeepStdio: r.o.recontend, // for the next one
		OnSignal:  func(sig syscall.Signal) { giveUp(&ended{sig: sig}) },
		Filter: func(sig syscall.Signal) bool {
			if sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP {
				r.told.Store(true)
			}
			return true
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start the guard: %w", err)
	}
	return g, nil
}

// warn tells what is doubtful about the backend, beside everything else: asking
// a network file system may take its time. The function returned waits for it,
// but not long.
func (r *runner) warn(ctx context.Context) func() {
	told := make(chan struct{})
	go func() {
		defer close(told)
		for _, w := range backend.Warnings(ctx, r.backend) {
			r.log.Warn(w)
		}
	}()
	return func() {
		timer := time.NewTimer(lastWords)
		defer timer.Stop()
		select {
		case <-told:
		case <-timer.C:
		}
	}
}

// result is what the run comes to.
func (r *runner) result(err error) error {
	var busy *lease.BusyError
	switch {
	case errors.Is(err, lease.ErrLost) && r.o.onLost == guard.LostWarn && r.started:
		// They asked for no more than the message.
	case errors.Is(err, lease.ErrLost):
		r.wasLost = true
		if r.news.lostTold() {
			return &ended{code: exitLost}
		}
		return err
	case errors.As(err, &busy):
		text := busyText(busy, r.identify(&busy.Answer), time.Now())
		r.log.Warn(text, keyStatus, int(r.o.busyCode), keyOwner, busy.Answer.Owner)
		r.hooks.fire(hookBusy, lease.Event{Owner: busy.Answer.Owner, Fence: busy.Answer.Fence})
		return &ended{code: exitCode(r.o.busyCode)}
	case err != nil:
		return err
	}
	return r.jobEnd()
}

func (r *runner) jobEnd() error {
	st := r.status
	switch {
	case r.timedOut:
		r.log.Error(fmt.Sprintf("stopped after --timeout %s", r.o.timeout), keyStatus, int(exitTimeout))
		return &ended{code: exitTimeout}
	case !st.Known, st.GuardDied && st.Signal == syscall.SIGKILL:
		return &coded{errors.New("the guard process was killed, so the job was ended"), exitFault}
	case st.Signal != 0:
		return &ended{sig: st.Signal}
	}
	return &ended{code: exitCode(st.Code)}
}

// identify asks who and since when, if the answer does not tell yet: some
// backends decide first and write down the name a moment later.
func (r *runner) identify(a *lease.Answer) (since time.Time) {
	const tries, pause = 10, 20 * time.Millisecond
	for range tries {
		s, err := inspect(context.Background(), r.backend, r.o.mutex, time.Second)
		if err != nil || s.State != lease.Held || a.Owner != "" && s.Owner != a.Owner {
			break // it has changed hands meanwhile; the answer stands
		}
		if s.Owner != "" {
			a.Owner, a.Info = s.Owner, s.Info
			return s.Acquired
		}
		<-time.After(pause)
	}
	return time.Time{}
}

// acquired asks since when an owner holds the mutex; zero if that is not to be
// known at once.
func (r *runner) acquired(owner string) time.Time {
	if owner == "" {
		return time.Time{}
	}
	s, err := inspect(context.Background(), r.backend, r.o.mutex, time.Second)
	if err != nil || s.Owner != owner {
		return time.Time{}
	}
	return s.Acquired
}

func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}
