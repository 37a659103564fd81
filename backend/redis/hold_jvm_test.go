package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// A JVM contender is kept out of a hold as others are, and breaks on nothing.
func TestHoldAndJVM(t *testing.T) {
	const l, hold = 500 * time.Millisecond, 2500 * time.Millisecond
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
