package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// A real failover in mid-run: the job goes on under the new master, the waiter
// gets its turn there, by push.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := backendtest.StartRedisSentinels(t)
	b := open(t, "redis+sentinel://"+strings.Join(s.Addrs, ",")+"/main?wait_replicas=1")
	p := contender(t, b, "m", "")
	mine := p.own() // and the replica has it
	waiter := contender(t, b, "m", "")
	bells := waiter.wait()
	s.Master.Kill()
	s.AwaitFailover()
	_ = bells.ends()
	// No replica is left, so renewals no longer count.
	_, err := p.Renew(t.Context(), lease.RenewRequest{Lease: p.l, Fence: mine.Fence})
	if !errors.Is(err, errShort) || lease.IsPermanent(err) {
		t.Errorf("renewed without a replica: %v", err)
	}
	s.Replica.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	plain := open(t, "redis+sentinel://"+strings.Join(s.Addrs, ",")+"/main")
	owner := &session{b: plain, mutex: "m", id: p.id, info: "{}"}
	a, err := owner.Renew(t.Context(), lease.RenewRequest{Lease: p.l, Fence: mine.Fence})
	if err != nil || a.State != lease.Mine || a.Fence != mine.Fence {
		t.Errorf("%+v, %v", a, err)
	}
	bells = waiter.hear()
	is(t, waiter.try(), lease.Held, p.id)
	if err := owner.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
		t.Error(err)
	}
	bells.rings()
	if _, err := waiter.Try(t.Context(), waiter.request()); !errors.Is(err, errShort) {
		t.Error(err)
	}
}

// A server that becomes a replica while the connection stays open is left for
// the one that the address leads to now.
func TestReadOnlyServerIsLeft(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	replica := backendtest.StartRedisReplica(t, w.r)
	relay := backendtest.StartRelay(t, w.r.Addr)
	b := open(t, "redis://"+relay.Addr)
	owner, waiter := contender(t, b, "m", ""), contender(t, b, "m", "")
	mine := owner.own()
	bells := waiter.wait()
	eventually(t, "it is not replicated", func() bool { return replica.Number("EXISTS", ownerKey("m")) == 1 })
	replica.Do("REPLICAOF", "NO", "ONE")
	w.r.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(replica.Port))
	_, err := owner.Renew(t.Context(), lease.RenewRequest{Lease: owner.l})
	if err == nil || lease.IsPermanent(err) || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("%v", err)
	}
	relay.Retarget(replica.Addr)
	if a := is(t, owner.renew(lease.RenewRequest{Fence: mine.Fence}), lease.Mine, owner.id); a.Fence != mine.Fence {
		t.Errorf("%+v", a)
	}
	// The waiter still listens at the old one, and is told to listen anew.
	is(t, waiter.try(), lease.Held, owner.id)
	if err := bells.ends(); err == nil || lease.IsPermanent(err) {
		t.Error(err)
	}
	bells = waiter.hear()
	waiter.try()
	owner.release()
	bells.rings()
	waiter.own()
}

