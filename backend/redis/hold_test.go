package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// keep takes the free mutex with a hold.
func (p *party) keep(hold time.Duration) lease.Answer {
	p.t.Helper()
	r := p.request()
	r.Hold = hold
	a, err := p.Try(p.t.Context(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return is(p.t, a, lease.Mine, p.id)
}

// ends are when the string, the lease, the hold and the hash end, by the server.
func (w *world) ends() (stands, lease, hold, hash int64) {
	w.Helper()
	field := func(name string) int64 {
		var n int64
		for _, c := range w.r.Text("HGET", leaseKey("m"), name) {
			n = n*10 + int64(c-'0')
		}
		return n
	}
	return w.r.Number("PEXPIRETIME", ownerKey("m")), field("end"), field("hold"), w.r.Number("PEXPIRETIME", leaseKey("m"))
}

// cools says that the mutex is kept back by a hold with about so much left.
func (w *world) cools(last string, released bool, low, high time.Duration) lease.Snapshot {
	w.Helper()
	s, err := w.b.Inspect(w.Context(), "m")
	if err != nil || s.State != lease.Cooldown || s.Owner != "" || s.Last != last || s.Released != released || s.Lease < low || s.Lease > high {
		w.Fatalf("%+v, %v", s, err)
	}
	a := is(w, w.contender("newcomer").once(), lease.Cooldown, "")
	between(w, "cooldown", a.Remaining, low, high)
	return s
}

// The string stands as long as the lease or the hold, whichever is longer, and the
// owner counts its lease alone.
func TestHoldLayout(t *testing.T) {
	const hold = time.Minute
	w := newWorld(t, backendtest.RedisOptions{})
	p, q := w.contender("p"), w.contender("q")
	a := p.keep(hold)
	if a.Granted != 0 || a.Remaining > p.l || a.Lease != p.l {
		t.Errorf("%+v", a)
	}
	stands, end, kept, hash := w.ends()
	if kept-end != (hold-p.l).Milliseconds() || stands != kept || hash != kept+3600_000 {
		t.Errorf("string %d, lease %d, hold %d, hash %d", stands, end, kept, hash)
	}
	s, err := w.b.Inspect(t.Context(), "m")
	if err != nil || s.State != lease.Held || s.Lease > p.l || s.TTL > p.l/2 || s.TTL < p.l/2-5*time.Second {
		t.Errorf("%+v, %v", s, err)
	}
	if a := is(t, q.try(), lease.Held, p.id); a.Remaining > p.l || a.Lease != p.l || a.LookBy > time.Second {
		t.Errorf("%+v", a)
	}
	// Neither asking again nor renewing moves it, whatever is said to be left.
	for _, rest := range []time.Duration{0, time.Second, time.Hour} {
		if a := is(t, p.keep(rest), lease.Mine, p.id); a.Remaining > p.l {
			t.Errorf("%+v", a)
		}
		if a := is(t, p.renew(lease.RenewRequest{Fence: a.Fence, Hold: rest}), lease.Mine, p.id); a.Remaining > p.l || a.Granted != 0 {
			t.Errorf("%+v", a)
		}
		if stands, _, now, hash := w.ends(); now != kept || stands != kept || hash != kept+3600_000 {
			t.Errorf("rest %v moved the hold from %d to %d", rest, kept, now)
		}
	}
	bells := q.wait()
	p.release()
	p.release() // its answer may have been lost
	w.cools(p.id, true, hold-10*time.Second, hold)
	if w.r.Text("GET", ownerKey("m")) != p.id || w.r.Number("PEXPIRETIME", ownerKey("m")) != kept {
		t.Error("the string does not stay until the end of the hold")
	}
	if stands, _, _, hash := w.ends(); stands != kept || hash != kept+3600_000 {
		t.Errorf("string %d, hash %d after the release", stands, hash)
	}
	if _, err := p.Try(t.Context(), p.request()); err == nil {
		t.Error("a released id is not spent")
	}
	if err := w.b.Revoke(t.Context(), "m", p.id); err == nil {
		t.Error("revoked what nobody owns")
	}
	// A waiter that leaves wakes nobody before the end.
	r := w.contender("r")
	r.try()
	r.release()
	bells.silent()
	if a := is(t, q.try(), lease.Cooldown, ""); a.Rank != 1 || a.LookBy > time.Second {
		t.Errorf("%+v", a)
	}

	// A hold that is shorter than the lease is nothing beside it, and is over before it.
	w.r.Do("FLUSHALL")
	p = w.contender("short")
	p.keep(50 * time.Millisecond)
	if stands, end, _, hash := w.ends(); stands != end || hash != end+3600_000 {
		t.Errorf("string %d, lease %d, hash %d", stands, end, hash)
	}
	time.Sleep(60 * time.Millisecond)
	p.release()
	if w.r.Number("EXISTS", ownerKey("m")) != 0 || w.r.Number("HEXISTS", leaseKey("m"), "hold") != 0 {
		t.Error("a hold that is over leaves something")
	}
	w.contender("next").own()
}

// Whatever ends an ownership, the waiters have their turns in order, and none of them
// before the end of the hold by the server's clock.
func TestHoldThenQueue(t *testing.T) {
	const l, hold = 500 * time.Millisecond, 1500 * time.Millisecond
	for _, end := range []string{"release", "death", "late release", "revocation"} {
		t.Run(end, func(t *testing.T) {
			w := newWorld(t, backendtest.RedisOptions{})
			p := w.contender("owner")
			p.l = l
			mine := p.keep(hold)
			_, _, kept, _ := w.ends()
			waiters := []*party{w.contender("first"), w.contender("second"), w.contender("third")}
			for _, q := range waiters {
				q.wait()
			}
			switch end {
			case "release":
				p.release()
			case "revocation":
				if err := w.b.Revoke(t.Context(), "m", p.id); err != nil {
					t.Fatal(err)
				}
				if a := p.renew(lease.RenewRequest{Fence: mine.Fence, Hold: hold, Dying: true}); !a.Revoked || a.Remaining > l {
					t.Errorf("%+v", a)
				}
				p.release()
			case "late release":
				time.Sleep(l + 50*time.Millisecond)
				w.cools(p.id, false, 0, hold-l)
				is(t, p.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Gone, "")
				p.release()
				w.cools(p.id, true, 0, hold-l)
			default:
				time.Sleep(l + 50*time.Millisecond)
				w.cools(p.id, false, 0, hold-l)
				if a := is(t, p.try(), lease.Cooldown, ""); a.Rank != 4 {
					t.Errorf("one that ran out and asks again: %+v", a)
				}
			}
			// The last one would have it if it were not for the order.
			last := waiters[2]
			for {
				a := last.try()
				if a.State == lease.Promised {
					break
				}
				is(t, a, lease.Cooldown, "")
				time.Sleep(min(a.Remaining+time.Millisecond, a.LookBy))
			}
			a := waiters[0].own()
			if now := w.r.Number("PEXPIRETIME", ownerKey("m")) - testLease.Milliseconds(); now < kept {
				t.Errorf("taken %d ms before the end of the hold", kept-now)
			}
			if a.Fence <= mine.Fence {
				t.Errorf("fence %d after %d", a.Fence, mine.Fence)
			}
			if w.r.Number("HEXISTS", leaseKey("m"), "hold") != 0 {
				t.Error("the next owner inherited the hold")
			}
			waiters[0].release()
			waiters[1].own()
		})
	}
}

// Keys that vanish or lose their end while a hold goes on.
func TestHoldAndVanishedKeys(t *testing.T) {
	const hold = time.Minute
	w := newWorld(t, backendtest.RedisOptions{})
	low := hold - 10*time.Second

	// The string of an owner: its next renewal puts it back for as long.
	p := w.contender("p")
	mine := p.keep(hold)
	_, _, kept, _ := w.ends()
	w.r.Do("DEL", ownerKey("m"))
	is(t, w.contender("q").once(), lease.Held, p.id)
	p.renew(lease.RenewRequest{Fence: mine.Fence})
	if stands, _, _, _ := w.ends(); stands != kept {
		t.Errorf("the string stands until %d, not %d", stands, kept)
	}
	// The hash: what the owner remembers is written.
	w.r.Do("DEL", leaseKey("m"))
	if a := p.renew(lease.RenewRequest{Fence: mine.Fence, Hold: hold}); a.Fence != mine.Fence || a.Remaining > p.l {
		t.Errorf("%+v", a)
	}
	stands, _, kept, _ := w.ends()
	if stands != kept {
		t.Errorf("the string stands until %d, not %d", stands, kept)
	}
	// Both.
	w.r.Do("DEL", ownerKey("m"), leaseKey("m"))
	is(t, p.renew(lease.RenewRequest{Fence: mine.Fence, Hold: hold}), lease.Gone, "")
	if a := is(t, p.renew(lease.RenewRequest{Fence: mine.Fence, Hold: hold, Reassert: true}), lease.Mine, p.id); a.Remaining > p.l {
		t.Errorf("%+v", a)
	}
	// The string, and a release before the next renewal.
	w.r.Do("DEL", ownerKey("m"))
	p.release()
	if w.r.Text("GET", ownerKey("m")) != p.id {
		t.Error("the release did not put the string back")
	}
	w.cools(p.id, true, low, hold)
	// The string after the release: whoever asks puts it back, whoever looks does not.
	w.r.Do("DEL", ownerKey("m"))
	if s, err := w.b.Inspect(t.Context(), "m"); err != nil || s.State != lease.Cooldown || s.Detail == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if w.r.Number("EXISTS", ownerKey("m")) != 0 {
		t.Error("looking wrote something")
	}
	w.cools(p.id, true, low, hold)
	if w.r.Text("GET", ownerKey("m")) != p.id || w.r.Number("PTTL", ownerKey("m")) > hold.Milliseconds() {
		t.Error("the string is not back")
	}
	// The hash after the release: the string is an owner of whom nothing is known.
	w.r.Do("DEL", leaseKey("m"))
	if a := is(t, w.contender("q").once(), lease.Held, p.id); a.Remaining < low || a.Fence != 0 {
		t.Errorf("%+v", a)
	}
	// The string without an end, too, with a hash.
	w.r.Do("FLUSHALL")
	p = w.contender("p")
	p.keep(hold)
	p.release()
	w.r.Do("PERSIST", ownerKey("m"))
	is(t, w.contender("q").once(), lease.Held, p.id)
	if s, err := w.b.Inspect(t.Context(), "m"); err != nil || s.State != lease.Held || s.Detail != "no expiry" {
		t.Errorf("%+v, %v", s, err)
	}

	// The hash, and a release before the next renewal: the owner knows of its hold.
	w.r.Do("FLUSHALL")
	p = w.contender("p")
	p.keep(hold)
	w.r.Do("DEL", leaseKey("m"))
	p.release()
	w.cools(p.id, true, low, hold)
	// Without a hold the string goes.
	w.r.Do("FLUSHALL")
	p = w.contender("p")
	p.own()
	w.r.Do("DEL", leaseKey("m"))
	p.release()
	w.contender("q").own()
}

// The lease ran out, nobody had the mutex since, and the owner puts its record back
// while its own hold still keeps others out; so it does in a store with an older record.
func TestHoldAndReassertion(t *testing.T) {
	const l, hold = 300 * time.Millisecond, time.Minute
	w := newWorld(t, backendtest.RedisOptions{})
	p := w.contender("p")
	p.l = l
	mine := p.keep(hold)
	_, _, kept, _ := w.ends()
	time.Sleep(l + 20*time.Millisecond)
	w.cools(p.id, false, hold-10*time.Second, hold-l)
	is(t, p.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Gone, "")
	if a := is(t, p.renew(lease.RenewRequest{Fence: mine.Fence, Reassert: true}), lease.Mine, p.id); a.Fence != mine.Fence || a.Remaining > l {
		t.Errorf("%+v", a)
	}
	if stands, _, now, _ := w.ends(); now != kept || stands != kept {
		t.Errorf("hold %d, string %d, not %d", now, stands, kept)
	}
	p.release()
	is(t, p.renew(lease.RenewRequest{Fence: mine.Fence, Reassert: true}), lease.Gone, "")

	q := w.contender("q")
	is(t, q.renew(lease.RenewRequest{Fence: mine.Fence, Reassert: true}), lease.Gone, "")
	a := is(t, q.renew(lease.RenewRequest{Fence: mine.Fence + 1, Reassert: true}), lease.Mine, q.id)
	if stands, end, _, _ := w.ends(); w.r.Text("GET", ownerKey("m")) != q.id || stands != end || a.Remaining > q.l {
		t.Errorf("%+v, string %d, lease %d", a, stands, end)
	}
}

// Nothing ran, as far as the contender was told: what it acquired by a request whose
// answer was lost keeps nobody out once it has left.
func TestHoldOfALostAnswer(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	relay := backendtest.StartRelay(t, w.r.Addr)
	b := open(t, "redis://"+relay.Addr)
	contender(t, b, "other", "").own() // connects, and the server has the script
	relay.Set(backendtest.EatReplies)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	q := contender(t, b, "m", "")
	r := q.request()
	r.Hold = time.Minute
	if a, err := q.Try(ctx, r); err == nil {
		t.Fatalf("%+v", a)
	}
	relay.Set(backendtest.Pass)
	is(t, w.contender("").once(), lease.Held, q.id)
	if err := q.Release(t.Context(), lease.ReleaseRequest{Tombstone: true}); err != nil {
		t.Fatal(err)
	}
	w.contender("").own()

	w.r.Do("FLUSHALL")
	q = w.contender("")
	q.keep(time.Minute)
	// Another process that releases in its stead cannot know that nothing ran.
	other := w.b.Session("m", lease.Contender{ID: q.id})
	if err := other.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.cools(q.id, true, 50*time.Second, time.Minute)
}

// Too few replicas: the owner was refused, so its hold is given back as well.
func TestHoldAndReplicas(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	p := contender(t, open(t, "redis://"+w.r.Addr+"?wait_replicas=1"), "m", "")
	p.l = time.Second
	r := p.request()
	r.Hold = time.Minute
	if _, err := p.Try(t.Context(), r); err == nil {
		t.Fatal("acquired without a replica")
	}
	p.release()
	w.contender("").own()
}

// A full server: the release of a hold is carried out, and others are told of it.
func TestHoldOnAFullServer(t *testing.T) {
	const hold = time.Minute
	w := newWorld(t, backendtest.RedisOptions{})
	p := w.contender("p")
	mine := p.keep(hold)
	w.r.Do("CONFIG", "SET", "maxmemory", "1")
	is(t, p.renew(lease.RenewRequest{Fence: mine.Fence, Hold: hold}), lease.Mine, p.id)
	p.release()
	w.cools(p.id, true, hold-10*time.Second, hold)
	w.r.Do("DEL", ownerKey("m"))
	w.cools(p.id, true, hold-10*time.Second, hold) // it cannot be put back, but the hash is enough for ours
}

// A store that was emptied: the waiters keep all out for the owner they saw, and the
// owner brings its hold along.
func TestHoldAndEmbargo(t *testing.T) {
	const hold = time.Minute
	w := newWorld(t, backendtest.RedisOptions{})
	p, q := w.contender("p"), w.contender("q")
	mine := p.keep(hold)
	saw := q.try()
	w.r.Do("FLUSHALL")
	r := q.request()
	r.Seen = lease.Seen{Owner: p.id, Fence: saw.Fence, Birth: saw.Birth, Lease: saw.Lease}
	a, err := q.Try(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	is(t, a, lease.Held, p.id)
	is(t, p.renew(lease.RenewRequest{Fence: mine.Fence, Hold: hold, Reassert: true}), lease.Mine, p.id)
	p.release()
	s := w.cools(p.id, true, hold-10*time.Second, hold)
	if len(s.Waiters) != 1 || s.Waiters[0].ID != q.id {
		t.Errorf("%+v", s)
	}
}

// A JVM contender is kept out of a hold as others are, and breaks on nothing.
func TestHoldAndJVM(t *testing.T) {
	const l, hold = 300 * time.Millisecond, 1200 * time.Millisecond
	for _, end := range []string{"release", "death"} {
		t.Run(end, func(t *testing.T) {
			w := newWorld(t, backendtest.RedisOptions{})
			j, p, q := newJVM(t, w.r, "0:1@jvm", testLease), w.contender("p"), w.contender("q")
			sub := j.lib.Subscribe(t.Context(), ownerKey("m"), bell("m", j.id))
			defer func() { _ = sub.Close() }()
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.l = l
			p.keep(hold)
			_, _, kept, _ := w.ends()
			if j.run(jvmAcquire) { // from now on it is the first of the queue
				t.Fatal("acquired what is owned")
			}
			q.wait()
			if end == "release" {
				p.release()
			}
			q.try()
			time.Sleep(l)
			// Neither its renewals nor its releases do anything to what is not its own.
			if j.run(jvmAcquire) || j.run(jvmRenew) || j.run(jvmRelease) {
				t.Error("it took what is kept back")
			}
			q.try()
			if n := w.r.Number("PTTL", ownerKey("m")); n <= 0 || n > hold.Milliseconds() {
				t.Errorf("it is told to come again in %d ms", n)
			}
			for w.r.Number("EXISTS", ownerKey("m")) == 1 {
				time.Sleep(time.Millisecond)
			}
			if now := serverMillis(w); now < kept {
				t.Errorf("the string went %d ms before the end of the hold", kept-now)
			}
			// Ours looks first, wakes the one in front, and does not overtake it.
			is(t, q.try(), lease.Promised, "")
			for _, want := range []string{"acquired@@" + p.id, "released@@" + p.id} {
				m := messageOf(t, sub)
				if m.Payload != want {
					t.Errorf("it hears %q, not %q", m.Payload, want)
				}
			}
			if !j.run(jvmAcquire) {
				t.Error("woken, not acquired")
			}
			is(t, q.try(), lease.Held, j.id)
			j.run(jvmRelease)
			q.own()
		})
	}
}

// A JVM contender that came in when the string was deleted owns the mutex; the hold
// goes on for the others when it is gone.
func TestHoldAndJVMInBetween(t *testing.T) {
	const hold = time.Minute
	w := newWorld(t, backendtest.RedisOptions{})
	j, p := newJVM(t, w.r, "0:1@jvm", testLease), w.contender("p")
	p.keep(hold)
	p.release()
	w.r.Do("DEL", ownerKey("m"))
	if !j.run(jvmAcquire) {
		t.Fatal("not acquired")
	}
	is(t, w.contender("").once(), lease.Held, j.id)
	if s, err := w.b.Inspect(t.Context(), "m"); err != nil || s.State != lease.Held || s.Owner != j.id {
		t.Errorf("%+v, %v", s, err)
	}
	p.release()
	if w.r.Text("GET", ownerKey("m")) != j.id || !j.run(jvmRenew) {
		t.Error("a release took what is another's")
	}
	j.run(jvmRelease)
	w.cools(p.id, true, hold-10*time.Second, hold)
}

func serverMillis(w *world) int64 {
	var ms int64
	onEach(w.T, w.b, func(lib *goredis.Client) {
		now, err := lib.Time(w.Context()).Result()
		if err != nil {
			w.Fatal(err)
		}
		ms = now.UnixMilli()
	})
	return ms
}

func messageOf(t *testing.T, sub *goredis.PubSub) *goredis.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	m, err := sub.ReceiveMessage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
