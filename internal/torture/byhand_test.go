package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

// byHand is a mutex that separate processes hold by a token.
type byHand struct {
	*round
	token string // file
}

// The lease of these rounds, one that fits every store.
const (
	handTTL        = 3 * time.Second
	handTransition = 2 * time.Second
)

func newByHand(t *testing.T, url string) *byHand {
	h := &byHand{round: newRound(t, "-b", url)}
	h.token = filepath.Join(h.dir, "token")
	// The runs beside it know their own deadlines.
	h.flags = append(h.flags, "--ttl", handTTL.String(), "--transition", handTransition.String(), "--kill-after", "500ms")
	return h
}

// simba runs a command of simba's to its end.
func (h *byHand) simba(args ...string) (code int, stdout, stderr string) {
	h.t.Helper()
	return h.command(binary, append(args, h.backend()...)...)
}

func (h *byHand) command(name string, args ...string) (code int, stdout, stderr string) {
	h.t.Helper()
	c := exec.Command(name, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), h.mark, "SIMBA="+binary, "SIMBA_BACKEND="+h.backend()[1], "SIMBA_TOKEN_FILE="+h.token, "LOG="+h.log)
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("%s %v: %v", name, args, err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// must runs a command whose exit status has to be this one.
func (h *byHand) must(want int, args ...string) (stdout, stderr string) {
	h.t.Helper()
	code, stdout, stderr := h.simba(args...)
	if code != want {
		h.t.Fatalf("simba %v ended with %d, not %d: %s%s", args, code, want, stdout, stderr)
	}
	return stdout, stderr
}

func (h *byHand) acquire(flags ...string) {
	h.t.Helper()
	h.must(0, append([]string{"acquire", "-m", "torture", "--token-file", h.token,
		"--ttl", handTTL.String(), "--transition", handTransition.String()}, flags...)...)
}

func (h *byHand) check() int {
	h.t.Helper()
	code, _, _ := h.simba("check", "--token-file", h.token)
	return code
}

// lastYes asks until check says no, and returns when the last question that was answered
// with yes was sent.
func (h *byHand) lastYes() (at time.Duration) {
	h.t.Helper()
	for {
		asked := boot()
		switch code := h.check(); code {
		case 0:
			at = asked
		case lost:
			return at
		default:
			h.t.Fatalf("check ended with %d", code)
		}
	}
}

func (h *byHand) queue() *run {
	h.t.Helper()
	c := h.start("$BEAT B $LOG 300ms")
	h.until("the second waits", func() bool { return h.waiting() == 1 })
	return c
}

func (h *byHand) over(c *run) life {
	h.t.Helper()
	if code := h.wait(c); code != 0 {
		h.t.Errorf("the second ended with %d: %s", code, h.said(c))
	}
	return lives(h.t, h.log)["B"]
}

// keeper is the process that keeps the lease, by the name of its owner.
func (h *byHand) keeper() (pid int) {
	h.t.Helper()
	out, _ := h.must(0, "check", "--token-file", h.token, "-o", "json")
	var line struct{ Owner string }
	if err := json.Unmarshal([]byte(out), &line); err != nil {
		h.t.Fatal(err)
	}
	if _, err := fmt.Sscanf(line.Owner[strings.Index(line.Owner, ":")+1:], "%d@", &pid); err != nil {
		h.t.Fatal(err)
	}
	return pid
}

func (h *byHand) gone(pid int) {
	h.t.Helper()
	h.until("the keeper has ended", func() bool { return !slices.Contains(marked(h.mark), pid) })
}

// handsOn is done on every store; each round has one of its own.
func handsOn(t *testing.T, store func(t *testing.T) (url string)) {
	t.Parallel()
	for name, do := range map[string]func(h *byHand){
		"steps": steps, "expiry": expiry, "pipeline": pipeline, "watched": watchedProcess,
		"frozen": frozen, "keeper killed": keeperKilled, "out of reach": outOfReach, "revoked": revoked,
		"nobody reads": nobodyReads, "documented": documented,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T) { do(newByHand(t, store(t))) })
		})
	}
}

