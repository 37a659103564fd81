package redis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// The steps of a contender of the JVM library.
var (
	jvmAcquire = goredis.NewScript(`
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  redis.call('PUBLISH', KEYS[1], 'acquired@@' .. ARGV[1])
  return 1
end
redis.call('ZADD', KEYS[2], 'NX', redis.call('TIME')[1], ARGV[1])
return 0`)
	jvmRenew = goredis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2])
return 1`)
	jvmRelease = goredis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
local next = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if next then
  redis.call('ZREM', KEYS[2], next)
  redis.call('PUBLISH', KEYS[1] .. ':' .. next, 'released@@' .. ARGV[1])
end
return 1`)
)

// jvm is such a contender: it takes what it hears for the truth, and breaks on
// any other text.
type jvm struct {
	t     testing.TB
	lib   *goredis.Client
	id    string
	mutex string
	l     time.Duration
}

func newJVM(t testing.TB, r *backendtest.Redis, id string, l time.Duration) *jvm {
	j := &jvm{t: t, lib: goredis.NewClient(&goredis.Options{Addr: r.Addr, DisableIdentity: true}), id: id, mutex: "m", l: l}
	t.Cleanup(func() { _ = j.lib.Close() })
	return j
}

func (j *jvm) run(s *goredis.Script) bool {
	n, err := s.Run(context.Background(), j.lib, []string{ownerKey(j.mutex), queueKey(j.mutex)}, j.id, j.l.Milliseconds()).Int()
	if err != nil {
		j.t.Errorf("jvm: %v", err)
	}
	return n == 1
}

// contend acquires and works until the context ends.
func (j *jvm) contend(ctx context.Context, work func()) {
	sub := j.lib.Subscribe(ctx, ownerKey(j.mutex), bell(j.mutex, j.id))
	defer func() { _ = sub.Close() }()
	messages := sub.Channel()
	for ctx.Err() == nil {
		if j.run(jvmAcquire) {
			work()
			j.run(jvmRelease)
		}
		again := time.NewTimer(j.l)
	wait:
		for {
			select {
			case m := <-messages:
				event, id, ok := strings.Cut(m.Payload, "@@")
				own := m.Channel == bell(j.mutex, j.id)
				if !ok || id == "" || own && event != "released" || !own && event != "acquired" {
					j.t.Errorf("a JVM contender breaks on %q at %s", m.Payload, m.Channel)
				}
				if own {
					break wait
				}
			case <-again.C:
				break wait
			case <-ctx.Done():
				break wait
			}
		}
		again.Stop()
	}
}

// One of each kind waits while the other owns, and both ways it is woken.
func TestJVMHandOver(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	j, p := newJVM(t, w.r, "0:1@jvm", testLease), w.contender("ours")
	if !j.run(jvmAcquire) {
		t.Fatal("not acquired")
	}
	s, err := w.b.Inspect(t.Context(), "m")
	if err != nil || s.State != lease.Held || s.Owner != j.id || s.Fence != 0 || s.Lease <= 0 || s.Detail != "" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := w.b.Revoke(t.Context(), "m", j.id); !errors.Is(err, lease.ErrForeign) {
		t.Error(err)
	}
	bell := p.wait()
	if a := is(t, p.try(), lease.Held, j.id); a.Fence != 0 || a.Rank != 1 || a.Remaining <= 0 {
		t.Errorf("%+v", a)
	}
	j.run(jvmRelease) // it pops the waiter
	bell.rings()
	is(t, w.contender("newcomer").once(), lease.Promised, "")
	mine := p.own()
	if mine.Fence == 0 {
		t.Error("no fence")
	}

	sub := j.lib.Subscribe(t.Context(), "simba:{m}:"+j.id)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j.run(jvmAcquire) {
		t.Fatal("acquired what is owned")
	}
	if s, err := w.b.Inspect(t.Context(), "m"); err != nil || len(s.Waiters) != 1 || s.Waiters[0].ID != j.id {
		t.Errorf("%+v, %v", s, err)
	}
	next := w.contender("next")
	next.try()
	p.release()
	m, err := sub.ReceiveMessage(t.Context())
	if err != nil || m.Payload != "released@@"+p.id {
		t.Errorf("%v, %v", m, err)
	}
	is(t, next.try(), lease.Promised, "")
	if w.r.Text("ZSCORE", queueKey("m"), j.id) != "" {
		t.Error("the one that was woken is still in the set")
	}
	if !j.run(jvmAcquire) {
		t.Error("woken, not acquired")
	}
	is(t, next.try(), lease.Held, j.id)
	j.run(jvmRelease)
	if a := next.own(); a.Fence <= mine.Fence {
		t.Error(a.Fence, mine.Fence)
	}
}