// In a cluster, mutexes whose keys move are followed.
func TestClusterMoves(t *testing.T) {
	t.Parallel()
	nodes := backendtest.StartRedisCluster(t, 3)
	b := open(t, "redis+cluster://127.0.0.1:1,"+nodes[2].Addr)
	var owners []*party
	for i := range 12 {
		p := contender(t, b, "m"+strconv.Itoa(i), "")
		p.own() // the first address is nobody's, which is no reason to fail
		owners = append(owners, p)
	}
	for _, r := range nodes {
		if r.Number("DBSIZE") == 0 {
			t.Error("a node has no mutex")
		}
	}
	lister := open(t, "redis+cluster://127.0.0.1:1,"+nodes[1].Addr)
	if names, err := lister.List(t.Context()); err != nil || len(names) != len(owners) {
		t.Errorf("%v, %v", names, err)
	}
	// Move the slot of m0 to another node, step by step.
	slot := strconv.FormatInt(nodes[0].Number("CLUSTER", "KEYSLOT", ownerKey("m0")), 10)
	var from, to *backendtest.Redis
	for _, r := range nodes {
		if r.Number("CLUSTER", "COUNTKEYSINSLOT", slot) > 0 {
			from = r
		} else {
			to = r
		}
	}
	waiter := contender(t, b, "m0", "")
	bells := waiter.wait()
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Text("CLUSTER", "MYID"))
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Text("CLUSTER", "MYID"))
	from.Do("MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), ownerKey("m0"), "0", "1000")
	ctx := t.Context()
	if _, err := owners[0].Renew(ctx, lease.RenewRequest{Lease: testLease}); err == nil || lease.IsPermanent(err) || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("half of the keys moved: %v", err)
	}
	from.Do("MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), "", "0", "1000", "KEYS", leaseKey("m0"), queueKey("m0"))
	is(t, owners[0].renew(lease.RenewRequest{}), lease.Mine, owners[0].id) // asking
	for _, r := range []*backendtest.Redis{to, from} {
		r.Do("CLUSTER", "SETSLOT", slot, "NODE", to.Text("CLUSTER", "MYID"))
	}
	is(t, owners[0].renew(lease.RenewRequest{}), lease.Mine, owners[0].id)
	waiter.try()
	_ = bells.ends() // it listened at the old node
	bells = waiter.hear()
	waiter.try()
	owners[0].release()
	bells.rings()
	waiter.own()
}

// A job outlives connections that are reset, refused and slow.
func TestJobSurvivesABadNetwork(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	relay := backendtest.StartRelay(t, w.r.Addr)
	b := open(t, "redis://"+relay.Addr)
	fences := make(chan uint64, 1)
	before := clientCommands(w.r)
	holdFor(t, b, fences, func() {
		for range 3 {
			for _, m := range []backendtest.RelayMode{backendtest.Reset, backendtest.Refuse, backendtest.Blackhole} {
				relay.Set(m)
				time.Sleep(200 * time.Millisecond)
			}
			relay.Set(backendtest.Pass)
			time.Sleep(900 * time.Millisecond)
		}
		eventually(t, "the full lease does not come back", func() bool { return w.r.Number("PTTL", ownerKey("m")) > 3500 })
	})
	if n := clientCommands(w.r) - before; n > 60 {
		t.Errorf("%d commands", n)
	}
}

// The server freezes, then works off what was sent meanwhile.
func TestServerStalls(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	terms := terms(t, 500*time.Millisecond)
	cfg := lease.Config{Backend: w.b, Mutex: "m", Terms: terms, Wait: lease.Forever}
	var lost time.Duration
	began := time.Now()
	err := lease.Do(t.Context(), cfg, func(ctx context.Context, _ *lease.Holder) error {
		w.r.Stop()
		<-ctx.Done()
		lost = time.Since(began)
		return nil
	})
	if !errors.Is(err, lease.ErrLost) {
		t.Error(err)
	}
	between(t, "told to stop", lost, 0, terms.Lease())
	w.r.Cont()
	fence := make(chan uint64, 1)
	began = time.Now()
	holdFor(t, w.b, fence, func() {})
	between(t, "the next one waited", time.Since(began), 0, 3*terms.Lease())
}

// The library must not dial or retry by itself.
func TestOneConnectionACall(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	c, err := dial(t.Context(), "tcp", w.r.Addr, nil, login{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	ping := func(lib *goredis.Client) error { return lib.Ping(t.Context()).Err() }
	if usable, err := c.use(t.Context(), ping); err != nil || !usable {
		t.Fatal(err)
	}
	c.kill()
	for range 3 {
		if usable, err := c.use(t.Context(), ping); err == nil || usable {
			t.Error("it dialed by itself")
		}
	}
	if got := w.r.Text("INFO", "stats"); !strings.Contains(got, "total_error_replies:0") {
		t.Error(got)
	}
}
