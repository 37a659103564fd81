package lease_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// The simulation runs many contenders of the real protocol machine against the
// reference store in virtual time, one event after the other, under faults that
// a seed decides. Nothing in it depends on anything but the seed.
//
// What it assumes is what the promise rests on: clock rates differ by less than
// 1 %, a guard kills within κ/2 of its deadline, the store's clock steps forward
// by no more than κ/2 in a lease, and a store that was emptied hears first of
// somebody who knew of the owner.

const simMutex = "m"

type world struct {
	seed  uint64
	r     *rand.Rand
	now   time.Duration // true time
	seq   int
	queue events
	store *backendtest.Store
	clock skew // the store's
	terms lease.Terms
	kind  kind
	hosts []*host

	procs     []*proc
	births    int
	alive     []*job
	lastFence uint64
	owners    map[string]*proc
	departed  map[string]bool
	line      []string // who queued, in order
	ghost     string   // the owner that the store forgot
	ghostEnd  time.Duration
	faultsEnd time.Duration
	lastStep  time.Duration
	served    int // jobs started after the faults ended
	trace     func(string)
	wrong     string // the first thing that must not be
}

// kind is what may go wrong in a world.
type kind int

const (
	rough   kind = iota // everything but the last three
	gentle              // calls that fail at once, now and then: nobody may be stopped
	calm                // nothing: first come, first served
	emptied             // rough, and the store forgets
	stolen              // an administrator gives the record to somebody else
	kinds
)

// skew is a clock: its reading at true time t is t*rate + offset.
type skew struct {
	rate   float64
	offset time.Duration
}

func (c skew) at(t time.Duration) time.Duration {
	return time.Duration(float64(t)*c.rate) + c.offset
}

// when is the true time at which the clock reads i, rounded up.
func (c skew) when(i time.Duration) time.Duration {
	return time.Duration(float64(i-c.offset)/c.rate) + 1
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { old := *e; x := old[len(old)-1]; *e = old[:len(old)-1]; return x }

var simTerms = [][2]time.Duration{
	{10 * time.Second, 6 * time.Second},
	{3 * time.Second, 2 * time.Second},
	{300 * time.Millisecond, 6 * time.Second},
	{100 * time.Millisecond, 200 * time.Millisecond},
	{2 * time.Second, time.Second},
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, r: rand.New(rand.NewPCG(seed, 1)),
		births: 1, owners: map[string]*proc{}, departed: map[string]bool{},
		trace: func(string) {},
	}
	w.store = backendtest.NewStore("birth-1")
	w.kind = kind(w.r.IntN(int(kinds)))
	t := simTerms[w.r.IntN(len(simTerms))]
	killAfter := lease.Unset
	if w.r.IntN(2) == 0 {
		killAfter = 0
	}
	terms, err := lease.NewTerms(t[0], t[1], killAfter)
	if err != nil {
		panic(err)
	}
	w.terms = terms
	w.clock = skew{w.rate(), 1000 * time.Hour}
	w.faultsEnd = time.Duration(8+w.r.IntN(8)) * terms.Lease()
	for i := range 2 + w.r.IntN(4) {
		h := &host{w: w, name: i, clock: skew{w.rate(), time.Duration(w.r.IntN(1e6)) * time.Second}}
		w.hosts = append(w.hosts, h)
		w.after(w.upTo(terms.Lease()/2), h.boot)
	}
	w.faults()
	return w
}

// rate keeps any two clocks within 1 % of each other.
func (w *world) rate() float64 { return 1 + (w.r.Float64()-0.5)*0.0098 }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Float64() * float64(d)) }

func (w *world) chance(p float64) bool { return w.r.Float64() < p }

func (w *world) faulty() bool { return w.now < w.faultsEnd }

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + d, w.seq, do})
}

func (w *world) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf("at %v: ", w.now) + fmt.Sprintf(format, args...)
	}
}

func (w *world) log(format string, args ...any) {
	w.trace(fmt.Sprintf("%12v ", w.now) + fmt.Sprintf(format, args...))
}

