package torture

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

// ended says whether a run has.
func ended(c *run) bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// tree is a process and all its descendants.
func tree(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

func (r *round) status() (string, error) {
	out, err := exec.Command(binary, append([]string{"status", "torture"}, r.backend()...)...).CombinedOutput()
	return string(out), err
}

// hold starts a holder whose job lasts until the test ends it.
func (r *round) hold() *run {
	r.t.Helper()
	c := r.start("exec $BEAT HOLDER $LOG 60s")
	r.until("somebody holds it", func() bool { return lives(r.t, r.log)["HOLDER"].first != 0 })
	return c
}

// let ends a holder by the signal that is passed on to its job.
func (r *round) let(c *run) {
	r.t.Helper()
	r.kill(c.cmd.Process.Pid, syscall.SIGTERM)
	if code := r.wait(c); code != termed {
		r.t.Errorf("the holder ended with %d: %s", code, c.stderr)
	}
}

func newRedisQueue(t *testing.T) (*backendtest.Redis, *round) {
	server := backendtest.StartRedis(t, backendtest.RedisOptions{})
	return server, newRound(t, "-b", "redis://"+server.Addr)
}

// nothingLeft: no place in the queue, and nothing that never goes.
func nothingLeft(t *testing.T, server *backendtest.Redis) {
	t.Helper()
	keys, _ := server.Do("KEYS", "*").([]any)
	for _, k := range keys {
		key := fmt.Sprint(k)
		if left := server.Number("PTTL", key); left < 0 {
			t.Errorf("%s has no end", key)
		}
		if key != redisKey+":lease" {
			t.Errorf("%s is left", key)
		}
	}
	fields, _ := server.Do("HKEYS", redisKey+":lease").([]any)
	for _, f := range fields {
		if strings.HasPrefix(fmt.Sprint(f), "w:") {
			t.Errorf("the place %s is left", f)
		}
	}
}

// TestRedisBusy: busy, told to end, and a server that is away are three
// different things, and each is told in its time.
func TestRedisBusy(t *testing.T) {
	t.Parallel()
	server, r := newRedisQueue(t)
	holder := r.hold()
	for _, c := range []struct {
		flags     []string
		signal    syscall.Signal
		code      int
		says      string
		low, high time.Duration
	}{
		{[]string{"--wait", "0"}, 0, 75, "busy: held by ", 0, time.Second},
		{[]string{"--wait", "1s"}, 0, 75, "busy: held by ", time.Second, 1500 * time.Millisecond},
		{nil, syscall.SIGTERM, termed, "", 0, 3 * time.Second},
		{[]string{"-b", "redis://127.0.0.1:1", "--connect-timeout", "500ms"}, 0,
			69, "not reachable", 0, 1500 * time.Millisecond},
	} {
		at := boot()
		waiter := r.start("$BEAT NEVER $LOG 1s", c.flags...)
		if c.signal != 0 {
			r.until("it waits", func() bool { return r.waiting() == 1 })
			r.kill(waiter.cmd.Process.Pid, c.signal)
		}
		code, took := r.wait(waiter), boot()-at
		if code != c.code || !strings.Contains(waiter.stderr.String(), c.says) {
			t.Errorf("%v: ended with %d: %s", c.flags, code, waiter.stderr)
		}
		if took < c.low || took > c.high {
			t.Errorf("%v: took %v", c.flags, took)
		}
	}
	if lives(t, r.log)["NEVER"].first != 0 {
		t.Error("a job was started beside the holder's")
	}
	r.let(holder)
	nothingLeft(t, server)
}

// TestRedisWaitersLeaveNothing: twenty give up, each in one of three ways.
func TestRedisWaitersLeaveNothing(t *testing.T) {
	t.Parallel()
	server, r := newRedisQueue(t)
	holder := r.hold()
	const many = 20
	var waiters []*run
	for i := range many {
		flags := []string{"--wait", "1h"}
		if i%3 == 0 {
			flags = []string{"--wait", "2s"}
		}
		waiters = append(waiters, r.start("$BEAT NEVER $LOG 1s", flags...))
	}
	r.until("those who have the time wait", func() bool { return r.waiting() >= many-(many+2)/3 })
	for i, c := range waiters {
		want := 75
		switch i % 3 {
		case 1:
			want = 128 + int(syscall.SIGINT)
			r.kill(c.cmd.Process.Pid, syscall.SIGINT)
		case 2:
			want = killed
			r.kill(c.cmd.Process.Pid, syscall.SIGKILL)
		}
		if code := r.wait(c); code != want {
			t.Errorf("ended with %d, not %d: %s", code, want, c.stderr)
		}
	}
	r.until("only the killed ones are in the queue", func() bool { return r.waiting() <= many/3 })
	r.let(holder)
	at := boot()
	if fresh := r.start("$BEAT FRESH $LOG 10ms", "--wait", "5s"); r.wait(fresh) != 0 {
		t.Errorf("a newcomer ended with %d: %s", fresh.code, fresh.stderr)
	}
	seen := lives(t, r.log)
	if seen["NEVER"].first != 0 {
		t.Error("the job of a waiter that gave up was started")
	}
	if gap := seen["FRESH"].first - at; gap > 2*time.Second {
		t.Errorf("the newcomer began after %v", gap)
	}
	nothingLeft(t, server)
}

// TestRedisFrozenWaiter: one that was frozen in its place finds others there.
func TestRedisFrozenWaiter(t *testing.T) {
	t.Parallel()
	server, r := newRedisQueue(t)
	r.length = "1s"
	r.first = r.start("$BEAT A1 $LOG 1s")
	r.until("the first works", func() bool { return len(lives(t, r.log)) == 1 })
	frozen := r.start("$BEAT W $LOG 300ms")
	r.until("one waits", func() bool { return r.waiting() == 1 })
	r.kill(frozen.cmd.Process.Pid, syscall.SIGSTOP)
	r.second = r.start("$BEAT B $LOG 1s")
	r.until("the second works", func() bool { return lives(t, r.log)["B"].first != 0 })
	r.kill(frozen.cmd.Process.Pid, syscall.SIGCONT)
	if code := r.wait(frozen); code != 0 {
		t.Errorf("the frozen one ended with %d: %s", code, frozen.stderr)
	}
	r.finish(boot(), 0)
	seen := lives(t, r.log)
	if w, b := seen["W"], seen["B"]; w.first <= b.last {
		t.Errorf("OVERLAP: the frozen one began %v before the second's end", b.last-w.first)
	}
	if gap := seen["B"].first - seen["A1"].last; gap > 3*time.Second {
		t.Errorf("a frozen one in front cost %v", gap)
	}
	nothingLeft(t, server)
}

// begun is how many jobs of a hand-over test have.
func (r *round) begun() (n int) {
	for label := range lives(r.t, r.log) {
		if label[0] == 'J' {
			n++
		}
	}
	return n
}

// TestRedisHandOver: a queue of eight is kept up, and served in its order,
// promptly, with or without what wakes it.
func TestRedisHandOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		most time.Duration
		kill bool // all subscriptions, before each hand-over
	}{{"push", time.Second, false}, {"subscriptions killed", 3 * time.Second, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, r := newRedisQueue(t)
			const queued = 8
			jobs := queued + 8**rounds
			holder := r.hold()
			label := func(i int) string { return fmt.Sprintf("J%04d", i) }
			var runs []*run
			for i := range jobs {
				// One joins for each that has begun, so the order is that of the labels.
				r.until("the queue moves on", func() bool { return i < queued || r.begun() > i-queued })
				runs = append(runs, r.start("exec $BEAT "+label(i)+" $LOG 150ms"))
				r.until("it waits", func() bool {
					begun := r.begun() // first: who begins meanwhile must not count twice
					return begun+int(server.Number("ZCARD", redisKey+":contender")) > i
				})
				if i == queued-1 {
					r.let(holder)
				}
				if c.kill {
					<-time.After(100 * time.Millisecond)
					server.Do("CLIENT", "KILL", "TYPE", "pubsub")
				}
			}
			for _, c := range runs {
				if code := r.wait(c); code != 0 {
					t.Errorf("ended with %d: %s", code, c.stderr)
				}
			}
			seen := lives(t, r.log)
			var gaps []time.Duration
			for i := 1; i < jobs; i++ {
				gaps = append(gaps, seen[label(i)].first-seen[label(i-1)].last)
			}
			slices.Sort(gaps)
			t.Logf("median %v, longest %v of %d", gaps[len(gaps)/2], gaps[len(gaps)-1], len(gaps))
			if gaps[0] <= 0 {
				t.Error("OVERLAP, or not in order")
			}
			if gaps[len(gaps)-1] > c.most {
				t.Error("too slow")
			}
			nothingLeft(t, server)
		})
	}
}
