package redis

import (
	"testing"
	"time"

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
	const hold = 2 * time.Second
	// Whoever is to end by itself has a lease that soon runs out.
	for end, l := range map[string]time.Duration{
		"release": testLease, "revocation": testLease, "death": hold / 2, "late release": hold / 2,
	} {
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
				is(t, waiters[2].try(), lease.Cooldown, "")
				if s := w.cools(p.id, false, 0, hold-l); len(s.Waiters) != 4 || s.Waiters[3].ID != p.id {
					t.Errorf("it lost its place: %+v", s.Waiters)
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
