package lease_test

import (
	"errors"
	"slices"
	"time"

	"github.com/simba-lock/simba/lease"
)

// job is the process tree with its guard, which is never late by more than κ/2.
type job struct {
	p        *proc
	id       string
	fence    uint64
	d        lease.Deadlines
	obeys    bool
	started  bool
	stopping bool
	dead     bool
	timer    int
}

func (j *job) fork() {
	w := j.p.w
	if j.dead {
		return
	}
	if j.stopping || j.p.host.now() >= j.d.Held {
		j.end(lease.ErrLate)
		return
	}
	if len(w.alive) > 0 {
		w.fail("%s runs beside %s", j.id, w.alive[0].id)
	}
	if j.fence <= w.lastFence {
		w.fail("%s has fence %d after %d", j.id, j.fence, w.lastFence)
	}
	w.log("%s runs with fence %d", j.id, j.fence)
	w.lastFence = j.fence
	w.alive = append(w.alive, j)
	j.started = true
	if !w.faulty() {
		w.served++
	}
	w.after(w.upTo(2*w.terms.Lease()), func() { j.end(nil) })
	j.arm()
}

func (j *job) extend(d lease.Deadlines) {
	if !j.stopping {
		j.d = d
		j.arm()
	}
}

func (j *job) arm() {
	j.timer++
	n := j.timer
	j.at(j.d.Stop, func() {
		if n == j.timer {
			j.stop()
		}
	})
}

func (j *job) at(i lease.Instant, do func()) {
	h := j.p.host
	h.w.after(max(0, h.clock.when(i)-h.w.now), do)
}

// stop: the stop signal now, the kill after that, but by the deadline.
func (j *job) stop() {
	if j.stopping || j.dead {
		return
	}
	j.stopping = true
	w := j.p.w
	if !j.started {
		return
	}
	if j.obeys {
		w.after(w.upTo(w.terms.KillAfter), func() { j.end(errors.New("stopped")) })
	}
	kill := min(j.p.host.now()+w.terms.KillAfter, j.d.Kill)
	j.at(kill, func() {
		w.after(w.upTo(w.kappa()/2), func() { j.end(errors.New("killed")) })
	})
}

func (j *job) end(err error) {
	if j.dead {
		return
	}
	j.dead = true
	w := j.p.w
	w.alive = slices.DeleteFunc(w.alive, func(o *job) bool { return o == j })
	w.log("%s is gone: %v", j.id, err)
	w.after(w.upTo(time.Millisecond), func() {
		j.p.job = nil
		j.p.step(func(now lease.Instant) { j.p.m.WorkEnded(now, err) })
	})
}
