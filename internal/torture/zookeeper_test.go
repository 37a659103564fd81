package torture

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
)

// zkFlags are the lease of the rounds: L is 5 s. Its start lies up to 3/8 of L
// back when it is renewed, so what is left then is 1.2 s of the ttl and two more
// until the job is stopped.
var zkFlags = []string{"--ttl", "3s", "--transition", "2s", "--kill-after", "500ms"}

const (
	zkLease     = 5 * time.Second
	zkKillAfter = 500 * time.Millisecond
	// zkAfter is how long after the end of its lease a dead owner's node may
	// live: the server counts in ticks, and the next one has to start.
	zkAfter = 2500 * time.Millisecond
)

// usage is the exit status of settings that do not fit.
const usage = 64

// zkRound has a directory of its own on a server.
type zkRound struct {
	*round
	server *backendtest.ZooKeeper
	chroot string
	relay  *backendtest.Relay // between the first run and the server
}

var zkChroots atomic.Int64

func newZKRound(t *testing.T, z *backendtest.ZooKeeper) *zkRound {
	r := &zkRound{round: newRound(t, zkFlags...), server: z, chroot: fmt.Sprintf("/round%d", zkChroots.Add(1))}
	r.flags = append(r.flags, "-b", r.url(z.Addr))
	return r
}

func (r *zkRound) url(addrs ...string) string { return "zk://" + strings.Join(addrs, ",") + r.chroot }

func (r *zkRound) queue() string { return r.chroot + "/simba/torture" }