func TestByHandFile(t *testing.T) {
	handsOn(t, func(t *testing.T) string { return "file://" + filepath.Join(t.TempDir(), "mutexes") })
}

func TestByHandRedis(t *testing.T) {
	handsOn(t, func(t *testing.T) string {
		return "redis://" + backendtest.StartRedis(t, backendtest.RedisOptions{}).Addr
	})
}

func TestByHandMySQL(t *testing.T) {
	server := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	handsOn(t, func(t *testing.T) string {
		database, _ := server.Database(t)
		return server.URL(database)
	})
}

func TestZooKeeperByHand(t *testing.T) {
	server := backendtest.StartZooKeeper(t, backendtest.ZooKeeperOptions{})
	handsOn(t, func(*testing.T) string { return fmt.Sprintf("zk://%s/round%d", server.Addr, zkChroots.Add(1)) })
}

// steps: separate processes acquire, are told the lease as asked, renew and release.
func steps(h *byHand) {
	h.acquire()
	out, _ := h.must(0, "check", "--token-file", h.token, "-o", "json")
	var line struct {
		TTL        int64 `json:"ttl_ms"`
		Transition int64 `json:"transition_ms"`
		Fence      int64
	}
	if err := json.Unmarshal([]byte(out), &line); err != nil {
		h.t.Fatal(err)
	}
	if line.TTL > handTTL.Milliseconds() || line.TTL < 1000 || line.Transition < 1900 || line.Fence == 0 {
		h.t.Errorf("a lease of 3s + 2s is told as %s", out)
	}
	h.must(75, "run", "-n", "-m", "torture", "--", "true")
	c := h.queue()
	for range 4 {
		<-time.After(handTTL / 2)
		h.must(0, "renew", "--token-file", h.token)
	}
	if len(lives(h.t, h.log)) > 0 {
		h.t.Error("the second began under a lease that was renewed")
	}
	h.must(0, "release", "--token-file", h.token)
	at := boot()
	if gap := h.over(c).first - at; gap > 2*time.Second {
		h.t.Errorf("the second began %v after the release", gap)
	} else {
		h.t.Logf("hand-over by release: %v", gap)
	}
	for _, step := range []string{"check", "renew", "release"} {
		h.must(lost, step, "--token-file", h.token)
	}
}

// expiry: without a renewal check says no before anybody else owns the mutex.
func expiry(h *byHand) {
	h.acquire()
	at := boot()
	c := h.queue()
	last := h.lastYes()
	h.must(lost, "check", "--token-file", h.token)
	second := h.over(c)
	h.t.Logf("last yes %v after acquire, next owner %v after that", last-at, second.first-last)
	if second.first-last < handTransition-500*time.Millisecond {
		h.t.Errorf("the second began %v after the last yes", second.first-last)
	}
	if second.first-at > handTTL+handTransition+2500*time.Millisecond {
		h.t.Errorf("the second began %v after acquire", second.first-at)
	}
}

// pipeline: a script of separate processes loses the mutex, and notices before it commits.
func pipeline(h *byHand) {
	script := `"$SIMBA" acquire -m torture --watch-pid $$ --ttl 3s --transition 2s || exit
		"$SIMBA" release --force torture || exit
		echo build >>"$LOG.steps"
		"$SIMBA" check || exit
		echo commit >>"$LOG.steps"`
	code, _, said := h.command("sh", "-c", script)
	done, err := os.ReadFile(h.log + ".steps")
	if code != lost || err != nil || string(done) != "build\n" || !strings.Contains(said, "it was revoked") {
		h.t.Errorf("the pipeline ended with %d, having done %q: %s", code, done, said)
	}
}

