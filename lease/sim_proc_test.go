package lease_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simba-lock/simba/lease"
)

// host starts one run after the other.
type host struct {
	w        *world
	name     int
	clock    skew
	runs     int
	cutUntil time.Duration
	proc     *proc
}

func (h *host) now() time.Duration { return h.clock.at(h.w.now) }

func (h *host) cut() bool { return h.w.now < h.cutUntil }

func (h *host) boot() {
	w := h.w
	h.runs++
	p := &proc{w: w, host: h, began: w.now, wait: lease.Forever}
	if w.faulty() && w.chance(0.2) {
		p.wait = time.Duration(w.r.IntN(2)) * w.terms.Lease()
	}
	h.proc = p
	w.procs = append(w.procs, p)
	cfg := lease.Config{Mutex: simMutex, Terms: w.terms, Wait: p.wait}
	n := 0
	newID := func() string { n++; return fmt.Sprintf("h%d-r%d-%d", h.name, h.runs, n) }
	p.m = lease.NewMachine(cfg, newID, w.r.Float64, p)
	p.step(func(now lease.Instant) { p.m.Start(now) })
}

// proc is one simba: the machine, its doorbell and its job.
type proc struct {
	w       *world
	host    *host
	m       *lease.Machine
	id      string
	began   time.Duration
	wait    time.Duration
	gone    bool // ended or crashed
	paused  bool
	backlog []func(lease.Instant)
	timer   int
	bell    int
	deaf    bool
	job     *job
	stopped bool
	lingers bool
	buried  int // which store heard the release
	broke   int // calls that failed in a row
}

func (p *proc) String() string { return p.id }

// step lets the process do something now, or when it is thawed.
func (p *proc) step(do func(lease.Instant)) {
	if p.gone {
		return
	}
	if p.paused {
		p.backlog = append(p.backlog, do)
		return
	}
	do(p.host.now())
	p.arm()
}

func (p *proc) arm() {
	p.timer++
	n, wake := p.timer, p.m.Wake()
	if p.gone || wake == 0 {
		return
	}
	d := max(0, p.host.clock.when(wake)-p.w.now) + p.w.upTo(2*time.Millisecond)
	p.w.after(d, func() {
		if n == p.timer {
			p.step(p.m.Timer)
		}
	})
}

func (p *proc) pause(d time.Duration) {
	if p.paused || p.gone {
		return
	}
	p.w.log("%s paused for %v", p, d)
	p.paused = true
	p.w.after(d, func() {
		p.paused = false
		todo := p.backlog
		p.backlog = nil
		p.step(p.m.Timer)
		for _, do := range todo {
			p.step(do)
		}
	})
}

func (p *proc) crash() {
	if p.gone {
		return
	}
	p.w.log("%s killed", p)
	p.over()
	if p.job != nil {
		p.job.stop() // the guard sees the line close
	}
}

func (p *proc) over() {
	p.gone = true
	p.host.proc = nil
	p.w.after(p.w.upTo(p.w.terms.Lease()/4), func() {
		if p.host.proc == nil {
			p.host.boot()
		}
	})
}

func (p *proc) giveUp() {
	p.step(func(now lease.Instant) {
		p.w.log("%s gives up", p)
		p.m.GiveUp(now, errors.New("gave up"))
	})
}

// call sends a request through the network as it is now. run is the store's step.
func (p *proc) call(seq int, run func() (lease.Answer, error)) {
	w := p.w
	out, back := w.upTo(2*time.Millisecond), w.upTo(2*time.Millisecond)
	if w.chance(0.1) {
		out += w.upTo(20 * time.Millisecond)
	}
	reply := func(a lease.Answer, err error) {
		w.after(back, func() {
			if p.host.cut() {
				return
			}
			p.step(func(now lease.Instant) { p.m.Answered(now, seq, a, err) })
		})
	}
	broke := errors.New("connection broke")
	if w.faulty() && w.kind != calm {
		switch f := w.r.Float64(); {
		case w.kind == gentle || w.kind == stolen:
			// Never so many in a row that the shortest lease cannot outlast them.
			if f < 0.25 && w.kind == gentle && p.broke < 2 {
				p.broke++
				reply(lease.Answer{}, broke)
				return
			}
			p.broke = 0
		case p.host.cut(), f < 0.03: // lost on the way
			return
		case f < 0.06:
			reply(lease.Answer{}, broke)
			return
		case f < 0.09: // done, but nobody hears of it
			w.after(out, func() { _, _ = run() })
			return
		case f < 0.12:
			w.after(out, func() { _, err := run(); _ = err; reply(lease.Answer{}, broke) })
			return
		case f < 0.17: // kept back somewhere
			out += w.upTo(2 * w.terms.Lease())
		case f < 0.20:
			back += w.upTo(2 * w.terms.Lease())
		}
	}
	w.after(out, func() {
		a, err := run()
		if !errors.Is(err, errLost) {
			reply(a, err)
		}
	})
}

var errLost = errors.New("the request was lost")

