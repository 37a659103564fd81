package torture

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

var fleetTime = flag.Duration("fleet", 12*time.Second, "how long fleets are watched")

// fleet is some hosts that have the same schedule, or the same line in their crontabs.
type fleet struct {
	*round
	hosts [5]*run
	said  []*run // all there ever were
}

// What a run of the fleet does: it writes down when it was started and for which tick, and works for a while.
const fleetJob = `echo "$HOST $SIMBA_TICK $SIMBA_FENCE" >>$LOG.runs; $BEAT $HOST-$$ $LOG 200ms`

// The stores of a fleet, each its own.
func fileStore(t *testing.T) string { return "file://" + filepath.Join(t.TempDir(), "mutexes") }

func redisStore(t *testing.T) string {
	return "redis://" + backendtest.StartRedis(t, backendtest.RedisOptions{}).Addr
}

func mysqlStore(t *testing.T) string {
	server := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	database, _ := server.Database(t)
	return server.URL(database)
}

func zookeeperStore(t *testing.T) string {
	return "zk://" + backendtest.StartZooKeeper(t, backendtest.ZooKeeperOptions{}).Addr
}

func TestScheduleFile(t *testing.T)      { scheduled(t, fileStore(t)) }
func TestScheduleRedis(t *testing.T)     { scheduled(t, redisStore(t)) }
func TestScheduleMySQL(t *testing.T)     { scheduled(t, mysqlStore(t)) }
func TestZooKeeperSchedule(t *testing.T) { scheduled(t, zookeeperStore(t)) }

func TestCronFile(t *testing.T)      { cronLike(t, fileStore(t)) }
func TestCronRedis(t *testing.T)     { cronLike(t, redisStore(t)) }
func TestCronMySQL(t *testing.T)     { cronLike(t, mysqlStore(t)) }
func TestZooKeeperCron(t *testing.T) { cronLike(t, zookeeperStore(t)) }

// scheduled: every tick is run by one of the hosts, none by two, and one that is killed is replaced.
func scheduled(t *testing.T, url string) {
	t.Parallel()
	const every = time.Second
	f := &fleet{round: newRound(t, append([]string{"-b", url}, leaseFlags...)...)}
	start := func(i int) {
		env := fmt.Sprintf("HOST=%d", i)
		f.hosts[i] = f.launch([]string{env}, append(append([]string{"schedule", "-v", "-m", "torture", "--every", every.String()}, f.flags...),
			"--", "sh", "-c", fleetJob)...)
		f.said = append(f.said, f.hosts[i])
		// Before that TERM ends it as it ends any program.
		f.until("it hears signals", func() bool { return strings.Contains(f.hosts[i].stderr.String(), "scheduled") })
	}
	for i := range f.hosts {
		start(i)
	}
	f.until("it runs", func() bool { return len(f.runs()) > 1 })
	pause := max(*fleetTime/6, 2*time.Second)
	for end := time.Now().Add(*fleetTime); time.Now().Before(end); {
		<-time.After(pause)
		i := rand.IntN(len(f.hosts))
		if rand.IntN(2) == 0 { // the leader, more often than not
			_, _ = fmt.Sscanf(f.runs()[len(f.runs())-1], "%d", &i)
		}
		if rand.IntN(3) == 0 {
			f.end(f.hosts[i])
		} else {
			f.kill(f.hosts[i].cmd.Process.Pid, syscall.SIGKILL)
			f.wait(f.hosts[i])
		}
		start(i)
	}
	for _, h := range f.hosts {
		f.end(h)
	}
	f.checkRuns()
	var ticks []time.Time
	for _, line := range f.runs() {
		tick, err := time.Parse(time.RFC3339, strings.Fields(line)[1])
		if err != nil {
			t.Fatal(err)
		}
		ticks = append(ticks, tick)
	}
	for i := 1; i < len(ticks); i++ {
		switch d := ticks[i].Sub(ticks[i-1]); {
		case d <= 0:
			t.Errorf("the tick %s was run after %s", ticks[i], ticks[i-1])
		case d%every != 0:
			t.Errorf("%s is no tick, after %s", ticks[i], ticks[i-1])
		case d > fullLease+every+patience/4:
			t.Errorf("nothing was run from %s to %s", ticks[i-1], ticks[i])
		}
	}
	if least := int(*fleetTime / every / 3); len(ticks) < least {
		t.Errorf("%d runs in %s", len(ticks), *fleetTime)
	}
	t.Logf("%d runs by %d processes in %s", len(ticks), len(f.said), *fleetTime)
}

