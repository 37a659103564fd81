package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

func TestLayout(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	p, q := w.contender("p"), w.contender("q")
	a := p.own()
	if got := w.r.Text("GET", "simba:{m}"); got != p.id {
		t.Errorf("the string is %q", got)
	}
	end := w.r.Number("PEXPIRETIME", "simba:{m}")
	if got := w.r.Number("PEXPIRETIME", "simba:{m}:lease"); got != end+3600_000 {
		t.Errorf("the hash goes %d ms after the string", got-end)
	}
	between(t, "lease", time.Duration(w.r.Number("PTTL", "simba:{m}"))*time.Millisecond, testLease-time.Second, testLease)
	if got := w.r.Text("HGET", "simba:{m}:lease", "fence"); got != fmt.Sprint(a.Fence) || a.Fence < 1e15 || a.Fence >= 1<<53 {
		t.Errorf("fence %s, %d", got, a.Fence)
	}
	q.wait()
	if got := w.r.Number("PEXPIRETIME", "simba:{m}:lease"); got != end+3600_000 {
		t.Error("a waiter moved the end of the hash")
	}
	if got := w.r.Text("ZSCORE", "simba:{m}:contender", q.id); !strings.Contains(got, ".") || !strings.HasPrefix(got, "1") {
		t.Errorf("score %q", got)
	}
	p.release()
	if got := w.r.Number("EXISTS", "simba:{m}"); got != 0 {
		t.Error("the string is still there")
	}
	q.own()
	q.release()
	if got := w.r.Number("EXISTS", "simba:{m}:contender"); got != 0 {
		t.Error("the set is still there")
	}
	for _, key := range w.r.Do("KEYS", "*").([]any) {
		if ttl := w.r.Number("PTTL", key.(string)); ttl <= 0 || ttl > 3600_001 {
			t.Errorf("%s lives for %d ms", key, ttl)
		}
	}
	w.r.Do("SCRIPT", "FLUSH")
	w.contender("r").own()
}

// Values of foreign kinds are reported and left alone.
func TestForeignValues(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	ctx := t.Context()
	w.r.Do("SET", "simba:{m}", "somebody")
	p := w.contender("p")
	if a := is(t, p.once(), lease.Held, "somebody"); a.Remaining != lease.Forever || a.Fence != 0 {
		t.Errorf("%+v", a)
	}
	s, err := w.b.Inspect(ctx, "m")
	if err != nil || s.State != lease.Held || s.Lease != lease.Forever || s.Detail != "no expiry" {
		t.Errorf("%+v, %v", s, err)
	}
	w.r.Do("DEL", "simba:{m}")
	// A key of our own that lost its end gets one again.
	p.own()
	w.r.Do("PERSIST", "simba:{m}")
	is(t, p.renew(lease.RenewRequest{}), lease.Mine, p.id)
	if w.r.Number("PTTL", "simba:{m}") <= 0 {
		t.Error("no end after a renewal")
	}
	p.release()
	for _, key := range []string{"simba:{m}", "simba:{m}:contender", "simba:{m}:lease"} {
		w.r.Do("FLUSHALL")
		w.r.Do("RPUSH", key, "a", "b")
		q := w.contender("q")
		_, err := q.Try(ctx, q.request())
		_, renewErr := q.Renew(ctx, lease.RenewRequest{Lease: testLease, Fence: 1, Reassert: true})
		_, inspectErr := w.b.Inspect(ctx, "m")
		for what, err := range map[string]error{
			"try": err, "renew": renewErr, "inspect": inspectErr,
			"revoke": w.b.Revoke(ctx, "m", "x"), "release": q.Release(ctx, lease.ReleaseRequest{Tombstone: true}),
		} {
			if !lease.IsPermanent(err) || !strings.HasPrefix(err.Error(), "WRONGTYPE Operation against a key holding the wrong kind of value") ||
				strings.Contains(err.Error(), "script") {
				t.Errorf("%s, %s: %v", key, what, err)
			}
		}
		if w.r.Number("LLEN", key) != 2 || w.r.Number("DBSIZE") != 1 {
			t.Errorf("%s: something was written", key)
		}
	}
}