// connect is a session beside those of the runs.
func (r *zkRound) connect() *zk.Conn {
	r.t.Helper()
	c, _, err := zk.Connect([]string{r.server.Addr}, 10*time.Second, zk.WithLogger(mute{}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

type mute struct{}

func (mute) Printf(string, ...any) {}

// clean looks whether a node of a run is left.
func (r *zkRound) clean() {
	r.t.Helper()
	c := r.connect()
	for _, dir := range []string{r.queue(), r.chroot + "/simba-state"} {
		names, _, err := c.Children(dir)
		if err != nil && !errors.Is(err, zk.ErrNoNode) || len(names) > 0 {
			r.t.Errorf("left in %s: %v %v", dir, names, err)
		}
	}
}

// gone checks that the first job ended in time when its node was taken away.
func (r *zkRound) gone(at time.Duration) {
	r.t.Helper()
	r.wait(r.first)
	for label, l := range lives(r.t, r.log) {
		if took := l.last - at; label[0] == 'A' && took > zkKillAfter+300*time.Millisecond {
			r.t.Errorf("%s lived for %v after its node was deleted", label, took)
		}
	}
}

// granted checks that the owner is told of the lease that the server gives
// instead of the one asked for, and that status knows it.
func (r *zkRound) granted(want time.Duration) {
	r.t.Helper()
	text := fmt.Sprintf("the backend grants a lease of %v instead of the %v asked for", want, zkLease)
	r.until("the first is told", func() bool { return strings.Contains(r.said(r.first), text) })
	out, err := exec.Command(binary, append([]string{"status", "torture", "-o", "json"}, r.backend()...)...).Output()
	ttl := want * 3 / 5
	times := fmt.Sprintf(`"ttl_ms":%d,"transition_ms":%d`, ttl.Milliseconds(), (want - ttl).Milliseconds())
	if err != nil || !strings.Contains(string(out), times) {
		r.t.Errorf("status says %s %v and not %s", out, err, times)
	}
}

// watched waits until the first run hears of what happens to its node, which is
// a second after it began to work.
func (r *zkRound) watched() { <-time.After(1500 * time.Millisecond) }

// Jobs that ignore the stop signal live as long as any may.
var zkFaults = []struct {
	name   string
	codes  []int
	length string
	deaf   bool
	relay  bool // the first run reaches the server through one
	own    bool // the server is the round's own
	server backendtest.ZooKeeperOptions
	within time.Duration
	do     func(r *zkRound)
}{
	{name: "kill simba", codes: []int{killed}, length: "30s", deaf: true, within: zkLease + zkAfter,
		do: func(r *zkRound) {
			r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
		}},
	{name: "stop simba past the lease", codes: []int{lost}, length: "30s", deaf: true, within: zkLease + zkAfter,
		do: func(r *zkRound) {
			r.kill(r.first.cmd.Process.Pid, syscall.SIGSTOP)
			<-time.After(zkLease + time.Second)
			_ = syscall.Kill(r.first.cmd.Process.Pid, syscall.SIGCONT) // its own alarm may have woken it
		}},
	{name: "owner blackholed", codes: []int{lost}, length: "30s", deaf: true, relay: true, within: zkLease + zkAfter,
		do: func(r *zkRound) {
			r.relay.Set(backendtest.Blackhole)
		}},
	{name: "less granted", codes: []int{lost}, length: "30s", deaf: true, relay: true, own: true,
		within: 3*time.Second + zkAfter,
		server: backendtest.ZooKeeperOptions{MaxSession: 3 * time.Second},
		do: func(r *zkRound) {
			r.granted(3 * time.Second)
			c := r.start("true", "-m", "other", "--kill-after", "1700ms") // it fits into what is asked for
			if code := r.wait(c); code != usage || !strings.Contains(c.stderr.String(), "kill-after may be at most 1.076s") {
				r.t.Errorf("a kill-after that does not fit ends with %d: %s", code, c.stderr)
			}
			r.relay.Set(backendtest.Blackhole)
		}},
	{name: "more granted", codes: []int{lost}, length: "30s", deaf: true, relay: true, own: true,
		within: 8*time.Second + zkAfter,
		server: backendtest.ZooKeeperOptions{MinSession: 8 * time.Second},
		do: func(r *zkRound) {
			r.granted(8 * time.Second)
			r.relay.Set(backendtest.Blackhole)
		}},
	{name: "server stopped past the session", codes: []int{lost}, length: "30s", deaf: true, own: true,
		do: func(r *zkRound) {
			r.server.Stop()
			<-time.After(zkLease + time.Second)
			r.server.Cont()
		}},
	{name: "server killed and restarted", codes: []int{0, lost}, length: "8s", own: true,
		do: func(r *zkRound) {
			r.server.Kill()
			r.server.Restart()
		}},
	{name: "node deleted", codes: []int{lost}, length: "30s", deaf: true,
		do: func(r *zkRound) {
			c := r.connect()
			r.watched()
			names, _, err := c.Children(r.queue())
			if err != nil || len(names) != 2 {
				r.t.Fatal(names, err)
			}
			owner, lowest := "", "~"
			for _, n := range names {
				if seq := n[strings.LastIndexByte(n, '-'):]; seq < lowest {
					owner, lowest = n, seq
				}
			}
			at := boot()
			if err := c.Delete(r.queue()+"/"+owner, -1); err != nil {
				r.t.Fatal(err)
			}
			r.gone(at)
		}},
	{name: "parent deleted", codes: []int{lost}, length: "30s", deaf: true,
		do: func(r *zkRound) {
			c := r.connect()
			r.watched()
			names, _, err := c.Children(r.queue())
			if err != nil || len(names) != 2 {
				r.t.Fatal(names, err)
			}
			at := boot()
			for _, n := range names {
				if err := c.Delete(r.queue()+"/"+n, -1); err != nil {
					r.t.Fatal(err)
				}
			}
			_ = c.Delete(r.queue(), -1) // the second may be back before
			r.gone(at)
		}},
}

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	shared := backendtest.StartZooKeeper(t, backendtest.ZooKeeperOptions{})
	for _, f := range zkFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T) {
				z := shared
				if f.own {
					z = backendtest.StartZooKeeper(t, f.server)
				}
				r := newZKRound(t, z)
				if f.relay {
					r.relay = backendtest.StartRelay(t, z.Addr)
					r.firstFlags = []string{"-b", r.url(r.relay.Addr)}
				}
				r.length, r.deaf = f.length, f.deaf
				r.begin()
				at := boot()
				f.do(r)
				gap := r.finish(at, f.codes...)
				if f.within > 0 && gap > f.within {
					t.Errorf("the second job began %v after the fault", gap)
				}
				r.clean()
				t.Logf("exit status %d, the second began after %v", r.first.code, gap.Round(time.Millisecond))
			})
		})
	}
}

