package torture

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

// redisCases are further faults, each from a report of somebody whom another
// tool failed. They are done in as many rounds as redisFaults.
var redisCases = []redisFault{
	{name: "owner with a deaf job blackholed", codes: []int{lost}, length: "30s", deaf: true, do: func(r *redisRound) {
		r.relay.Set(backendtest.Blackhole)
	}},
	{name: "deaf job, TERM, then kill simba", codes: []int{killed}, length: "30s", deaf: true, do: func(r *redisRound) {
		r.kill(r.first.cmd.Process.Pid, syscall.SIGTERM)
		<-time.After(fullLease + time.Second) // the lease is renewed as long as the job lives
		if ended(r.first) || r.server.Number("EXISTS", redisKey) != 1 {
			r.t.Error("the first did not outlast a TERM that its job ignores")
		}
		r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
	}},
	{name: "all stopped past the lease", codes: []int{lost}, length: "30s", do: func(r *redisRound) {
		all := tree(r.first.cmd.Process.Pid)
		for _, pid := range all {
			r.kill(pid, syscall.SIGSTOP)
		}
		<-time.After(fullLease + time.Second)
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGCONT) // their own alarms may have ended them
		}
	}},
	{name: "server paused past the lease", codes: []int{lost}, length: "30s", do: func(r *redisRound) {
		r.server.Do("CLIENT", "PAUSE", "4000", "ALL")
	}},
	{name: "server made a replica", codes: []int{0}, length: "6s", shared: true, do: func(r *redisRound) {
		next := backendtest.StartRedisReplica(r.t, r.server)
		next.Do("REPLICAOF", "NO", "ONE")
		r.server.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(next.Port))
		<-time.After(time.Second)
		r.relay.Retarget(next.Addr) // the connections to the old one stay open
	}},
	{name: "scripts flushed, then restarted with its data", codes: []int{0}, length: "6s",
		server: backendtest.RedisOptions{AOF: true}, do: func(r *redisRound) {
			r.server.Do("SCRIPT", "FLUSH")
			<-time.After(time.Second)
			if out, err := r.status(); err != nil {
				r.t.Errorf("status: %v %s", err, out)
			}
			r.server.Restart()
			r.server.Do("SCRIPT", "FLUSH")
		}},
}

func TestRedisCases(t *testing.T) { tortureRedis(t, redisCases) }

// TestRedisMended: when a network is mended, what was held back in it arrives.
// None of it may touch the lease of those who came after.
func TestRedisMended(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T) {
		r := newRedisRound(t, backendtest.RedisOptions{})
		r.length = "30s"
		r.begin()
		third := r.start("$BEAT C $LOG 300ms")
		r.until("the third waits", func() bool { return r.waiting() == 2 })
		r.relay.Set(backendtest.Blackhole)
		r.wait(r.first)
		r.until("the second works", func() bool { return lives(t, r.log)["B"].first != 0 })
		r.relay.Set(backendtest.Pass)
		r.finish(boot(), lost)
		if code := r.wait(third); code != 0 {
			t.Errorf("the third ended with %d: %s", code, third.stderr)
		}
		if seen := lives(t, r.log); seen["B"].last >= seen["C"].first {
			t.Errorf("OVERLAP: the second was alive %v after the third began", seen["B"].last-seen["C"].first)
		}
	})
}

// TestRedisKilledAtStart: however early a simba is killed, nothing of its job
// is beside the next, and what it took ends with its lease.
func TestRedisKilledAtStart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T) {
		for age := time.Duration(0); age < 20*time.Millisecond; age += 2 * time.Millisecond {
			t.Run(age.String(), func(t *testing.T) {
				t.Parallel()
				server := backendtest.StartRedis(t, backendtest.RedisOptions{})
				r := newRound(t, append(leaseFlags, "-b", "redis://"+server.Addr)...)
				r.first = r.start("$BEAT A1 $LOG 30s & setsid $BEAT A2 $LOG 30s & wait")
				<-time.After(age)
				r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
				at := boot()
				r.second = r.start("$BEAT B $LOG 100ms")
				if gap := r.finish(at, killed); gap > fullLease+2*time.Second {
					t.Errorf("the second job began after %v", gap)
				}
			})
		}
	})
}

// TestRedisNobodyDiesByAccident: leases of which the ttl is short, on a network
// that is reset again and again. Nothing that ends the job of a dead simba may
// end that of a live one, whatever the runtime does with its threads.
func TestRedisNobodyDiesByAccident(t *testing.T) {
	t.Parallel()
	server := backendtest.StartRedis(t, backendtest.RedisOptions{})
	relay := backendtest.StartRelay(t, server.Addr)
	r := newRound(t, "-b", "redis://"+relay.Addr, "--ttl", "300ms")
	var runs []*run
	for i := range 10 {
		runs = append(runs, r.start(
			fmt.Sprintf("$BEAT A%d $LOG 6s", i), "-m", "own-"+strconv.Itoa(i)))
	}
	r.until("all work", func() bool { return len(lives(t, r.log)) == len(runs) })
	for range 5 {
		relay.Set(backendtest.Reset)
		<-time.After(100 * time.Millisecond)
		relay.Set(backendtest.Pass)
		<-time.After(900 * time.Millisecond)
	}
	for _, c := range runs {
		if code := r.wait(c); code != 0 {
			t.Errorf("ended with %d: %s", code, c.stderr)
		}
	}
	r.until("nobody is left", func() bool { return len(marked(r.mark)) == 0 })
}

// TestRedisStampede: many at once at a server that has never seen the mutex.
// Each adds one to a number in a file, which only works one at a time.
func TestRedisStampede(t *testing.T) {
	t.Parallel()
	const many = 30
	server := backendtest.StartRedis(t, backendtest.RedisOptions{})
	r := newRound(t, "-b", "redis://"+server.Addr)
	file := filepath.Join(r.dir, "number")
	var all sync.WaitGroup
	for range many {
		c := r.start(`n=$(cat ` + file + ` 2>/dev/null || echo 0); sleep 0.01; echo $((n + 1)) >` + file)
		all.Go(func() {
			if code := r.wait(c); code != 0 || c.stderr.String() != "" {
				t.Errorf("ended with %d: %s", code, c.stderr)
			}
		})
	}
	all.Wait()
	last := r.start(`test "$(cat `+file+`)" = `+strconv.Itoa(many), "--wait", "0")
	if code := r.wait(last); code != 0 {
		t.Errorf("the number is another: %d %s", code, last.stderr)
	}
}