// The string is only one of two places in which ownership stands.
func TestDeletedAndOverwrittenString(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	p, q := w.contender("p"), w.contender("q")
	mine := p.own()
	bells := p.hear()
	w.r.Do("DEL", "simba:{m}")
	a := is(t, q.try(), lease.Held, p.id)
	between(t, "rest", a.Remaining, testLease-5*time.Second, testLease)
	if s, err := w.b.Inspect(t.Context(), "m"); err != nil || s.Owner != p.id || s.Detail == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if a := is(t, p.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Mine, p.id); a.Fence != mine.Fence {
		t.Errorf("%+v", a)
	}
	if w.r.Text("GET", "simba:{m}") != p.id {
		t.Error("the string is not back")
	}
	// The hash lost: the owner writes it anew.
	w.r.Do("DEL", "simba:{m}:lease")
	if a := is(t, p.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Mine, p.id); a.Fence != mine.Fence {
		t.Errorf("%+v", a)
	}
	bells.silent()
	j := newJVM(t, w.r, "thief", testLease)
	w.r.Do("DEL", "simba:{m}")
	j.run(jvmAcquire) // it cannot know the record
	bells.rings()
	is(t, p.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Held, "thief")
	p.release()
	if w.r.Text("GET", "simba:{m}") != "thief" {
		t.Error("a release took another's key")
	}
}

// A full server refuses an acquisition as a whole, and lets owners go on.
func TestFullServer(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	ctx := t.Context()
	owner, waiter, other := w.contender("owner"), w.contender("waiter"), contender(t, w.b, "n", "other")
	owner.own()
	waiter.wait()
	w.r.Do("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
	before := w.r.Number("DBSIZE")
	for i := range 2 {
		_, err := other.Try(ctx, other.request())
		if err == nil || lease.IsPermanent(err) || !strings.HasPrefix(err.Error(), "OOM") {
			t.Errorf("try %d: %v", i, err)
		}
	}
	if after := w.r.Number("DBSIZE"); after != before {
		t.Errorf("%d keys, were %d", after, before)
	}
	w.r.Do("PEXPIRE", "simba:{m}", "5000")
	is(t, owner.renew(lease.RenewRequest{}), lease.Mine, owner.id)
	if ttl, life := w.r.Number("PEXPIRETIME", "simba:{m}"), w.r.Number("PEXPIRETIME", "simba:{m}:lease"); life != ttl+3600_000 {
		t.Errorf("half a renewal: %d and %d", ttl, life)
	}
	if err := other.Release(ctx, lease.ReleaseRequest{Tombstone: true}); err != nil {
		t.Error(err)
	}
	if err := owner.Release(ctx, lease.ReleaseRequest{}); err != nil {
		t.Error(err)
	}
	if s, err := w.b.Inspect(ctx, "m"); err != nil || s.State != lease.Promised || !s.Released {
		t.Errorf("%+v, %v", s, err)
	}
	w.r.Do("CONFIG", "SET", "maxmemory", "0")
	waiter.own()
	if _, err := other.Try(ctx, other.request()); !errors.Is(err, lease.ErrSpent) {
		t.Error(err)
	}
}

// What runs after its contender has left takes nothing.
func TestLateScripts(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	relay := backendtest.StartRelay(t, w.r.Addr)
	far := open(t, "redis://"+relay.Addr)
	p := contender(t, far, "m", "p")
	is(t, contender(t, far, "other", "").try(), lease.Mine, w.r.Text("GET", "simba:{other}")) // it is connected
	relay.Set(backendtest.Blackhole)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := p.Try(ctx, p.request()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	between(t, "the attempt", time.Since(began), 490*time.Millisecond, 2*time.Second)
	// It leaves over another way; then the request arrives.
	same := &session{b: w.b, mutex: "m", id: p.id}
	if err := same.Release(t.Context(), lease.ReleaseRequest{Tombstone: true}); err != nil {
		t.Fatal(err)
	}
	before := calls(w.r, "evalsha")
	relay.Set(backendtest.Pass)
	eventually(t, "the late request does not arrive", func() bool { return calls(w.r, "evalsha") > before })
	if s, err := w.b.Inspect(t.Context(), "m"); err != nil || s.State != lease.Free || len(s.Waiters) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	again := &session{b: w.b, mutex: "m", id: p.id, info: "{}"}
	if _, err := again.Try(t.Context(), p.request()); !errors.Is(err, lease.ErrSpent) {
		t.Error(err)
	}
}
