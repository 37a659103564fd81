//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// patience is how long a condition may take to come true on a busy machine.
const patience = 20 * time.Second

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"status":    cmdStatus,
	"start":     cmdStart,
	"signal":    cmdSignal,
	"join":      cmdJoin,
	"running":   cmdRunning,
	"waitfile":  cmdWaitFile,
	"lines":     cmdLines,
	"nooverlap": cmdNoOverlap,
	"noprocs":   cmdNoProcs,
	"clean":     cmdClean,
}

type scriptKey struct{}

// script is what one script has running.
type script struct {
	mark string
	env  []string // whose names every command gets; more of them through env(1)
	jobs map[string]*job
}

type job struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func scriptOf(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

func (s *script) killAll() {
	for _, pid := range marked(s.mark) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, j := range s.jobs {
		_ = j.cmd.Process.Kill()
		<-j.done
	}
}

// until polls a condition, and says whether it came true.
func until(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); ; {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		<-time.After(5 * time.Millisecond)
	}
}

// code is an exit status as a shell sees it.
func code(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	path := args[0]
	if !strings.Contains(path, "/") {
		for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
			if unix.Access(filepath.Join(dir, path), unix.X_OK) == nil {
				path = filepath.Join(dir, path)
				break
			}
		}
	}
	c := exec.Command(path, args[1:]...)
	c.Args[0] = args[0]
	c.Dir = ts.MkAbs(".")
	for _, kv := range scriptOf(ts).env {
		name, _, _ := strings.Cut(kv, "=")
		c.Env = append(c.Env, name+"="+ts.Getenv(name))
	}
	return c
}

func need(ts *testscript.TestScript, neg bool, ok bool, usage string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// status CODE COMMAND…: runs it, and its exit status must be CODE.
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) > 1, "status CODE COMMAND…")
	c := command(ts, args[1:])
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.WaitDelay = time.Second // what outlives it and keeps its output open
	hung := time.AfterFunc(3*patience, func() { _ = c.Process.Kill() })
	err := c.Run()
	hung.Stop()
	_, _ = io.Copy(ts.Stdout(), &out)
	_, _ = io.Copy(ts.Stderr(), &errs)
	if c.ProcessState == nil {
		ts.Fatalf("%v", err)
	}
	if got := strconv.Itoa(code(c.ProcessState)); got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

// start NAME COMMAND…: runs it in the background, in a session of its own; its
// output goes to NAME.out and NAME.err.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) > 1, "start NAME COMMAND…")
	c := command(ts, args[1:])
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for name, to := range map[string]*io.Writer{".out": &c.Stdout, ".err": &c.Stderr} {
		f, err := os.Create(ts.MkAbs(args[0] + name))
		ts.Check(err)
		defer func() { _ = f.Close() }()
		*to = f
	}
	ts.Check(c.Start())
	j := &job{cmd: c, done: make(chan struct{})}
	scriptOf(ts).jobs[args[0]] = j
	ts.Setenv(args[0]+"_pid", strconv.Itoa(c.Process.Pid))
	go func() {
		_ = c.Wait()
		close(j.done)
	}()
}

func jobOf(ts *testscript.TestScript, name string) *job {
	j, ok := scriptOf(ts).jobs[name]
	if !ok {
		ts.Fatalf("nothing was started as %q", name)
	}
	return j
}

// signal NAME SIG: sends a signal to the process that was started, alone.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "signal NAME SIG")
	ts.Check(jobOf(ts, args[0]).cmd.Process.Signal(unix.SignalNum("SIG" + args[1])))
}

// join NAME CODE [LIMIT]: it must end within LIMIT, and its exit status be CODE.
func cmdJoin(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2 || len(args) == 3, "join NAME CODE [LIMIT]")
	limit := patience
	if len(args) == 3 {
		var err error
		limit, err = time.ParseDuration(args[2])
		ts.Check(err)
	}
	j := jobOf(ts, args[0])
	errs := func() string {
		b, _ := os.ReadFile(ts.MkAbs(args[0] + ".err"))
		return string(b)
	}
	select {
	case <-j.done:
	case <-time.After(limit):
		ts.Fatalf("%s has not ended within %s; it said: %s", args[0], limit, errs())
	}
	if got := strconv.Itoa(code(j.cmd.ProcessState)); got != args[1] {
		ts.Fatalf("%s: exit status %s, want %s; it said: %s", args[0], got, args[1], errs())
	}
}

// [!] running NAME
func cmdRunning(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, false, len(args) == 1, "[!] running NAME")
	select {
	case <-jobOf(ts, args[0]).done:
		if !neg {
			ts.Fatalf("%s has ended", args[0])
		}
	default:
		if neg {
			ts.Fatalf("%s has not ended", args[0])
		}
	}
}

// waitfile FILE [REGEXP]: waits until it exists and a line of it matches.
func cmdWaitFile(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 1 || len(args) == 2, "waitfile FILE [REGEXP]")
	re := regexp.MustCompile("")
	if len(args) == 2 {
		var err error
		re, err = regexp.Compile("(?m)" + args[1])
		ts.Check(err)
	}
	var text []byte
	if !until(patience, func() bool {
		var err error
		text, err = os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && re.Match(text)
	}) {
		ts.Fatalf("%s has not come to match %s; it is: %s", args[0], re, text)
	}
}

// lines FILE N: it has so many.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) == 2, "lines FILE N")
	text := ts.ReadFile(args[0])
	if got := strconv.Itoa(strings.Count(text, "\n")); got != args[1] {
		ts.Fatalf("%s has %s lines, want %s:\n%s", args[0], got, args[1], text)
	}
}

// nooverlap FILE LABEL…: the first words of its lines are these labels, in
// stretches: none comes again after another one has begun.
func cmdNoOverlap(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) > 1, "nooverlap FILE LABEL…")
	var stretches []string
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		label, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n := len(stretches); n == 0 || stretches[n-1] != label {
			stretches = append(stretches, label)
		}
	}
	if got, want := strings.Join(stretches, " "), strings.Join(args[1:], " "); got != want {
		ts.Fatalf("%s ran as %q, want %q", args[0], got, want)
	}
}

// marked finds the processes with an environment variable, as VARIABLE=value.
func marked(mark string) []int {
	var pids []int
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// noprocs [VARIABLE=value]: no process with that in its environment is left;
// without one, none of this script.
func cmdNoProcs(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) < 2, "noprocs [VARIABLE=value]")
	mark := scriptOf(ts).mark
	if len(args) == 1 {
		mark = args[0]
	}
	var left []int
	if until(5*time.Second, func() bool { left = marked(mark); return len(left) == 0 }) {
		return
	}
	var text strings.Builder
	for _, pid := range left {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		fmt.Fprintf(&text, "\n%d %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}
	ts.Fatalf("processes are left:%s", text.String())
}

// clean MUTEX…: nothing of this script is left, neither a process nor a hold.
func cmdClean(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, len(args) > 0, "clean MUTEX…")
	cmdNoProcs(ts, false, nil)
	for _, mutex := range args {
		c := command(ts, []string{"simba", "run", "--wait", "0", "-m", mutex, "--", "true"})
		if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
			ts.Fatalf("%s is not free, or there is something to say about it: %v %s", mutex, err, out)
		}
	}
	cmdNoProcs(ts, false, nil)
}
