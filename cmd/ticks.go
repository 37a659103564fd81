package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/internal/schedule"
	"github.com/simba-lock/simba/lease"
)

// tickVariable tells a run of a schedule which tick it is for.
const tickVariable = "SIMBA_TICK"

const (
	// longestNap: the wall clock may be set and the machine may sleep, and neither
	// moves a timer.
	longestNap = 10 * time.Second
	// checkpointLimit is how long one attempt to read or write the last tick may take.
	checkpointLimit = 5 * time.Second
)

// lead is what happens while the mutex is owned: tick after tick, until ownership is
// lost or the schedule is to end. Nothing of a run is left when it returns.
func (s *scheduler) lead(ctx context.Context, h *lease.Holder) error {
	if !s.leads(true) {
		return nil
	}
	defer s.leads(false)
	s.line.erase()
	owned := time.Now().Truncate(time.Millisecond)
	s.does("leads")
	if err := s.endPrevious(ctx, h); err != nil {
		return err
	}
	stored, err := s.checkpoint(ctx, h, "", "")
	for err == nil {
		last := s.known(stored)
		due := s.plan.Next(time.Now(), last, owned)
		begun := schedule.Record{Tick: due.Tick, Fence: h.Fence()}
		if unbegun := s.unbegun.String(); unbegun != "" && unbegun == stored {
			begun = s.unbegun // it was put there, and then it could not be begun
		} else {
			s.doesNow(func() string { return "leads; the next run is due " + when(due.At, time.Now()) })
			if !s.await(ctx, due.At) {
				break
			}
			if again := s.plan.Next(time.Now(), last, owned); !again.Tick.Equal(due.Tick) {
				continue // later ones are due by now
			}
			before := stored
			if stored, err = s.checkpoint(ctx, h, stored, begun.String()); err != nil || stored != begun.String() {
				continue // somebody owned it in between and has written another one
			}
			if s.asked() {
				_, err = s.checkpoint(ctx, h, stored, before) // for the next owner
				break
			}
			if due.Merged {
				s.log.Info("ticks that were missed are made up for by one run")
			}
		}
		s.last, s.unbegun = begun, begun
		if err := s.oneRun(ctx, h, begun); err != nil {
			return err
		}
		if s.started || ctx.Err() == nil {
			s.unbegun = schedule.Record{}
		}
		if s.o.fixedDelay && ctx.Err() == nil {
			ended := begun
			ended.Ended = time.Now().Truncate(time.Millisecond)
			s.last = ended
			stored, err = s.checkpoint(ctx, h, stored, ended.String())
		}
		if s.over != nil || s.asked() {
			break
		}
	}
	if ctx.Err() != nil || s.asked() {
		return nil // lost, or asked to end: the lease knows
	}
	return err
}

// leads notes whether the mutex is owned; false if a signal asked for the end before.
// From then on a signal does not end the context: a lease that is being given up
// sets its work a deadline, and a run may take as long as it likes.
func (s *scheduler) leads(now bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading = now
	if !now {
		s.doing = func() string { return "does not lead any more" }
	}
	return s.sig == 0
}

// known is the latest record of this process and the store, which may have forgotten.
func (s *scheduler) known(stored string) schedule.Record {
	r, err := schedule.Parse(stored)
	if err == nil && !r.Credible(time.Now()) {
		err = fmt.Errorf("%s is in the future; was a clock wrong?", r.Tick)
	}
	if err != nil {
		s.log.Warn(fmt.Sprintf("the last tick in the backend is not believed: %v", err))
		r = schedule.Record{}
	}
	if !r.Tick.After(s.last.Tick) {
		return s.last
	}
	return r
}

// await waits for an instant of the wall clock; false if there is nothing to wait for
// any more. A zero instant never comes.
func (s *scheduler) await(ctx context.Context, at time.Time) bool {
	for {
		nap := longestNap
		if !at.IsZero() {
			nap = min(nap, time.Until(at))
		}
		if nap <= 0 {
			return ctx.Err() == nil && !s.asked()
		}
		timer := time.NewTimer(nap)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-s.quit:
		}
		timer.Stop()
		if ctx.Err() != nil || s.asked() {
			return false
		}
	}
}

