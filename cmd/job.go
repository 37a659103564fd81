package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// work is what happens while the mutex is held. It returns when nothing of the
// job is left, since the mutex is released then.
func (r *runner) work(ctx context.Context, h *lease.Holder) error {
	r.timing.reach(atAcquired)
	r.line.erase()
	if err := r.endPrevious(ctx, h); err != nil {
		return err
	}
	anchors := h.Anchors()
	d := h.Deadlines()
	_, err := r.guard.Start(ctx, guard.Order{
		Path:      r.path,
		Argv:      r.argv,
		Env:       jobEnv(r.env, h, r.backend.Name()),
		Stamp:     heldStamp(r.env, h, r.backend.Name()),
		Deadlines: guard.Deadlines{Stop: d.Stop, Kill: d.Kill},
		StartBy:   d.Held,
		Hold:      anchors,
	})
	if errors.Is(err, guard.ErrLate) {
		return lease.ErrLate // the guard takes another order
	}
	if err != nil {
		return r.notStarted(ctx, err)
	}
	held := filesOf(anchors)
	r.supervise(ctx, h.Changes(), func(d lease.Deadlines) {
		r.guard.Extend(guard.Deadlines{Stop: d.Stop, Kill: d.Kill})
		r.holdMore(h, held)
	})
	return nil
}

// notStarted is the error of a run whose job could not be started.
func (r *runner) notStarted(ctx context.Context, err error) error {
	_ = r.guard.Close() // something may have been started: it is gone afterwards
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("cannot start the job: %w", err)
}

func filesOf(anchors []*os.File) map[*os.File]bool {
	held := map[*os.File]bool{}
	for _, f := range anchors {
		held[f] = true
	}
	return held
}

// holdMore gives the guard the files that came with a renewal.
func (r *runner) holdMore(h *lease.Holder, held map[*os.File]bool) {
	for _, f := range h.Anchors() {
		if held[f] {
			continue
		}
		held[f] = true
		if err := r.guard.Hold(f); err != nil {
			r.log.Warn(fmt.Sprintf("the guard cannot hold %s: %v", f.Name(), err))
		}
	}
}

// supervise passes on what happens to the lease, if it is this run's, and to the
// job until the whole job is gone.
func (r *runner) supervise(ctx context.Context, changes <-chan lease.Deadlines, changed func(lease.Deadlines)) {
	r.started = true
	r.timing.reach(atRunning)
	var timeout <-chan time.Time
	if r.o.timeout > 0 {
		timer := time.NewTimer(r.o.timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	stop := ctx.Done()
	for {
		select {
		case d := <-changes:
			changed(d)
		case <-stop:
			stop = nil
			r.toldToStop(context.Cause(ctx))
		case <-timeout:
			r.timedOut = true
			r.guard.Stop()
		case n := <-r.guard.Notices():
			r.news.notice(n)
		case <-r.guard.Done():
			r.status = r.guard.Wait()
			r.timing.reach(atEnded)
			return
		}
	}
}

// toldToStop: the lease is lost, or a signal arrived in the instant in which the
// job was started and counts as one for it.
func (r *runner) toldToStop(cause error) {
	var end *ended
	if errors.As(cause, &end) && end.sig != 0 {
		r.guard.Signal(end.sig)
		return
	}
	r.guard.Lost()
}

// endPrevious ends what owners left whose supervisors were both killed. The job
// must not start beside it, however long that takes.
func (r *runner) endPrevious(ctx context.Context, h *lease.Holder) error {
	for _, id := range h.Unreleased() {
		if err := r.endOf(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) endOf(ctx context.Context, id string) error {
	const tellEvery = 10 * time.Second
	owner := escape(lease.ShortID(id))
	var told time.Time
	for fails := 0; ; fails++ {
		ended, stuck, err := guard.EndByEnv(ctx, ownerVariable+"="+id)
		if ended > 0 {
			r.log.Warn(fmt.Sprintf("%s was killed and left %d processes behind; they were ended", owner, ended))
		}
		if err == nil && len(stuck) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if now := time.Now(); now.Sub(told) >= tellEvery {
			told = now
			r.log.Warn(fmt.Sprintf("%s was killed and left processes behind: %v; they cannot be ended (%v), and the job starts when they are gone",
				owner, stuck, err))
		}
		timer := time.NewTimer(backoff(fails))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