// watchedProcess: the lease goes on as long as a process lives, and no longer.
func watchedProcess(h *byHand) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.acquire("--watch-pid", fmt.Sprint(sleep.Process.Pid))
	keeper := h.keeper()
	c := h.queue()
	for end := time.Now().Add(handTTL + handTransition + time.Second); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if code := h.check(); code != 0 {
			h.t.Fatalf("check ended with %d while the process lived", code)
		}
	}
	_ = sleep.Process.Kill()
	_ = sleep.Wait()
	at := boot()
	if gap := h.over(c).first - at; gap > 2*time.Second {
		h.t.Errorf("the second began %v after the end of the process", gap)
	} else {
		h.t.Logf("hand-over at the end of the process: %v", gap)
	}
	h.gone(keeper)
	h.must(lost, "check", "--token-file", h.token)
}

// frozen: a keeper that is stopped past its lease finds out when it goes on; the next owner
// is not disturbed. On files it keeps the mutex for as long as it takes.
func frozen(h *byHand) {
	h.acquire("--watch-pid", fmt.Sprint(os.Getpid()))
	keeper := h.keeper()
	c := h.queue()
	h.kill(keeper, syscall.SIGSTOP)
	files := strings.HasPrefix(h.backend()[1], "file:")
	<-time.After(handTTL + handTransition)
	if files {
		h.must(69, "check", "--token-file", h.token)
		if len(lives(h.t, h.log)) > 0 {
			h.t.Error("the second began beside a keeper that holds the lock")
		}
	} else {
		h.over(c)
		h.must(lost, "check", "--token-file", h.token)
		c = h.start("$BEAT C $LOG 1s")
		h.until("the third works", func() bool { return lives(h.t, h.log)["C"].first > 0 })
	}
	h.kill(keeper, syscall.SIGCONT)
	if files {
		h.until("check says yes again", func() bool { return h.check() == 0 })
		h.must(0, "release", "--token-file", h.token)
	}
	if code := h.wait(c); code != 0 {
		h.t.Errorf("the next owner ended with %d: %s", code, h.said(c))
	}
	h.gone(keeper)
	h.must(lost, "check", "--token-file", h.token)
}

// keeperKilled: what a dead keeper leaves ends with the lease, and check says so before.
func keeperKilled(h *byHand) {
	h.acquire("--watch-pid", fmt.Sprint(os.Getpid()))
	keeper := h.keeper()
	c := h.queue()
	h.kill(keeper, syscall.SIGKILL)
	at := boot()
	last := h.lastYes()
	second := h.over(c)
	h.t.Logf("after the death: last yes %v, next owner %v", max(last-at, 0), second.first-at)
	if !strings.HasPrefix(h.backend()[1], "file:") && last > at && second.first-last < handTransition-500*time.Millisecond {
		h.t.Errorf("the second began %v after the last yes", second.first-last)
	}
	if second.first-at > handTTL+handTransition+2500*time.Millisecond {
		h.t.Errorf("the second began %v after the keeper's death", second.first-at)
	}
}

// TestByHandOutOfReach: a backend that does not answer has not said no, and not yes.
func TestByHandOutOfReach(t *testing.T) {
	t.Parallel()
	relay := backendtest.StartRelay(t, backendtest.StartRedis(t, backendtest.RedisOptions{}).Addr)
	h := newByHand(t, "redis://"+relay.Addr)
	h.acquire("--ttl", "1m")
	for _, fault := range []backendtest.RelayMode{backendtest.Blackhole, backendtest.Refuse} {
		relay.Set(fault)
		for _, step := range []string{"check", "renew", "release"} {
			at := boot()
			stdout, stderr := h.must(69, step, "--token-file", h.token, "--connect-timeout", "500ms")
			if took := boot() - at; took > 2*time.Second || stdout != "" || !strings.HasPrefix(stderr, "simba: torture: ") {
				t.Errorf("%s took %v and said %s%s", step, took, stdout, stderr)
			}
		}
	}
	relay.Set(backendtest.Pass)
	h.must(0, "check", "--token-file", h.token)
	h.must(0, "release", "--token-file", h.token)
	h.must(lost, "check", "--token-file", h.token)
}