// TestZooKeeperEnsemble is not parallel: three servers that are to answer within
// a lease of seconds need the cores for themselves. A tick is what it is in the
// files that ZooKeeper comes with, so a session lasts hardly more than two, and
// a leader hears of it late.
func TestZooKeeperEnsemble(t *testing.T) {
	e := backendtest.StartZooKeeperEnsemble(t, 3, backendtest.ZooKeeperOptions{Tick: 2 * time.Second})
	for _, f := range []struct {
		name  string
		codes []int
		side  bool // it hits nobody else, so its rounds may go side by side
		fault func(t *testing.T, e *backendtest.ZooKeeperEnsemble) (r *zkRound, do, mend func())
	}{
		{name: "leader killed", codes: []int{0, lost}, fault: leaderKilled},
		{name: "leader killed, default lease", codes: []int{0}, fault: leaderKilledByDefault},
		{name: "one of three blackholed", codes: []int{0}, side: true, fault: oneBlackholed},
		{name: "follower cut off", codes: []int{lost}, fault: followerCutOff},
	} {
		one := func(t *testing.T) {
			r, do, mend := f.fault(t, e)
			defer mend()
			r.begin()
			at := boot()
			do()
			gap := r.finish(at, f.codes...)
			r.clean()
			t.Logf("exit status %d, the second began after %v", r.first.code, gap.Round(time.Millisecond))
		}
		t.Run(f.name, func(t *testing.T) {
			e.Settle(t)
			if f.side {
				each(t, one)
				return
			}
			for i := range *rounds {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					e.Settle(t)
					one(t)
				})
			}
		})
	}
}

// leaderKilled: the others elect a new one, under which every session has its
// whole time anew.
func leaderKilled(t *testing.T, e *backendtest.ZooKeeperEnsemble) (r *zkRound, do, mend func()) {
	leader := e.Members[e.Leader(t)]
	follower := e.Members[e.Followers(t)[0]]
	r = newZKRound(t, follower)
	var all []string
	for _, m := range e.Members {
		all = append(all, m.Addr)
	}
	r.length = "8s"
	r.flags = append(r.flags, "-b", r.url(all...))
	return r, leader.Kill, leader.Restart
}

// leaderKilledByDefault: an election takes seconds, which the default lease has.
func leaderKilledByDefault(t *testing.T, e *backendtest.ZooKeeperEnsemble) (r *zkRound, do, mend func()) {
	r, do, mend = leaderKilled(t, e)
	r.flags = append(r.flags, "--ttl", "10s", "--transition", "6s")
	return r, do, mend
}

// oneBlackholed: the server of the owner neither answers nor refuses. There are
// two others, and that costs no job.
func oneBlackholed(t *testing.T, e *backendtest.ZooKeeperEnsemble) (r *zkRound, do, mend func()) {
	r = newZKRound(t, e.Members[0])
	var addrs []string
	var relays []*backendtest.Relay
	for _, m := range e.Members {
		relay := backendtest.StartRelay(t, m.Addr)
		relays, addrs = append(relays, relay), append(addrs, relay.Addr)
	}
	r.length = "8s"
	r.firstFlags = []string{"-b", r.url(addrs...)}
	do = func() {
		var before [3]int64
		for i, relay := range relays {
			before[i], _ = relay.Bytes()
		}
		r.until("the owner talks to a server", func() bool {
			for i, relay := range relays {
				if up, _ := relay.Bytes(); up > before[i] {
					relay.Set(backendtest.Blackhole)
					return true
				}
			}
			return false
		})
	}
	return r, do, func() {}
}

// followerCutOff: it goes on answering its clients until it notices, and the
// owner has no other server.
func followerCutOff(t *testing.T, e *backendtest.ZooKeeperEnsemble) (r *zkRound, do, mend func()) {
	leader, follower := e.Leader(t), e.Followers(t)[0]
	r = newZKRound(t, e.Members[leader])
	r.length, r.deaf = "30s", true
	r.firstFlags = []string{"-b", r.url(e.Members[follower].Addr)}
	link := e.Links[follower][leader]
	do = func() {
		<-time.After(time.Second) // into the rhythm of renewals
		link.Set(backendtest.Blackhole)
	}
	return r, do, func() { link.Set(backendtest.Pass) }
}