// cronLike: the same line of cron on all hosts, at nearly the same time, is run by one of them.
func cronLike(t *testing.T, url string) {
	t.Parallel()
	const slot, hold = 4 * time.Second, 3 * time.Second
	f := &fleet{round: newRound(t, append([]string{"-b", url, "-n", "-q", "-E", "0", "--hold-at-least", hold.String()}, leaseFlags...)...)}
	slots := int(*fleetTime / slot)
	for n := range slots {
		begun := time.Now()
		victim := -1
		if n%2 == 1 {
			victim = rand.IntN(len(f.hosts))
		}
		for i := range f.hosts {
			env := []string{fmt.Sprintf("HOST=%d", i), fmt.Sprintf("SIMBA_TICK=%d", n)}
			f.hosts[i] = f.launch(env, append(append([]string{"run", "-m", "torture"}, f.flags...), "--", "sh", "-c", fleetJob)...)
			f.said = append(f.said, f.hosts[i])
			<-time.After(time.Duration(rand.IntN(60)) * time.Millisecond)
			if i == victim {
				_ = syscall.Kill(f.hosts[i].cmd.Process.Pid, syscall.SIGKILL) // it may have ended
			}
		}
		for i, h := range f.hosts {
			if code := f.wait(h); code != 0 && (i != victim || code != killed) {
				t.Errorf("slot %d, host %d: exit status %d: %s", n, i, code, h.stderr)
			}
		}
		got := 0
		for _, line := range f.runs() {
			if strings.Fields(line)[1] == fmt.Sprint(n) {
				got++
			}
		}
		// One that was killed between the acquisition and the start of its job has used up the slot.
		if got > 1 || got == 0 && victim < 0 {
			t.Errorf("slot %d: %d runs", n, got)
		}
		<-time.After(time.Until(begun.Add(slot)))
	}
	f.checkRuns()
}

func (f *fleet) runs() []string {
	text, err := os.ReadFile(f.log + ".runs")
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// end has a host leave in order: TERM, which lets a run finish.
func (f *fleet) end(h *run) {
	f.t.Helper()
	f.kill(h.cmd.Process.Pid, syscall.SIGTERM)
	if code := f.wait(h); code != 0 {
		f.t.Errorf("TERM: exit status %d: %s", code, h.stderr)
	}
}

// checkRuns: none was alive beside another, none is left, and the fence rises with each owner.
func (f *fleet) checkRuns() {
	f.t.Helper()
	f.until("nobody is left", func() bool { return len(marked(f.mark)) == 0 })
	type span struct {
		label string
		life
	}
	var spans []span
	for label, l := range lives(f.t, f.log) {
		spans = append(spans, span{label, l})
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(spans); i++ {
		if a, b := spans[i-1], spans[i]; a.last >= b.first {
			f.t.Errorf("OVERLAP: %s was alive %v after %s had begun", a.label, a.last-b.first, b.label)
		}
	}
	var host, tick string
	var fence, last uint64
	for _, line := range f.runs() {
		if _, err := fmt.Sscan(line, &host, &tick, &fence); err != nil {
			f.t.Fatalf("%q: %v", line, err)
		}
		if fence < last {
			f.t.Errorf("the fence %d came after %d", fence, last)
		}
		last = fence
	}
	for _, h := range f.said {
		if s := h.stderr.String(); strings.Contains(s, "panic") || strings.Contains(s, "goroutine ") {
			f.t.Errorf("a dump: %s", s)
		}
	}
}
