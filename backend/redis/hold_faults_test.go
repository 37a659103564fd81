package redis

import (
	"context"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

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

// Nothing ran: what was acquired by a request whose answer was lost keeps nobody out once
// the contender has left.
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
	if err := q.Release(t.Context(), lease.ReleaseRequest{Tombstone: true, Unused: true}); err != nil {
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
	if err := p.Release(t.Context(), lease.ReleaseRequest{Unused: true}); err != nil {
		t.Fatal(err)
	}
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