func (p *proc) Open(id string) {
	p.id, p.bell, p.lingers = id, 0, false
	p.w.owners[id] = p
}

func (p *proc) Try(seq int, id string, r lease.TryRequest) {
	p.call(seq, func() (lease.Answer, error) {
		if !p.w.mayAsk(id, r.Seen.Owner) {
			return lease.Answer{}, errLost
		}
		a, rings, err := p.w.store.Try(p.w.storeNow(), simMutex, lease.Contender{ID: id}, r)
		p.w.log("%s try: %v %s %v", id, a.State, a.Owner, err)
		p.w.queued(id, a)
		p.w.ring(rings)
		return a, err
	})
}

// queued: first come first served, as long as nothing goes wrong.
func (w *world) queued(id string, a lease.Answer) {
	if a.Rank > 0 && !slices.Contains(w.line, id) {
		w.line = append(w.line, id)
	}
	if a.State != lease.Mine {
		return
	}
	if w.kind == calm && len(w.line) > 0 && w.line[0] != id {
		w.fail("%s overtook %s", id, w.line[0])
	}
	w.line = slices.DeleteFunc(w.line, func(o string) bool { return o == id })
}

// mayAsk: an emptied store hears first of somebody who knew of the owner, if
// that owner's lease has not ended.
func (w *world) mayAsk(id, seen string) bool {
	if w.ghost == "" || id == w.ghost || seen == w.ghost || w.storeNow() >= w.ghostEnd {
		return true
	}
	return w.store.Inspect(w.storeNow(), simMutex).State == lease.Held
}

func (p *proc) Renew(seq int, id string, r lease.RenewRequest) {
	p.call(seq, func() (lease.Answer, error) {
		a, rings, err := p.w.store.Renew(p.w.storeNow(), simMutex, lease.Contender{ID: id}, r)
		p.w.log("%s renew %v: %v %s", id, r.Reassert, a.State, a.Owner)
		p.w.ring(rings)
		return a, err
	})
}

func (p *proc) Release(seq int, id string, r lease.ReleaseRequest) {
	p.call(seq, func() (lease.Answer, error) {
		rings := p.w.store.Release(p.w.storeNow(), simMutex, id, r)
		p.buried = p.w.births
		if p.w.ghost == id {
			p.w.ghost = ""
		}
		p.w.log("%s release", id)
		p.w.line = slices.DeleteFunc(p.w.line, func(o string) bool { return o == id })
		p.w.ring(rings)
		return lease.Answer{}, nil
	})
}

func (w *world) ring(ids []string) {
	for _, id := range ids {
		p := w.owners[id]
		if p == nil || p.id != id || p.bell == 0 || p.deaf || p.host.cut() || w.faulty() && w.kind != calm && w.chance(0.1) {
			continue
		}
		n := p.bell
		w.after(w.upTo(2*time.Millisecond), func() {
			p.step(func(now lease.Instant) { p.m.Rang(now, n) })
		})
	}
}

func (p *proc) Listen(n int) {
	p.bell, p.deaf = n, false
	w := p.w
	w.after(w.upTo(3*time.Millisecond), func() {
		if p.host.cut() {
			p.deaf = true
			p.step(func(now lease.Instant) { p.m.Deaf(now, n, errors.New("cut off")) })
			return
		}
		p.step(func(now lease.Instant) { p.m.Ready(now, n) })
	})
	if w.faulty() && w.kind != calm && w.chance(0.3) {
		w.after(w.upTo(w.terms.Lease()), func() {
			p.deaf = true
			p.step(func(now lease.Instant) { p.m.Deaf(now, n, errors.New("reset")) })
		})
	}
}

func (p *proc) Start(id string, a lease.Answer, d lease.Deadlines) {
	p.stopped = false
	j := &job{p: p, id: id, fence: a.Fence, d: d, obeys: p.w.chance(0.7)}
	p.job = j
	p.w.after(p.w.upTo(3*time.Millisecond), j.fork)
}

func (p *proc) Extend(d lease.Deadlines) {
	if p.stopped {
		p.w.fail("%s: stopping was taken back", p)
	}
	if p.job != nil {
		p.job.extend(d)
	}
}

func (p *proc) Stop(cause error) {
	p.w.log("%s told to stop: %v", p, cause)
	p.stopped = true
	if p.w.kind == gentle || p.w.kind == calm {
		p.w.fail("%s was stopped for nothing: %v", p, cause)
	}
	if p.job != nil {
		p.job.stop()
	}
}

func (p *proc) Emit(e lease.Event) {
	// A trouble without another try is a release that did not get through.
	if e.Kind == lease.EventTrouble && e.After == 0 {
		p.lingers = true
	}
	p.w.log("%s event %s: %s -> %s", p, e.Kind, e.Before, e.State)
}

func (p *proc) End(err error) {
	p.w.log("%s ended: %v", p, err)
	// A store that was emptied since has lost the tombstone too; a request that
	// runs late may then cost a lease, but nothing runs under it.
	if !p.lingers && p.buried == p.w.births {
		p.w.departed[p.id] = true
	}
	p.over()
}
