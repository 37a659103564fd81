package cmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// A warm standby: the command runs all the time, and signals tell it when it leads
// and when no more. Who notices that it must not lead any more, after how long at
// most, what is killed, and who may start then:
//
//   - The lease cannot be renewed, or somebody took the mutex away: the lease tells
//     it here at Stop at the latest, and the command is sent the lost signal by way
//     of the guard. It has kill-after to step down: for so long the mutex is still
//     ours, or nobody's, and nothing of it is released before. Nothing is killed.
//   - This process is stopped or hangs, so that nobody sends the signal: the guard
//     has deadlines while the command leads. Half way between the lease's Stop and
//     its Kill it stops the command as it would any job, and at Kill it kills it.
//     It takes the lost signal only before that, and forgets the deadlines only
//     when it has sent it: neither can be without the other.
//   - This process is killed: the guard stops the command, leading or not.
//   - The guard is stopped, hangs or is killed: what this process does about any
//     guard. One that does not confirm the lost signal in time counts as hanging,
//     and is killed with the command.
//   - The won signal is sent by the guard too, after it has compared the clock
//     with the ttl, and after it has the deadlines and the kernel locks.
//
// A command that is told and goes on leading is beyond that, as a job under
// --on-lost signal is.

// standbyFlags are the flags that make a run a warm standby.
type standbyFlags struct {
	won, lost signalValue // zero: not given
	fenceFile string
}

func (s *standbyFlags) add(flags *pflag.FlagSet) {
	flags.Var(&s.won, "won-signal", "a warm standby: start the command at once, and send it this when it owns the mutex")
	flags.Var(&s.lost, "lost-signal", "send it this when it must not own it any more; it has --kill-after to step down")
	flags.StringVar(&s.fenceFile, "fence-file", "", "`file` to write the fencing token to before the won signal")
}

// on says whether the run is a standby.
func (s *standbyFlags) on() bool { return s.won != 0 }

// leastGrace is the shortest time to step down that is worth the name.
const leastGrace = 100 * time.Millisecond

// check settles what goes with the flags.
func (s *standbyFlags) check(o *runOptions) error {
	switch {
	case (s.won == 0) != (s.lost == 0):
		return usagef("--won-signal and --lost-signal are needed together")
	case !s.on() && s.fenceFile != "":
		return usagef("--fence-file needs --won-signal: else the token is in SIMBA_FENCE")
	case !s.on():
		return nil
	case s.won == s.lost:
		return usagef("--won-signal and --lost-signal are the same")
	case s.won == signalValue(syscall.SIGKILL), s.lost == signalValue(syscall.SIGKILL):
		return usagef("KILL tells a command nothing")
	case o.recontend:
		return usagef("--won-signal and --recontend exclude each other: a standby contends again anyhow")
	case o.timeout != 0:
		return usagef("--won-signal and --timeout exclude each other")
	case o.wait != lease.Forever:
		return usagef("--won-signal and --wait exclude each other: a standby waits for ever")
	case o.onLost != guard.LostStop:
		return usagef("--won-signal and --on-lost exclude each other: what happens at a loss is the lost signal")
	case o.terms.KillAfter < leastGrace:
		return usagef("--kill-after %s leaves a standby no time to step down; %s is the least", o.terms.KillAfter, leastGrace)
	}
	return nil
}

// errOver is why a standby contends no more.
var errOver = errors.New("the command has ended")

// standBy starts the command and contends for it until it ends.
func (r *runner) standBy(ctx context.Context, cfg lease.Config) error {
	if f := r.o.standby.fenceFile; f != "" {
		if err := writable(f); err != nil {
			return usagef("--fence-file: %w", err)
		}
	}
	pid, err := r.guard.Start(ctx, guard.Order{
		Path: r.path, Argv: r.argv, Env: standbyEnv(r.env, r.backend.Name(), r.o.mutex), Standby: true,
	})
	if err != nil {
		return r.notStarted(ctx, err)
	}
	// Signals are the command's affair from here on; only its end ends the contention.
	contending, over := context.WithCancelCause(context.WithoutCancel(ctx))
	gone := make(chan struct{})
	go func() { // until the end of the command, which is waited for below
		defer close(gone)
		r.supervise(ctx, nil, nil)
		over(errOver)
	}()
	err = r.awaitReady(contending, pid)
	for again := false; err == nil; again = true {
		err = r.contend(contending, cfg, r.lead, again)
		if err == nil || !errors.Is(err, lease.ErrLost) || contending.Err() != nil {
			break
		}
		r.log.Info("standing by again")
		err = nil
	}
	failed := err != nil && contending.Err() == nil
	if failed {
		r.guard.Stop()
	}
	<-gone
	switch {
	case failed:
		return err
	case r.status.Known && r.status.Stopped && !(r.status.GuardDied && r.status.Signal == syscall.SIGKILL):
		// Also if the guard was given up for dead after it had done so.
		r.log.Error("the command could not be told in time that ownership was lost, and was stopped", keyStatus, int(exitLost))
		return &ended{code: exitLost}
	}
	return r.jobEnd()
}

