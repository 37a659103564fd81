package zookeeper

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// serverOf is the address by which the owner's session is connected.
func serverOf(t *testing.T, c *client) string {
	t.Helper()
	addr := ""
	eventually(t, "it is connected", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.up && c.wire != nil {
			addr = c.wire.addr
		}
		return addr != ""
	})
	return addr
}

// spy keeps the clients of a backend's sessions, the latest last.
type spy struct {
	*Backend
	sessions []*session
}

func (s *spy) Session(mutex string, c lease.Contender) lease.Session {
	x := newSession(s.Backend, mutex, c)
	s.sessions = append(s.sessions, x)
	return x
}

func (s *spy) client() *client {
	x := s.sessions[len(s.sessions)-1]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cl
}

func renewed(t *testing.T, h *lease.Holder) {
	t.Helper()
	before := h.Deadlines().End
	eventually(t, "the lease is renewed", func() bool { return h.Deadlines().End > before })
}

// One of three servers that neither answers nor refuses costs no job, and the
// death of the leader does not either.
func TestEnsembleFaults(t *testing.T) {
	t.Parallel()
	e := serveThree(t, backendtest.ZooKeeperOptions{})
	var addrs []string
	relays := map[string]*backendtest.Relay{}
	for _, m := range e.Members {
		r := backendtest.StartRelay(t, m.Addr)
		relays[r.Addr] = r
		addrs = append(addrs, r.Addr)
	}
	b := &spy{Backend: open(t, "zk://"+strings.Join(addrs, ","))}
	a := &arena{t: t, mutex: "m", terms: terms(t, 12*time.Second, 10*time.Second)} // an election can take six
	owner := a.run(b, "owner")
	h := owner.owns()
	other := &spy{Backend: open(t, "zk://"+e.Members[e.Followers(t)[1]].Addr)}
	waiter := a.run(other, "waiter")
	waiter.waits()

	for range 2 {
		hole := serverOf(t, b.client())
		relays[hole].Set(backendtest.Blackhole)
		eventually(t, "it goes to another", func() bool { return serverOf(t, b.client()) != hole })
		renewed(t, h)
		relays[hole].Set(backendtest.Pass)
	}

	leader := e.Leader(t)
	e.Members[leader].Kill()
	// The old leader's leases count anew under the new one.
	renewed(t, h)
	renewed(t, h)
	e.Members[leader].Restart()
	e.Settle(t)
	owner.keeps(time.Second)
	owner.ends()
	waiter.ends()
}

// A follower that is cut off from its leader goes on answering its clients for a
// while. An owner that has no other server must have stopped when the leader
// gives the mutex to somebody else.
func TestFollowerCutOff(t *testing.T) {
	t.Parallel()
	// A session of hardly more than two ticks is the worst case: the leader hears
	// of it every half tick.
	e := serveThree(t, backendtest.ZooKeeperOptions{Tick: 1400 * time.Millisecond})
	a := &arena{t: t, mutex: "m", terms: terms(t, 1500*time.Millisecond, 1500*time.Millisecond)}
	for range 3 {
		e.Settle(t)
		leader, follower := e.Leader(t), e.Followers(t)[0]
		owner := a.run(open(t, "zk://"+e.Members[follower].Addr), "owner")
		h := owner.owns()
		waiter := a.run(open(t, "zk://"+e.Members[leader].Addr), "waiter")
		waiter.waits()
		renewed(t, h) // it is in its rhythm
		e.Links[follower][leader].Set(backendtest.Blackhole)
		waiter.owns() // the arena sees whether the owner has stopped
		await(t, "the owner has stopped", owner.ended)
		waiter.after(owner)
		e.Links[follower][leader].Set(backendtest.Pass)
		owner.lost()
		waiter.ends()
	}
}

// With other servers to go to, the owner leaves such a follower in time.
func TestFollowerCutOffWithOthers(t *testing.T) {
	t.Parallel()
	e := serveThree(t, backendtest.ZooKeeperOptions{})
	var addrs []string
	for _, m := range e.Members {
		addrs = append(addrs, m.Addr)
	}
	b := &spy{Backend: open(t, "zk://"+strings.Join(addrs, ","))}
	a := &arena{t: t, mutex: "m", terms: terms(t, 4*time.Second, 4*time.Second)}
	owner := a.run(b, "owner")
	h := owner.owns()
	leader := e.Leader(t)
	for range 10 { // until it is with a follower
		if serverOf(t, b.client()) != e.Members[leader].Addr {
			break
		}
		gen, _, _ := b.client().state()
		b.client().hangUp(gen)
		eventually(t, "it is elsewhere", func() bool { n, up, _ := b.client().state(); return n > gen && up })
	}
	at := serverOf(t, b.client())
	for i, m := range e.Members {
		if m.Addr == at {
			e.Links[i][leader].Set(backendtest.Blackhole)
		}
	}
	eventually(t, "it goes to another", func() bool { return serverOf(t, b.client()) != at })
	renewed(t, h)
	renewed(t, h)
	owner.ends()
}
