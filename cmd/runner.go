package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"syscall"
	"time"

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
	line    *waitingLine
	news    *news

	started  bool // a job ran
	status   guard.Status
	timedOut bool
}

func (a *app) run(ctx context.Context, o *runOptions) error {
	r := &runner{app: a, o: o, env: os.Environ()}
	// Before the mutex is asked for: a mistyped command keeps nobody waiting.
	var err error
	if r.path, r.argv, err = guard.Find(o.argv, r.env); err != nil {
		return err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if err := r.prepare(ctx, giveUp); err != nil {
		return err
	}
	defer func() {
		_ = r.guard.Close()
		_ = r.backend.Close()
	}()
	r.line = newWaitingLine(a, o, r.acquired)
	defer r.line.erase()
	r.news = &news{log: a.log, line: r.line, o: o}
	err = lease.Do(ctx, lease.Config{
		Backend:        r.backend,
		Mutex:          o.mutex,
		Terms:          o.terms,
		Wait:           o.wait,
		ConnectTimeout: o.connectTimeout,
		IDForm:         o.idForm,
		Info:           lease.Info{User: userName(), Program: filepath.Base(o.argv[0]), Note: o.note},
		Observe:        r.news.observe,
	}, r.work)
	r.line.erase()
	return r.result(err)
}

// prepare launches the guard and opens the backend side by side, so that the
// one costs no time beside the other.
func (r *runner) prepare(ctx context.Context, giveUp context.CancelCauseFunc) error {
	type opened struct {
		b   lease.Backend
		err error
	}
	ready := make(chan opened, 1)
	go func() {
		b, err := r.o.open(ctx)
		ready <- opened{b, err}
	}()
	g, launchErr := guard.Launch(guard.Config{
		Tag:       r.o.tag(),
		Signal:    syscall.Signal(r.o.signal),
		KillAfter: r.o.terms.KillAfter,
		OnLost:    r.o.onLost,
		Leftover:  r.o.leftover,
		OnSignal:  func(sig syscall.Signal) { giveUp(&ended{sig: sig}) },
	})
	open := <-ready
	r.guard, r.backend = g, open.b
	if launchErr == nil && open.err == nil {
		return nil
	}
	if g != nil && launchErr == nil {
		_ = g.Close()
	}
	if open.b != nil && open.err == nil {
		_ = open.b.Close()
	}
	if launchErr != nil {
		return fmt.Errorf("cannot start the guard: %w", launchErr)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return open.err
}

// result is what the run comes to.
func (r *runner) result(err error) error {
	var busy *lease.BusyError
	switch {
	case errors.Is(err, lease.ErrLost) && r.o.onLost == guard.LostWarn && r.started:
		// They asked for no more than the message.
	case errors.Is(err, lease.ErrLost):
		if r.news.lostTold() {
			return &ended{code: exitLost}
		}
		return err
	case errors.As(err, &busy):
		text := busyText(busy, r.acquired(busy.Answer.Owner), time.Now())
		r.log.Warn(text, keyStatus, int(r.o.busyCode), keyOwner, busy.Answer.Owner)
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
