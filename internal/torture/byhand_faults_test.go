package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

func (h *byHand) inStore() bool {
	return !strings.HasPrefix(h.backend()[1], "file:") && !strings.HasPrefix(h.backend()[1], "zk:")
}

// outOfReach: a keeper that cannot be asked. A store in which the lease lives says how it
// stands; others can only say no. A release does not wait long for the keeper in any case.
func outOfReach(h *byHand) {
	h.acquire("--watch-pid", fmt.Sprint(os.Getpid()), "--ttl", "8s", "--transition", "4s")
	keeper := h.keeper()
	h.kill(keeper, syscall.SIGSTOP)
	want := 69
	if h.inStore() {
		want = 0
	}
	_, said := h.must(want, "check", "--token-file", h.token)
	if want == 69 && !strings.Contains(said, "it is not known whether the lease is still held") {
		h.t.Errorf("check said %s", said)
	}
	h.must(want, "check", "--token-file", h.token, "--for", "10ms")
	at := boot()
	h.must(want, "release", "--token-file", h.token)
	if took := boot() - at; took > 4*time.Second {
		h.t.Errorf("release took %v beside a frozen keeper", took)
	} else {
		h.t.Logf("release beside a frozen keeper: %v", took)
	}
	// What is told by way of the backend is a no at once.
	h.must(lost, "check", "--token-file", h.token)
	h.kill(keeper, syscall.SIGCONT)
	h.gone(keeper)
	h.must(0, "run", "-n", "-m", "torture", "--", "true")
}

// revoked: the end of a lease that was revoked cannot be put off.
func revoked(h *byHand) {
	h.acquire()
	c := h.queue()
	h.must(0, "renew", "--token-file", h.token)
	h.must(0, "release", "--force", "torture")
	at := boot()
	for len(lives(h.t, h.log)) == 0 && boot()-at < 2*(handTTL+handTransition) {
		h.must(lost, "renew", "--token-file", h.token)
		h.must(lost, "check", "--token-file", h.token)
	}
	second := h.over(c)
	h.t.Logf("next owner %v after the revocation", second.first-at)
	if second.first-at > handTTL+handTransition+2500*time.Millisecond {
		h.t.Errorf("the second began %v after the revocation", second.first-at)
	}
}

// documented: the example in the document works as it is printed.
func documented(h *byHand) {
	text, err := os.ReadFile("../../docs/by-hand.md")
	if err != nil {
		h.t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(text), "```sh\n")
	script, _, _ = strings.Cut(script, "```")
	code, out, said := h.command("sh", "-ec", `PATH=${SIMBA%/*}:$PATH; `+script)
	if code != 0 || !strings.Contains(out, "deploying, with token ") {
		h.t.Errorf("it ended with %d: %s%s", code, out, said)
	}
}

// nobodyReads: acquire writes to a pipe that is full.
func nobodyReads(h *byHand) {
	fifo := filepath.Join(h.dir, "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		h.t.Fatal(err)
	}
	script := `exec 3<>"$1"; dd if=/dev/zero bs=4096 count=100 oflag=nonblock >&3 2>/dev/null
		unset SIMBA_TOKEN_FILE
		"$SIMBA" acquire -m torture --ttl 3s --transition 2s >"$1" 3>&- &
		[ $2 = no ] || { until "$SIMBA" status -q torture; do sleep 0.05; done; kill -TERM $!; }
		wait $!`
	for end, want := range map[string]int{"TERM": 143, "no": 70} {
		code, _, said := h.command("sh", "-c", script, "sh", fifo, end)
		if code != want {
			h.t.Errorf("acquire ended with %d, not %d: %s", code, want, said)
		}
		h.must(0, "run", "-w", "1s", "-m", "torture", "--", "true")
		// What was written says nothing of it.
		if err := os.Remove(fifo); err != nil {
			h.t.Fatal(err)
		}
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

// TestZooKeeperByHandRenewal: a renewal is one that the store has confirmed. The whole of
// a ttl is kept that is longer than a session of the server's may be.
func TestZooKeeperByHandRenewal(t *testing.T) {
	t.Parallel()
	const session = 12 * time.Second // as the server grants it
	server := backendtest.StartZooKeeper(t, backendtest.ZooKeeperOptions{MaxSession: session})
	h := newByHand(t, fmt.Sprintf("zk://%s/round%d", server.Addr, zkChroots.Add(1)))
	h.acquire("--ttl", "30s", "--transition", "15s")
	at := boot()
	h.must(0, "renew", "--token-file", h.token)
	t.Logf("a renewal took %v", boot()-at)
	server.Stop()
	at = boot()
	_, said := h.must(69, "renew", "--token-file", h.token, "--connect-timeout", "3s")
	if took := boot() - at; took > 20*time.Second || !strings.Contains(said, "it is not known whether the lease is renewed") {
		t.Errorf("renew took %v and said %s", took, said)
	} else {
		t.Logf("with the server frozen renew took %v", took)
	}
	server.Cont()
	h.until("renew says yes again", func() bool {
		code, _, _ := h.simba("renew", "--token-file", h.token)
		return code == 0
	})
	// More than a session after the renewal it is still held.
	for end := time.Now().Add(session + 3*time.Second); time.Now().Before(end); <-time.After(time.Second) {
		out, _ := h.must(0, "check", "--token-file", h.token, "-o", "json")
		var line struct {
			TTL int64 `json:"ttl_ms"`
		}
		if err := json.Unmarshal([]byte(out), &line); err != nil || line.TTL > 30_000 || line.TTL < 1 {
			t.Fatalf("%s: %v", out, err)
		}
	}
	h.must(0, "release", "--token-file", h.token)
}

// TestByHandHomeless: who has no directory for a socket holds a lease in a store without one,
// and everybody asks the store.
func TestByHandHomeless(t *testing.T) {
	t.Parallel()
	h := newByHand(t, "redis://"+backendtest.StartRedis(t, backendtest.RedisOptions{}).Addr)
	script := `unset SIMBA_TOKEN_FILE XDG_RUNTIME_DIR; exec "$@"`
	if os.Geteuid() == 0 { // others have a home, in which this works, too
		script = `unset SIMBA_TOKEN_FILE XDG_RUNTIME_DIR; exec setpriv --reuid 64999 --regid 64999 --clear-groups "$@"`
	}
	dir, err := os.MkdirTemp("", "simba-torture")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	everybodys := filepath.Join(dir, "simba")
	program, err := os.ReadFile(binary)
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(everybodys, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	step := func(want int, args ...string) string {
		t.Helper()
		code, out, said := h.command("sh", append([]string{"-c", script, "sh", everybodys}, args...)...)
		if code != want {
			t.Fatalf("%v ended with %d, not %d: %s", args, code, want, said)
		}
		return strings.TrimSpace(out)
	}
	token := step(0, "acquire", "-m", "torture", "--watch-pid", fmt.Sprint(os.Getpid()), "--ttl", "1s", "--transition", "1s")
	<-time.After(3 * time.Second)
	step(0, "check", token)
	step(0, "renew", token)
	step(0, "release", token)
	step(0, "run", "-n", "-m", "torture", "--", "true")
	step(lost, "check", token)
	h.until("the keeper has ended", func() bool { return len(marked(h.mark)) == 0 })
}