// What only JVM contenders leave in the set keeps nobody for long.
func TestJVMDeadInFront(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	p := w.contender("ours")
	for _, id := range []string{"1", "2", "3"} {
		w.r.Do("ZADD", queueKey("m"), "1700000000", id)
	}
	p.own()
	p.release()
	if n := w.r.Number("EXISTS", queueKey("m")); n != 0 {
		t.Error("the dead are still there")
	}
}

// An owner of either kind that crashes is followed when its lease has ended; a
// renewal does not give it back what another owns meanwhile.
func TestJVMCrash(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	const l = 600 * time.Millisecond
	j, p := newJVM(t, w.r, "0:1@jvm", l), w.contender("ours")
	p.l = l
	began := time.Now()
	if !j.run(jvmAcquire) || j.run(jvmAcquire) {
		t.Fatal("acquire")
	}
	p.get()
	between(t, "lease of a JVM owner", time.Since(began), l, l+2*time.Second)
	if j.run(jvmRenew) || j.run(jvmRelease) {
		t.Error("it got a lease back that is another's")
	}
	began = time.Now()
	is(t, p.renew(lease.RenewRequest{}), lease.Mine, p.id)
	eventually(t, "it is never free", func() bool { return j.run(jvmAcquire) })
	between(t, "lease of ours", time.Since(began), l, l+2*time.Second)
	is(t, p.renew(lease.RenewRequest{}), lease.Held, j.id)
	is(t, p.renew(lease.RenewRequest{Reassert: true}), lease.Held, j.id)
	p.release()
	if !j.run(jvmRenew) {
		t.Error("a release took what is another's")
	}
}

// One that got on without having been woken leaves its place behind; it does not
// wake itself instead of ours.
func TestJVMPlaceOfTheOwner(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	j, p := newJVM(t, w.r, "0:1@jvm", testLease), w.contender("ours")
	w.r.Do("ZADD", queueKey("m"), "1700000000", j.id)
	if !j.run(jvmAcquire) {
		t.Fatal("not acquired")
	}
	bells := p.wait()
	if a := p.try(); a.Rank != 1 {
		t.Errorf("%+v", a)
	}
	j.run(jvmRelease)
	bells.rings()
	p.own()
}

// together counts who is at work.
type together struct {
	t      testing.TB
	mu     sync.Mutex
	inside int
	done   [2]int // by kind
	fence  uint64
}

const theirs, ours = 0, 1

func (x *together) work(kind int, fence uint64) {
	x.mu.Lock()
	if x.inside++; x.inside != 1 {
		x.t.Errorf("%d at once", x.inside)
	}
	if kind == ours && fence <= x.fence {
		x.t.Errorf("fence %d after %d", fence, x.fence)
	}
	x.fence = max(x.fence, fence)
	x.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	x.mu.Lock()
	x.inside--
	x.done[kind]++
	x.mu.Unlock()
}

// Both kinds contend, some crash: never two at once, and all get on.
func TestJVMTogether(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	const each, jobs = 3, 12
	cfg := lease.Config{Backend: w.b, Mutex: "m", Terms: terms(t, 400*time.Millisecond), Wait: lease.Forever}
	x := &together{t: t}
	ctx, cancel := context.WithTimeout(t.Context(), 4*soon)
	defer cancel()
	jvmCtx, stopJVM := context.WithCancel(ctx)
	var wg, jvms sync.WaitGroup
	for i := range each {
		j := newJVM(t, w.r, string(rune('0'+i))+":7@jvm", cfg.Terms.Lease())
		jvms.Go(func() { j.contend(jvmCtx, func() { x.work(theirs, 0) }) })
		wg.Go(func() {
			for range jobs {
				err := lease.Do(ctx, cfg, func(_ context.Context, h *lease.Holder) error {
					x.work(ours, h.Fence())
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	// Two of each kind own it once and are never heard of again.
	for i := range 2 {
		dead := newJVM(t, w.r, string(rune('a'+i))+":dead@jvm", cfg.Terms.Lease())
		eventually(t, "no turn for one that will crash", func() bool { return dead.run(jvmAcquire) })
		p := w.contender("will crash")
		p.l = cfg.Terms.Lease()
		p.get()
	}
	wg.Wait()
	stopJVM()
	jvms.Wait()
	if x.done[theirs] == 0 || x.done[ours] != each*jobs || x.inside != 0 {
		t.Errorf("done: %v, inside: %d", x.done, x.inside)
	}
	t.Logf("jobs of theirs and ours: %v", x.done)
}
