package torture

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

// standby is a command that works while it leads: then it has a worker, which it
// ends when it is told to. Everything in it is deaf to the stop signal of others.
const standby = `
trap 'test -n "$W" || { $BEAT LABEL $LOG 600s deaf & W=$!; }' USR1
trap 'kill -KILL $W; wait $W; W=' USR2
trap 'test -z "$W" || kill -KILL $W; exit 3' TERM
while :; do sleep 0.02; done`

// stretches are the labels of the log in the order in which they came to work.
func (r *round) stretches() string {
	b, err := os.ReadFile(r.log)
	if err != nil {
		return ""
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		label, _, _ := strings.Cut(line, " ")
		if n := len(all); n == 0 || all[n-1] != label {
			all = append(all, label)
		}
	}
	return strings.Join(all, " ")
}

// standbys starts two of them, each with a relay of its own; A leads and B waits.
func standbys(t *testing.T) (r *redisRound, other *backendtest.Relay) {
	t.Helper()
	r = newRedisRound(t, backendtest.RedisOptions{})
	other = backendtest.StartRelay(t, r.server.Addr)
	signals := []string{"--won-signal", "USR1", "--lost-signal", "USR2"}
	r.first = r.start(strings.Replace(standby, "LABEL", "A", 1), append(signals, r.firstFlags...)...)
	r.until("A leads", func() bool { return r.stretches() == "A" })
	r.second = r.start(strings.Replace(standby, "LABEL", "B", 1), append(signals, "-b", "redis://"+other.Addr)...)
	r.until("B stands by", func() bool { return r.waiting() == 1 })
	return r, other
}

// over ends both and looks that nothing is left.
func (r *redisRound) over(want string, firstCode, secondCode int) {
	r.t.Helper()
	if got := r.stretches(); got != want {
		r.t.Errorf("they led as %q, want %q\nfirst: %s\nsecond: %s", got, want, r.said(r.first), r.said(r.second))
	}
	for c, code := range map[*run]int{r.first: firstCode, r.second: secondCode} {
		if !ended(c) {
			r.kill(c.cmd.Process.Pid, syscall.SIGTERM)
		}
		if got := r.wait(c); got != code {
			r.t.Errorf("exit status %d, want %d: %s", got, code, r.said(c))
		}
	}
	r.until("nobody is left", func() bool { return len(marked(r.mark)) == 0 })
	r.until("the mutex is free", func() bool { return r.server.Number("EXISTS", redisKey) == 0 })
}

// TestStandbyCutOff: a leader whose network is cut has been told before the other
// one is, again and again.
func TestStandbyCutOff(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T) {
		r, other := standbys(t)
		want := "A"
		for _, cut := range []struct {
			relay *backendtest.Relay
			next  string
		}{{r.relay, "B"}, {other, "A"}, {r.relay, "B"}, {other, "A"}} {
			cut.relay.Set(backendtest.Blackhole)
			want += " " + cut.next
			r.until(cut.next+" leads", func() bool { return r.stretches() == want })
			cut.relay.Set(backendtest.Pass)
			r.until("the other stands by again", func() bool { return r.waiting() == 1 })
		}
		r.over(want, 3, 3)
	})
}

// TestStandbyFailures: whatever becomes of the leader's simba, its command does not
// lead beside the other.
func TestStandbyFailures(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name string
		code int // of the first
		do   func(simba, guard int)
	}{
		{"simba stopped", lost, func(simba, _ int) { stop(simba) }},
		{"both stopped", lost, func(simba, guard int) { stop(simba, guard) }},
		{"simba killed", killed, func(simba, _ int) { _ = syscall.Kill(simba, syscall.SIGKILL) }},
		{"guard killed", 70, func(_, guard int) { _ = syscall.Kill(guard, syscall.SIGKILL) }},
		{"simba stopped, guard killed", 70, func(simba, guard int) {
			stop(simba)
			_ = syscall.Kill(guard, syscall.SIGKILL)
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T) {
				r, _ := standbys(t)
				simba := r.first.cmd.Process.Pid
				f.do(simba, r.guardOf(r.first))
				r.until("B leads", func() bool { return r.stretches() == "A B" })
				if f.code != killed {
					_ = syscall.Kill(simba, syscall.SIGCONT)
				}
				r.wait(r.first)
				r.over("A B", f.code, 3)
			})
		})
	}
}

func stop(pids ...int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
}

// TestRecontend: a store that stays away for longer than a first contact may take
// does not end a daemon that was its leader; a signal does, at once.
func TestRecontend(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T) {
		server := backendtest.StartRedis(t, backendtest.RedisOptions{})
		r := newRound(t, append(leaseFlags, "-b", "redis://"+server.Addr)...)
		r.first = r.start("$BEAT A $LOG 600s", "--recontend", "--connect-timeout", "1s")
		for outage := 1; outage <= 3; outage++ {
			began := boot()
			r.until("it works", func() bool { return lives(t, r.log)["A"].last > began })
			server.Kill()
			r.until("it is lost", func() bool {
				return strings.Count(r.said(r.first), "contending for it again") == outage
			})
			<-time.After(5 * time.Second)
			if ended(r.first) {
				t.Fatalf("it ended with %d: %s", r.first.code, r.said(r.first))
			}
			if outage < 3 {
				server.Restart()
			}
		}
		said := r.said(r.first)
		if n := strings.Count(said, "does not answer, trying again"); n != 3 {
			t.Errorf("three outages were told %d times: %s", n, said)
		}
		at := boot()
		r.kill(r.first.cmd.Process.Pid, syscall.SIGTERM)
		if code := r.wait(r.first); code != 143 {
			t.Errorf("exit status %d: %s", code, r.said(r.first))
		}
		if took := boot() - at; took > time.Second+500*time.Millisecond {
			t.Errorf("a signal ended it after %v", took)
		}
		r.until("nobody is left", func() bool { return len(marked(r.mark)) == 0 })
	})
}
