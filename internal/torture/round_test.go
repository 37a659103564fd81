package torture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is for what takes milliseconds on an idle machine.
const patience = 60 * time.Second

// round is one mutex, a first job of three workers (one in a session of its
// own), and a second contender that waits for it.
type round struct {
	t      *testing.T
	dir    string
	log    string
	mark   string   // in the environment of all that belongs to the round
	flags  []string // of every run
	deaf   bool     // the first job ignores what asks it to end
	shut   bool     // simba's stderr is closed
	length string   // of the first job
	// firstFlags are further ones of the first run.
	firstFlags []string

	first, second *run
}

// run is one simba.
type run struct {
	cmd    *exec.Cmd
	stderr *lockedBuffer
	done   chan struct{}
	code   int // 128+n if signal n killed it
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newRound(t *testing.T, flags ...string) *round {
	dir := t.TempDir()
	r := &round{t: t, dir: dir, log: filepath.Join(dir, "log"), flags: flags, length: "3s"}
	r.mark = fmt.Sprintf("TORTURE_ROUND=%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(r.cleanUp)
	return r
}

// start runs simba with a job that is a shell script. $BEAT is the worker.
func (r *round) start(script string, flags ...string) *run {
	r.t.Helper()
	args := append([]string{"run", "-m", "torture"}, r.flags...)
	args = append(args, flags...)
	return r.launch(nil, append(args, "--", "sh", "-c", script)...)
}

// launch starts any command of simba's.
func (r *round) launch(env []string, args ...string) *run {
	r.t.Helper()
	c := &run{cmd: exec.Command(binary, args...), stderr: &lockedBuffer{}, done: make(chan struct{})}
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	// A worker built for the race detector would sleep for a second before it ends.
	c.cmd.Env = append(os.Environ(), r.mark, "GORACE=atexit_sleep_ms=0", "BEAT="+self+" beat", "LOG="+r.log)
	c.cmd.Env = append(c.cmd.Env, env...)
	if !r.shut {
		c.cmd.Stderr = c.stderr
	}
	c.cmd.WaitDelay = patience // a stray holder of the pipe is found by its mark
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		err := c.cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
			c.code = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
			return
		}
		c.code = c.cmd.ProcessState.ExitCode()
	}()
	return c
}

// begin starts the first job and a second contender, and returns when the one
// works and the other waits.
func (r *round) begin() {
	r.t.Helper()
	worker := "$BEAT A%d $LOG " + r.length
	if r.deaf {
		worker += " deaf"
	}
	script := fmt.Sprintf(worker+" & "+worker+" & setsid "+worker+" & wait", 1, 2, 3)
	if r.deaf {
		script = "trap '' TERM INT HUP; " + script
	}
	r.first = r.start(script, r.firstFlags...)
	r.until("the first job works", func() bool { return len(lives(r.t, r.log)) == 3 })
	r.second = r.start("$BEAT B $LOG 300ms")
	r.until("the second waits", func() bool { return r.waiting() == 1 })
}

// waiting is the length of the queue, by simba status.
func (r *round) waiting() int {
	args := append([]string{"status", "torture", "-o", "json"}, r.backend()...)
	out, err := exec.Command(binary, args...).Output()
	if err != nil {
		return -1
	}
	return strings.Count(string(out), `"since"`) // one in each waiter
}

func (r *round) backend() []string {
	for i, f := range r.flags {
		if f == "-b" {
			return r.flags[i : i+2]
		}
	}
	return nil
}

func (r *round) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			r.t.Fatalf("it never came to it that %s\nfirst: %s\nsecond: %s", what, r.said(r.first), r.said(r.second))
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (r *round) said(c *run) string {
	if c == nil {
		return "not started"
	}
	return c.stderr.String()
}

func (r *round) wait(c *run) int {
	r.t.Helper()
	select {
	case <-c.done:
	case <-time.After(2 * patience):
		r.t.Fatalf("a run never ended\nfirst: %s\nsecond: %s", r.said(r.first), r.said(r.second))
	}
	return c.code
}

// finish waits for both and checks what must hold in every round. It returns
// the time from at to the start of the second job.
func (r *round) finish(at time.Duration, firstCode ...int) time.Duration {
	r.t.Helper()
	code := r.wait(r.first)
	if second := r.wait(r.second); second != 0 {
		r.t.Errorf("the second ended with %d: %s", second, r.said(r.second))
	}
	ok := false
	for _, c := range firstCode {
		ok = ok || c == code
	}
	if !ok {
		r.t.Errorf("the first ended with %d, not one of %v: %s", code, firstCode, r.said(r.first))
	}
	seen := lives(r.t, r.log)
	second := seen["B"]
	if second.first == 0 {
		r.t.Fatalf("the second job never worked: %s", r.said(r.second))
	}
	for label, l := range seen {
		if label[0] == 'A' && l.last >= second.first {
			r.t.Errorf("OVERLAP: %s was alive %v after the second job began\nfirst: %s\nsecond: %s",
				label, l.last-second.first, r.said(r.first), r.said(r.second))
		}
	}
	for _, c := range []*run{r.first, r.second} {
		if s := r.said(c); strings.Contains(s, "panic") || strings.Contains(s, "goroutine ") {
			r.t.Errorf("a dump: %s", s)
		}
	}
	r.until("nobody is left", func() bool { return len(marked(r.mark)) == 0 })
	if c := r.start("true", "--wait", "0"); r.wait(c) != 0 {
		r.t.Errorf("the mutex is not free afterwards: %d %s", c.code, c.stderr)
	}
	return second.first - at
}

// cleanUp ends what a failed round left.
func (r *round) cleanUp() {
	for _, pid := range marked(r.mark) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// marked are the live processes with the mark in their environment.
func marked(mark string) []int {
	var out []int
	for _, pid := range processes() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00")) {
			out = append(out, pid)
		}
	}
	return out
}

func processes() []int {
	entries, _ := os.ReadDir("/proc")
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// guardOf is the guard process of a run.
func (r *round) guardOf(c *run) int {
	r.t.Helper()
	guard := 0
	r.until("the guard is there", func() bool {
		for _, pid := range children(c.cmd.Process.Pid) {
			if strings.HasPrefix(comm(pid), "guard-") {
				guard = pid
			}
		}
		return guard != 0
	})
	return guard
}

func comm(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

func children(parent int) []int {
	var out []int
	for _, pid := range processes() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			out = append(out, pid)
		}
	}
	return out
}

func (r *round) kill(pid int, sig syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		r.t.Fatalf("kill -%d %d: %v", sig, pid, err)
	}
}
