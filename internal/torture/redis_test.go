package torture

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

// leaseFlags are the lease of the rounds on stores whose leases end: L is 3 s.
var leaseFlags = []string{"--ttl", "2s", "--transition", "1s", "--kill-after", "300ms"}

const fullLease = 3 * time.Second

// redisRound has a server of its own; the first run reaches it through a relay.
type redisRound struct {
	*round
	server *backendtest.Redis
	relay  *backendtest.Relay
}

const redisKey = "simba:{torture}"

// redisFault is done to the first run, its server or its network.
type redisFault struct {
	name   string
	codes  []int // of the first run
	length string
	deaf   bool // its job ignores what asks it to end
	shared bool // the second goes through the relay too
	server backendtest.RedisOptions
	do     func(r *redisRound)
}

var redisFaults = []redisFault{
	{name: "kill simba", codes: []int{killed}, length: "30s", do: func(r *redisRound) {
		r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
	}},
	{name: "stop simba past the lease", codes: []int{lost}, length: "30s", do: func(r *redisRound) {
		r.kill(r.first.cmd.Process.Pid, syscall.SIGSTOP)
		<-time.After(fullLease + time.Second)
		_ = syscall.Kill(r.first.cmd.Process.Pid, syscall.SIGCONT) // its own alarm may have woken it
	}},
	{name: "owner blackholed", codes: []int{lost}, length: "30s", do: func(r *redisRound) {
		r.relay.Set(backendtest.Blackhole)
	}},
	{name: "server stopped past the lease", codes: []int{lost}, length: "30s", do: func(r *redisRound) {
		r.server.Stop()
		<-time.After(fullLease + time.Second)
		r.server.Cont()
	}},
	{name: "server restarted empty", codes: []int{0, lost}, length: "6s", do: func(r *redisRound) {
		r.server.Kill()
		r.server.Restart()
	}},
	{name: "key deleted", codes: []int{0}, length: "6s", do: func(r *redisRound) {
		r.server.Do("DEL", redisKey)
	}},
	{name: "key overwritten", codes: []int{lost}, length: "30s", do: func(r *redisRound) {
		r.server.Do("SET", redisKey, "someone-else", "PX", "4000")
		at := boot()
		r.wait(r.first)
		if d := boot() - at; d > 2*time.Second/3+300*time.Millisecond+2*time.Second {
			r.t.Errorf("the first lived %v after its record was given away", d)
		}
		if s := r.said(r.first); !strings.Contains(s, "ownership was lost: someone-else owns it now") {
			r.t.Errorf("who took it is not told: %s", s)
		}
		if owner := r.server.Text("GET", redisKey); owner != "someone-else" {
			r.t.Errorf("%q owns it after the first has ended", owner)
		}
	}},
	{name: "blips", codes: []int{0}, length: "8s", do: func(r *redisRound) {
		for range 4 {
			r.relay.Cut()
			<-time.After(300 * time.Millisecond)
			r.relay.Set(backendtest.Refuse)
			<-time.After(500 * time.Millisecond)
			r.relay.Set(backendtest.Pass)
			<-time.After(700 * time.Millisecond)
		}
	}},
}

func newRedisRound(t *testing.T, o backendtest.RedisOptions) *redisRound {
	server := backendtest.StartRedis(t, o)
	relay := backendtest.StartRelay(t, server.Addr)
	r := &redisRound{round: newRound(t, leaseFlags...), server: server, relay: relay}
	r.firstFlags = []string{"-b", "redis://" + relay.Addr}
	r.flags = append(r.flags, "-b", "redis://"+server.Addr)
	return r
}

func TestRedis(t *testing.T) { tortureRedis(t, redisFaults) }

func tortureRedis(t *testing.T, faults []redisFault) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T) {
				r := newRedisRound(t, f.server)
				r.length, r.deaf = f.length, f.deaf
				if f.shared {
					r.flags = append(r.flags, r.firstFlags...)
				}
				r.begin()
				f.do(r)
				r.finish(boot(), f.codes...)
				if n := r.server.Number("EXISTS", redisKey); n != 0 {
					t.Error(strconv.FormatInt(n, 10) + " keys of an ownership are left")
				}
			})
		})
	}
}

// TestRedisFailover kills the master in mid-run. With ttl 5s the sentinels have
// the time to promote the replica, which then knows of the lease or, if it
// lagged, is asked by the owner to know of it.
func TestRedisFailover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T) {
		s := backendtest.StartRedisSentinels(t)
		url := "redis+sentinel://" + strings.Join(s.Addrs, ",") + "/main"
		r := newRound(t, "-b", url, "--ttl", "5s", "--transition", "3s", "--kill-after", "1s")
		r.length = "10s"
		r.begin()
		s.Master.Kill()
		r.finish(boot(), 0, lost)
	})
}
