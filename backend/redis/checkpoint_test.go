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

// text replaces a checkpoint, which comes to want.
func (p *party) text(from, to, want string) {
	p.t.Helper()
	got, err := p.Checkpoint(p.t.Context(), from, to)
	if err != nil || got != want {
		p.t.Errorf("%q -> %q: %q, %v; want %q", from, to, got, err, want)
	}
}

func (p *party) noText(from, to string, want error) {
	p.t.Helper()
	got, err := p.Checkpoint(p.t.Context(), from, to)
	if !errors.Is(err, want) {
		p.t.Errorf("%q -> %q: %q, %v; want %v", from, to, got, err, want)
	}
}

func TestCheckpointLayout(t *testing.T) {
	const hold = time.Minute
	life := lease.CheckpointLife.Milliseconds()
	w := newWorld(t, backendtest.RedisOptions{})
	p := w.contender("p")
	p.keep(hold)
	before := fingerprint(t, w.b)
	p.text("", "", "")
	if fingerprint(t, w.b) != before {
		t.Error("reading wrote something")
	}
	p.text("", "a", "a")
	if got := w.r.Text("GET", "simba:{m}:checkpoint"); got != "a" {
		t.Errorf("the key has %q", got)
	}
	fresh := func() {
		t.Helper()
		if n := w.r.Number("PTTL", "simba:{m}:checkpoint"); n < life-10_000 || n > life {
			t.Errorf("it lives for %d ms", n)
		}
	}
	for _, step := range []func(){
		func() { p.text("a", "b", "b") },
		func() { p.text("a", "b", "b") }, // as one whose answer was lost
	} {
		w.r.Do("PEXPIRE", "simba:{m}:checkpoint", "5000")
		step()
		fresh()
	}
	w.r.Do("PEXPIRE", "simba:{m}:checkpoint", "5000")
	p.text("x", "y", "b")
	p.text("", "", "b")
	if n := w.r.Number("PTTL", "simba:{m}:checkpoint"); n > 5000 {
		t.Error("reading set its end anew")
	}
	p.text("b", "c", "c")
	if names, err := w.b.List(t.Context()); err != nil || len(names) != 1 || names[0] != "m" {
		t.Errorf("%q, %v", names, err)
	}
	// A revoked owner still is one; one that gave back is not, though the string has its id.
	if err := w.b.Revoke(t.Context(), "m", p.id); err != nil {
		t.Fatal(err)
	}
	p.text("c", "d", "d")
	p.release()
	if w.r.Text("GET", ownerKey("m")) != p.id {
		t.Error("no hold")
	}
	p.noText("d", "e", lease.ErrNotOwner)
	if w.r.Text("GET", "simba:{m}:checkpoint") != "d" {
		t.Error("the release touched it")
	}
	fresh()
	w.r.Do("DEL", ownerKey("m"), leaseKey("m"))
	if names, err := w.b.List(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("a checkpoint alone is listed: %q, %v", names, err)
	}
	// A string that was deleted by hand changes nothing; nor does a JVM owner write.
	q := w.contender("q")
	q.own()
	w.r.Do("DEL", ownerKey("m"))
	q.text("d", "e", "e")
	q.release()
	if j := newJVM(t, w.r, "0:1@jvm", testLease); !j.run(jvmAcquire) {
		t.Error("not acquired")
	}
	q.noText("e", "f", lease.ErrNotOwner)
}

// An owner whose lease has run out, and one that is kept out by a hold of its own.
func TestCheckpointAfterTheLease(t *testing.T) {
	for _, hold := range []time.Duration{0, time.Minute} {
		t.Run(hold.String(), func(t *testing.T) {
			w := newWorld(t, backendtest.RedisOptions{})
			p := w.contender("p")
			p.l = time.Second
			p.keep(hold)
			p.text("", "a", "a")
			time.Sleep(p.l + 20*time.Millisecond)
			p.noText("a", "b", lease.ErrNotOwner)
			if w.r.Text("GET", checkpointKey("m")) != "a" {
				t.Error("written after the lease")
			}
		})
	}
}