// standbyEnv is the environment of a command that leads only some of the time, so
// that it says nothing about a lease.
func standbyEnv(env []string, backend, mutex string) []string {
	env = withLease(env, backend, mutex, "", 0)
	var out []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); name != ownerVariable && name != "SIMBA_FENCE" {
			out = append(out, kv)
		}
	}
	return out
}

const (
	// looksReady is for how long a command has to look ready. Some programs catch every
	// signal before they have decided what to do then, and a fork blocks all of them
	// for a moment.
	looksReady = time.Second
	// worthAsking: a command that is not ready by then probably never will be.
	worthAsking = 10 * time.Second
)

// awaitReady waits until the command handles both signals. Before that it would
// end of the first, or never hear of it.
func (r *runner) awaitReady(ctx context.Context, pid int) error {
	const look = 50 * time.Millisecond
	began := time.Now()
	since, told := began, false // since when it looks ready
	for time.Since(since) < looksReady {
		if err := pause(ctx, look); err != nil {
			return err
		}
		var missing []string
		for _, s := range []signalValue{r.o.standby.won, r.o.standby.lost} {
			if ok, err := guard.Handles(pid, syscall.Signal(s)); !ok && err == nil {
				missing = append(missing, s.String())
			}
		}
		if len(missing) == 0 {
			continue
		}
		since = time.Now()
		if !told && since.Sub(began) >= worthAsking {
			told = true
			r.log.Warn(fmt.Sprintf("the command (process %d) does not handle %s yet; it contends when it does",
				pid, strings.Join(missing, " and ")))
		}
	}
	return nil
}

// lead is what happens while the mutex is held: the command knows that it leads.
func (r *runner) lead(ctx context.Context, h *lease.Holder) error {
	r.timing.reach(atAcquired)
	if err := r.endPrevious(ctx, h); err != nil {
		return err
	}
	if err := r.o.standby.writeFence(h.Fence()); err != nil {
		// Another host may be able to lead; and here it may pass, as a full disk does.
		r.log.Warn(fmt.Sprintf("the mutex is given back, and contended for again: --fence-file: %v", err))
		return lease.ErrLate
	}
	anchors := h.Anchors()
	d := h.Deadlines()
	err := r.guard.Lead(guard.Promotion{
		Deadlines: standbyDeadlines(d), By: d.Held, Hold: anchors, Signal: syscall.Signal(r.o.standby.won),
	})
	switch {
	case errors.Is(err, guard.ErrLate):
		return lease.ErrLate
	case errors.Is(err, guard.ErrEnding):
		return nil // it was not told, so what is left of it may end beside another leader
	case errors.Is(err, guard.ErrGuardDied):
		<-r.guard.Done() // it may have been told
		return nil
	case err != nil:
		return fmt.Errorf("cannot tell the command that it leads: %w", err)
	}
	held := filesOf(anchors)
	for {
		select {
		case d := <-h.Changes():
			r.guard.Extend(standbyDeadlines(d))
			r.holdMore(h, held)
		case <-ctx.Done():
			return r.stepDown(ctx, h)
		case <-r.guard.Done():
			return nil
		}
	}
}

// standbyDeadlines are those of the guard. Before them this process has told the
// command; there is time left then to end it in order.
func standbyDeadlines(d lease.Deadlines) guard.Deadlines {
	return guard.Deadlines{Stop: d.Stop + (d.Kill-d.Stop)/2, Kill: d.Kill}
}

// stepDown tells the command that it does not lead any more. The mutex is given
// back when it has had its time for that.
func (r *runner) stepDown(ctx context.Context, h *lease.Holder) error {
	if !errors.Is(context.Cause(ctx), lease.ErrLost) {
		<-r.guard.Done() // the command has ended
		return nil
	}
	grace := r.o.terms.KillAfter
	if d := h.Deadlines(); d.Kill != 0 {
		grace = min(grace, d.Kill-guard.Now())
	}
	if err := r.guard.StepDown(syscall.Signal(r.o.standby.lost)); err != nil {
		r.guard.Stop() // if the guard has not begun with that already
		<-r.guard.Done()
		return nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.guard.Done():
		return nil
	}
	if err := r.guard.Release(); err != nil {
		<-r.guard.Done()
	}
	return nil
}

// writeFence leaves the fencing token where the command reads it.
func (s *standbyFlags) writeFence(fence uint64) error {
	if s.fenceFile == "" {
		return nil
	}
	return replaceFile(s.fenceFile, strconv.FormatUint(fence, 10)+"\n", 0o644)
}