// checkpoint is tried until the backend answers, as long as the mutex is owned.
func (s *scheduler) checkpoint(ctx context.Context, h *lease.Holder, from, to string) (string, error) {
	began, told := time.Now(), false
	for fails := 0; ; fails++ {
		got, err := within(ctx, checkpointLimit, func(ctx context.Context) (string, error) {
			return h.Checkpoint(ctx, from, to)
		})
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case lease.IsPermanent(err):
			return "", fmt.Errorf("the last tick cannot be kept: %w", err)
		}
		// Also if it says that the mutex is somebody else's: the lease will notice.
		if !told && time.Since(began) > worthTelling {
			told = true
			s.log.Warn(fmt.Sprintf("the last tick cannot be kept, trying again: %v", err))
		}
		if !s.await(ctx, time.Now().Add(backoff(fails))) {
			return "", errors.New("asked to end")
		}
	}
}

// oneRun runs the command once. Its error is only about the lease.
func (s *scheduler) oneRun(ctx context.Context, h *lease.Holder, begun schedule.Record) error {
	began := time.Now()
	s.env = append(slices.Clone(s.environ), tickVariable+"="+begun.Tick.UTC().Format(schedule.Stamp))
	s.doesNow(func() string { return "leads; the run of " + when(begun.Tick, time.Now()) + " goes on" })
	s.log.Info("begun", "tick", begun.Tick.UTC().Format(schedule.Stamp))
	end := s.launchRun()
	if end == nil {
		end = s.work(ctx, h)
		s.dropGuard()
		if end == nil {
			end = s.jobEnd()
		}
	}
	if errors.Is(end, lease.ErrLate) {
		return lease.ErrLate // the mutex is given back, and the tick is begun under the next lease
	}
	if ctx.Err() == nil { // else the run was stopped, which is told
		s.ran(begun, end, began)
	}
	return nil
}

// ran tells what a run came to, and counts.
func (s *scheduler) ran(begun schedule.Record, err error, began time.Time) {
	status := statusOf(err)
	s.metrics.ran(status, begun.Tick, time.Since(began))
	if status == exitOK {
		s.failures = 0
		s.log.Info("done", keyStatus, 0, "took", time.Since(began).Round(time.Millisecond).String())
		return
	}
	s.failures++
	why := err.Error()
	var end *ended
	if !errors.As(err, &end) || !s.timedOut {
		s.log.Warn(fmt.Sprintf("the run of %s failed: %s", when(begun.Tick, time.Now()), why), keyStatus, int(status))
	}
	if s.o.maxFailures > 0 && s.failures >= s.o.maxFailures && !s.asked() {
		s.log.Error(fmt.Sprintf("the schedule ends after %s (--max-failures)", inARow(s.failures)), keyStatus, int(status))
		s.over = err
	}
}

func inARow(failures int) string {
	if failures == 1 {
		return "a failed run"
	}
	return fmt.Sprintf("%d failed runs in a row", failures)
}

// launchRun starts the guard of the next run.
func (s *scheduler) launchRun() error {
	s.started, s.timedOut, s.status = false, false, guard.Status{}
	g, err := guard.Launch(guard.Config{
		Tag:       s.tag,
		Signal:    syscall.Signal(s.o.signal),
		KillAfter: s.o.terms.KillAfter,
		OnLost:    s.o.onLost,
		Leftover:  s.o.leftover,
		// The schedule's own signals are heard elsewhere; the job's are passed on.
		Filter: func(sig syscall.Signal) bool {
			switch sig {
			case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1:
				return false
			}
			return true
		},
		KeepStdio: true, // for the next run
	})
	if err != nil {
		return &coded{fmt.Errorf("cannot start the guard: %w", err), exitFault}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.runner.guard = g, g
	return nil
}

func (s *scheduler) dropGuard() {
	s.mu.Lock()
	g := s.running
	s.running = nil
	s.mu.Unlock()
	_ = g.Close()
}