// Beside each other and beside renewals: each text is replaced once.
func TestCheckpointBesideRenewals(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	p := w.contender("p")
	mine := p.own()
	p.text("", "0", "0")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[string]int{}
	for _, who := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for range 50 {
				is := w.r.Text("GET", checkpointKey("m"))
				got, err := p.Checkpoint(context.Background(), is, is+who)
				if err != nil {
					t.Error(err)
				}
				if got == is+who {
					mu.Lock()
					won[got]++
					mu.Unlock()
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				if a, err := p.Renew(context.Background(), lease.RenewRequest{Lease: p.l, TTL: p.l / 2, Fence: mine.Fence}); err != nil || a.State != lease.Mine {
					t.Errorf("%+v, %v", a, err)
				}
			}
		})
	}
	wg.Wait()
	last := w.r.Text("GET", checkpointKey("m"))
	for text, n := range won {
		if n != 1 || !strings.HasPrefix(last, text) {
			t.Errorf("%q was written %d times; it ends with %q", text, n, last)
		}
	}
	if len(won) != len(last)-1 || len(won) == 0 {
		t.Errorf("%d were told that they wrote, %d did", len(won), len(last)-1)
	}
}

// What cannot be written leaves all as it was; what is foreign is reported.
func TestCheckpointRefused(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	p := w.contender("p")
	p.own()
	p.text("", "a", "a")
	w.r.Do("CONFIG", "SET", "maxmemory", "1")
	before := fingerprint(t, w.b)
	got, err := p.Checkpoint(t.Context(), "a", "b")
	if err == nil || lease.IsPermanent(err) || !strings.HasPrefix(err.Error(), "OOM") {
		t.Errorf("%q, %v", got, err)
	}
	p.text("", "", "a")
	if fingerprint(t, w.b) != before {
		t.Error("something was written")
	}
	w.r.Do("CONFIG", "SET", "maxmemory", "0")
	p.text("a", "b", "b")
	w.r.Do("DEL", checkpointKey("m"))
	w.r.Do("RPUSH", checkpointKey("m"), "x")
	if got, err := p.Checkpoint(t.Context(), "", "b"); !lease.IsPermanent(err) || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("%q, %v", got, err)
	}
	if w.r.Number("LLEN", checkpointKey("m")) != 1 {
		t.Error("overwritten")
	}
}

// What is said to be written is known to the replicas, also if the first writing was
// not waited for to the end.
func TestCheckpointAndReplicas(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	replica := backendtest.StartRedisReplica(t, w.r)
	relayed := open(t, "redis://"+w.r.Addr+"?wait_replicas=1")
	p := contender(t, relayed, "m", "")
	p.own()
	// The bound on waiting is short for a loaded host, so what is short of replicas is tried again.
	written := func(from, to string) {
		t.Helper()
		eventually(t, "the replica does not acknowledge", func() bool {
			got, err := p.Checkpoint(t.Context(), from, to)
			if err != nil && !errors.Is(err, errShort) || err == nil && got != to {
				t.Fatalf("%q, %v", got, err)
			}
			return err == nil
		})
	}
	written("", "a")
	if got := replica.Text("GET", checkpointKey("m")); got != "a" {
		t.Errorf("the replica has %q", got)
	}
	replica.Stop()
	p.noText("a", "b", errShort)
	if w.r.Text("GET", checkpointKey("m")) != "b" {
		t.Error("not written at all")
	}
	relayed.shelf.drop("", false)
	p.noText("a", "b", errShort) // on a connection that has written nothing yet
	replica.Cont()
	written("a", "b")
	if got := replica.Text("GET", checkpointKey("m")); got != "b" {
		t.Errorf("the replica has %q", got)
	}
	// A failover forgets nothing of it.
	w.r.Kill()
	replica.Do("REPLICAOF", "NO", "ONE")
	q := &party{open(t, "redis://"+replica.Addr).Session("m", lease.Contender{ID: p.id}), t, p.id, p.l}
	q.text("b", "c", "c")
}

// In a cluster it lies with the mutex, wherever that is.
func TestCheckpointInACluster(t *testing.T) {
	t.Parallel()
	nodes := backendtest.StartRedisCluster(t, 3)
	b := open(t, "redis+cluster://"+nodes[0].Addr)
	for _, mutex := range []string{"a", "b", "c", "d", "e"} {
		p := contender(t, b, mutex, "")
		p.own()
		fresh := contender(t, open(t, "redis+cluster://"+nodes[1].Addr), mutex, "")
		fresh.noText("", "x", lease.ErrNotOwner)
		p.text("", mutex, mutex)
		p.release()
		fresh.own()
		fresh.text("", "", mutex)
	}
	var keys int
	onEach(t, b, func(lib *goredis.Client) { keys += len(lib.Keys(t.Context(), "*:checkpoint").Val()) })
	if keys != 5 {
		t.Errorf("%d keys", keys)
	}
}
