package guard

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/internal/guard/early"
)

// patient is how long a test waits for what must happen: long enough for a machine that is busy with other
// things.
const patient = 30 * time.Second

// until polls for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

var marks atomic.Int64

// newMark is an environment entry that only this test's processes carry.
func newMark() string {
	return fmt.Sprintf("%s=%d.%d", markVariable, os.Getpid(), marks.Add(1))
}

// marked lists living processes that carry a mark, but for guards and those excepted.
func marked(mark string, except ...int) (pids []int) {
	for _, pid := range numbered("/proc") {
		env, err := readProc(pid, "environ")
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00")) {
			continue
		}
		args, _ := readProc(pid, "cmdline")
		if bytes.HasPrefix(args, []byte(early.GuardName+"\x00")) {
			continue
		}
		if s, ok := readStat(pid); ok && s.state != 'Z' && !contains(except, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func contains(pids []int, pid int) bool {
	for _, p := range pids {
		if p == pid {
			return true
		}
	}
	return false
}

// A wrap is a running wrapper.
type wrap struct {
	t      *testing.T
	cmd    *exec.Cmd
	pid    int
	mark   string
	tag    string
	log    string
	out    safeBuffer
	err    safeBuffer
	screen safeBuffer
	ended  chan error
}

// safeBuffer is output that is read while it grows.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) Len() int { return len(s.String()) }

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// prepare makes a wrapper command; settings are NAME=value for WRAP_NAME.
func prepare(t *testing.T, settings []string, argv ...string) *wrap {
	t.Helper()
	dir := t.TempDir()
	w := &wrap{t: t, mark: newMark(), log: filepath.Join(dir, "log"), ended: make(chan error, 1)}
	w.tag = "t" + strings.NewReplacer("=", "-", ".", "-").Replace(w.mark)
	w.cmd = exec.Command("/proc/self/exe", argv...)
	w.cmd.Args[0] = "wrapper"
	w.cmd.Env = append(os.Environ(), modeVariable+"=wrapper", w.mark, "GORACE=atexit_sleep_ms=0", "WRAP_LOG="+w.log, "WRAP_TAG="+w.tag)
	hasKillAfter := false
	for _, s := range settings {
		w.cmd.Env = append(w.cmd.Env, "WRAP_"+s)
		hasKillAfter = hasKillAfter || strings.HasPrefix(s, "KILLAFTER=")
	}
	if !hasKillAfter {
		w.cmd.Env = append(w.cmd.Env, "WRAP_KILLAFTER=100")
	}
	w.cmd.Stdout = &w.out
	w.cmd.Stderr = &w.err
	// What a job left behind must not keep Wait from returning.
	w.cmd.WaitDelay = time.Second
	return w
}

func (w *wrap) start() *wrap {
	w.t.Helper()
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.pid = w.cmd.Process.Pid
	go func() { w.ended <- w.cmd.Wait() }()
	w.t.Cleanup(w.sweep)
	return w
}

func launch(t *testing.T, settings []string, argv ...string) *wrap {
	t.Helper()
	return prepare(t, settings, argv...).start()
}

// sweep ends what a failed test left.
func (w *wrap) sweep() {
	for _, pid := range append(marked(w.mark), w.guards()...) {
		if w.t.Failed() {
			w.t.Logf("left: %d %s", pid, processName(pid))
		}
		unix.Kill(pid, unix.SIGKILL)
	}
	if w.t.Failed() {
		w.t.Logf("log:\n%s\nstderr:\n%s\nscreen:\n%s", w.lines(), w.err.String(), w.screen.String())
	}
}

// guards lists the guards of this wrapper, by their tag.
func (w *wrap) guards() (pids []int) {
	for _, pid := range numbered("/proc") {
		args, err := readProc(pid, "cmdline")
		s, _ := readStat(pid)
		tag, is := bytes.CutPrefix(args, []byte(early.GuardName+"\x00"))
		// It has its tag only with its order.
		if err == nil && is && (s.ppid == w.pid || bytes.HasPrefix(tag, []byte(w.tag+"\x00"))) {
			if s, ok := readStat(pid); ok && s.state != 'Z' {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func (w *wrap) lines() string {
	b, _ := os.ReadFile(w.log)
	return string(b)
}

// entry is a line of the log: when, and the words.
func (w *wrap) entry(word string) (at time.Duration, words []string, ok bool) {
	for line := range strings.Lines(w.lines()) {
		f := strings.Fields(line)
		if len(f) > 1 && f[1] == word {
			us, _ := strconv.Atoi(f[0])
			return time.Duration(us) * time.Microsecond, f[1:], true
		}
	}
	return 0, nil, false
}

func (w *wrap) await(word string) (time.Duration, []string) {
	w.t.Helper()
	var at time.Duration
	var words []string
	until(w.t, "log line "+word, func() (ok bool) {
		at, words, ok = w.entry(word)
		return ok
	})
	return at, words
}

// started waits for the job and returns its pid and deadlines.
func (w *wrap) started() (pid int, d Deadlines) {
	w.t.Helper()
	_, words := w.await("started")
	us := func(s string) time.Duration { n, _ := strconv.Atoi(s); return time.Duration(n) * time.Microsecond }
	pid, _ = strconv.Atoi(words[1])
	return pid, Deadlines{us(words[5]), us(words[7])}
}

// guard is the pid of the guard process.
func (w *wrap) guard() (pid int) {
	w.t.Helper()
	until(w.t, "a guard", func() bool {
		all := w.guards()
		if len(all) == 1 {
			pid = all[0]
		}
		return len(all) == 1
	})
	return pid
}

// gone waits until nothing of the job lives and returns when that was.
func (w *wrap) gone() time.Duration {
	w.t.Helper()
	until(w.t, "the end of the job", func() bool { return len(marked(w.mark, w.pid)) == 0 })
	return Now()
}

// wait waits for the wrapper's end.
func (w *wrap) wait() syscall.WaitStatus {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(patient):
		w.t.Fatal("the wrapper does not end")
	}
	return w.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// allGone checks that neither a job nor a guard is left.
func (w *wrap) allGone() {
	w.t.Helper()
	w.gone()
	until(w.t, "the end of the guard", func() bool { return len(w.guards()) == 0 })
}

// stubborn is a job with everything that makes a tree hard to end: TERM ignored, daemons in sessions of
// their own, orphans, a stopped process. It makes the file when all of it runs.
func stubborn(t *testing.T) (script, ready string) {
	ready = filepath.Join(t.TempDir(), "ready")
	return `trap '' TERM INT HUP
setsid sh -c 'trap "" TERM; sleep 1000 & sleep 1001' &
(setsid sh -c 'sleep 1002 & exec sleep 1003' &)
sleep 1004 & kill -STOP $!
echo > ` + ready + `
while :; do sleep 0.01; done`, ready
}

// storm forks some hundred processes a second, each ending soon.
const storm = `trap '' TERM; (while :; do (sleep 0.02 &) ; done) & while :; do sleep 0.02 & sleep 0.01; done`

// hopper is a process that forks another and ends, at the highest rate: whoever looks for it finds it gone.
const hopper = `trap '' TERM; h() { h & }; for i in 1 2; do h; done; while :; do sleep 0.01; done`

func exists(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

func signalAll(sig unix.Signal, pids ...int) {
	for _, pid := range pids {
		unix.Kill(pid, sig)
	}
}

// busy loads the machine with loops until the test ends.
func busy(t *testing.T, loops int) {
	for range loops {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
}