// run returns what went wrong, or nothing.
func (w *world) run() string {
	// Long enough for every host to be served twice, a dead owner's lease and an
	// embargo included, after the last fault.
	end := w.faultsEnd + 4*w.terms.Lease() + time.Duration(len(w.hosts))*(3*w.terms.Lease()+5*time.Second)
	for w.wrong == "" && len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
		w.checkOwner()
	}
	if w.wrong == "" && w.served == 0 {
		w.fail("nobody got on after the faults had ended")
	}
	for _, p := range w.procs {
		if w.wrong == "" && !p.gone && p.job == nil && p.began < w.faultsEnd && p.wait == lease.Forever {
			w.fail("%s still waits since %v", p, p.began)
		}
	}
	return w.wrong
}

// faults plans what happens to hosts and store.
func (w *world) faults() {
	if w.kind == gentle || w.kind == calm {
		return
	}
	l := w.terms.Lease()
	for t := w.upTo(l); t < w.faultsEnd; t += w.upTo(2 * l) {
		w.after(t, w.fault)
	}
}

func (w *world) fault() {
	l := w.terms.Lease()
	h := w.hosts[w.r.IntN(len(w.hosts))]
	switch k := w.r.IntN(8); {
	case w.kind == stolen:
		if k < 2 {
			w.steal()
		}
	case w.kind == emptied && k < 3:
		w.empty()
	case k < 3:
		h.cutUntil = min(w.now+w.upTo(2*l), w.faultsEnd)
		w.log("host %d cut off until %v", h.name, h.cutUntil)
	case k < 5 && h.proc != nil:
		h.proc.pause(min(w.upTo(2*l), w.faultsEnd-w.now))
	case k < 6 && h.proc != nil:
		h.proc.crash()
	case k < 7 && h.proc != nil:
		h.proc.giveUp()
	case w.now-w.lastStep > l:
		w.lastStep = w.now
		step := w.upTo(w.kappa() / 2)
		if w.kind == rough && w.chance(0.5) {
			step = -w.upTo(l) // only ever lengthens a lease
		}
		w.clock.offset += step
		w.log("store's clock steps by %v", step)
	}
}

// empty makes the store forget, as a server does that comes back without its data.
func (w *world) empty() {
	if s := w.store.Inspect(w.storeNow(), simMutex); s.State == lease.Held {
		w.ghost, w.ghostEnd = s.Owner, w.storeNow()+s.Lease
	}
	w.births++
	w.store.Empty(fmt.Sprintf("birth-%d", w.births))
	clear(w.departed)
	w.log("store emptied")
}

// steal gives the mutex to somebody who did not ask, as an administrator may.
func (w *world) steal() {
	w.store.Vanish(simMutex)
	w.seq++
	thief := lease.Contender{ID: fmt.Sprintf("thief-%d", w.seq)}
	_, _, err := w.store.Try(w.storeNow(), simMutex, thief, lease.TryRequest{Lease: w.terms.Lease(), TTL: w.terms.TTL,
		Seen: lease.Seen{Fence: w.lastFence}})
	w.log("stolen by %s: %v", thief.ID, err)
	w.lastFence++
	for _, j := range w.alive {
		// One renewal period with its attempt, the time to end, and to be killed.
		bound := w.terms.TTL/3 + w.terms.KillAfter + w.kappa() + 100*time.Millisecond
		w.after(bound, func() {
			if !j.dead {
				w.fail("%s lives on %v after its mutex was given away", j.p, bound)
			}
		})
	}
}

func (w *world) kappa() time.Duration {
	return min(max(w.terms.Lease()/32, 50*time.Millisecond), 500*time.Millisecond)
}

func (w *world) storeNow() time.Duration { return w.clock.at(w.now) }

// checkOwner: what has left owns nothing.
func (w *world) checkOwner() {
	if s := w.store.Inspect(w.storeNow(), simMutex); s.State == lease.Held && w.departed[s.Owner] && s.Detail == "" {
		w.fail("%s owns the mutex though it has left", s.Owner)
	}
}
