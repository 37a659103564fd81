package guard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestExitStatus(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 126": 126, "exit 255": 255, "kill -SEGV $$": -11, "kill -KILL $$": -9, "kill -TERM $$": -15,
		"kill -QUIT $$": -3,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			w := launch(t, nil, "sh", "-c", script)
			ws := w.wait()
			got := ws.ExitStatus()
			if ws.Signaled() {
				got = -int(ws.Signal())
			}
			if got != want || ws.CoreDump() {
				t.Errorf("got %d (core %v), want %d", got, ws.CoreDump(), want)
			}
			w.allGone()
		})
	}
}

// What the orders do, by OnLost: how a TERM-ignoring job ends, and when.
func TestOrders(t *testing.T) {
	for _, test := range []struct {
		name     string
		settings []string
		dies     bool
		min, max time.Duration // after the command
		notice   string
	}{
		{"stop", []string{"COMMAND=stop", "KILLAFTER=1000"}, true, 990 * time.Millisecond, 20 * time.Second, ""},
		{"stop near the Kill deadline", []string{"COMMAND=stop", "KILLAFTER=60000", "STOP=4000", "KILL=6000"}, true, 0, 20 * time.Second, ""},
		{"kill", []string{"COMMAND=kill", "KILLAFTER=60000"}, true, 0, 20 * time.Second, ""},
		{"lost, stop", []string{"COMMAND=lost", "KILLAFTER=1000"}, true, 990 * time.Millisecond, 20 * time.Second, ""},
		{"lost, kill", []string{"COMMAND=lost", "KILLAFTER=60000", "ONLOST=1"}, true, 0, 20 * time.Second, ""},
		{"lost, signal", []string{"COMMAND=lost", "ONLOST=2", "STOP=4000", "KILL=4500"}, false, 0, 0, ""},
		{"lost, warn", []string{"COMMAND=lost", "ONLOST=3", "STOP=4000", "KILL=4500"}, false, 0, 0, ""},
		{"deadline, kill", []string{"KILLAFTER=60000", "ONLOST=1", "STOP=4000", "KILL=60000"}, true, 0, 0, "notice 4"},
		{"deadline, signal", []string{"ONLOST=2", "STOP=4000", "KILL=4500"}, false, 0, 0, "notice 4"},
		{"deadline, warn", []string{"ONLOST=3", "STOP=4000", "KILL=4500"}, false, 0, 0, "notice 4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ready := filepath.Join(t.TempDir(), "ready")
			termed := filepath.Join(t.TempDir(), "termed")
			script := `trap 'echo >> ` + termed + `' TERM; echo > ` + ready + `
i=0; while [ $i -lt 300 ]; do sleep 0.02; i=$((i+1)); done; exit 7`
			w := launch(t, append(test.settings, "READY="+ready), "sh", "-c", script)
			w.started()
			ws := w.wait()
			ended, _ := w.await("done")
			w.allGone()
			if test.dies == (ws.ExitStatus() == 7) {
				t.Errorf("ended with %v", ws)
			}
			if begin, _, ok := w.entry("command"); ok && test.dies {
				if took := ended - begin; took < test.min || took > test.max {
					t.Errorf("took %v", took)
				}
			}
			if test.notice != "" && !strings.Contains(w.lines(), test.notice) {
				t.Errorf("no %q", test.notice)
			}
			wantTerm := strings.Contains(test.name, "stop") || strings.Contains(test.name, "signal")
			if exists(termed)() != wantTerm {
				t.Errorf("stop signal seen: %v", !wantTerm)
			}
		})
	}
}

func TestLeftovers(t *testing.T) {
	for _, test := range []struct {
		name     string
		leftover Leftover
		min, max time.Duration
		left     bool
	}{
		{"stop", LeftoverStop, 0, 5 * time.Second, false},
		{"wait", LeftoverWait, 1400 * time.Millisecond, 10 * time.Second, false},
		{"leave", LeftoverLeave, 0, 5 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			script := `sleep 1.5 & setsid sleep 1.6 & exit 3`
			if test.left {
				script = `sleep 1000 & setsid sleep 1000 & exit 3`
			}
			w := launch(t, []string{fmt.Sprint("LEFTOVER=", int(test.leftover))}, "sh", "-c", script)
			began, _ := w.await("started")
			if ws := w.wait(); ws.ExitStatus() != 3 {
				t.Errorf("ended with %v", ws)
			}
			ended, words := w.await("done")
			if took := ended - began; took < test.min || took > test.max {
				t.Errorf("took %v", took)
			}
			if !strings.Contains(w.lines(), "notice 1 [") || !strings.Contains(w.lines(), "sleep,sleep") {
				t.Error("they were not reported")
			}
			if alive := len(marked(w.mark)) > 0; alive != test.left {
				t.Errorf("alive: %v", alive)
			}
			if named := !strings.Contains(strings.Join(words, " "), "left=[]"); named != test.left {
				t.Errorf("named: %v", named)
			}
			for _, pid := range marked(w.mark) {
				unix.Kill(pid, unix.SIGKILL)
			}
			w.allGone()
		})
	}
}

// What is about to end by itself is neither killed nor reported.
func TestShortLivedLeftoverKeepsItsOutput(t *testing.T) {
	w := launch(t, nil, "bash", "-c", `seq 200 > >(cat; echo end)`)
	w.wait()
	if !strings.HasSuffix(w.out.String(), "200\nend\n") || strings.Contains(w.lines(), "notice") {
		t.Errorf("%d bytes of output; %s", w.out.Len(), w.lines())
	}
}

// isolated runs the calling test in a process of its own, since Launch makes the process a subreaper: one
// that ran the other tests too would inherit their orphans. It returns true in that process.
func isolated(t *testing.T) bool {
	const variable = "GUARD_TEST_ISOLATED"
	if os.Getenv(variable) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func TestLateOrder(t *testing.T) {
	if !isolated(t) {
		return
	}
	g, err := Launch(Config{Tag: "late", KeepStdio: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	made := filepath.Join(t.TempDir(), "made")
	o := Order{Path: "/bin/sh", Argv: []string{"sh", "-c", "echo > " + made}, StartBy: Now()}
	if _, err := g.Start(context.Background(), o); err != ErrLate {
		t.Fatalf("got %v", err)
	}
	if exists(made)() {
		t.Error("it was started")
	}
	// The guard takes another order, also after one for something that is no program.
	bad := o
	bad.StartBy, bad.Path = 0, "/nonexistent/program"
	if _, err := g.Start(context.Background(), bad); err == nil || findStatus(err) != 127 {
		t.Errorf("got %v", err)
	}
	bad.Path = "/etc"
	if _, err := g.Start(context.Background(), bad); err == nil || findStatus(err) != 126 {
		t.Errorf("got %v", err)
	}
	o.StartBy = Now() + time.Hour
	if _, err := g.Start(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if s := g.Wait(); !s.Known || s.Code != 0 || !exists(made)() {
		t.Errorf("got %+v", s)
	}
	if _, err := g.Start(context.Background(), o); err == nil {
		t.Error("a second job was started")
	}
}

// Nothing stays behind in the calling process, whatever the guard was used for.
func TestCloseLeavesNothing(t *testing.T) {
	if !isolated(t) {
		return
	}
	descriptors := func() int { return len(numbered("/proc/self/fd")) }
	// The runtime's poller has two descriptors from its first use on, which is here and not at some later round.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	goroutines, fds := 0, 0
	for i := range 12 {
		g, err := Launch(Config{Tag: "close", KeepStdio: true, KillAfter: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 0: // never used
		case 1:
			if _, err := g.Start(context.Background(), Order{Path: "/bin/true", Argv: []string{"true"}}); err != nil {
				t.Error(err)
			}
			<-g.Done()
		case 2: // still running
			if _, err := g.Start(context.Background(), Order{Path: "/bin/sleep", Argv: []string{"sleep", "1000"}}); err != nil {
				t.Error(err)
			}
		case 3:
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := g.Start(ctx, Order{Path: "/bin/true", Argv: []string{"true"}}); err != context.Canceled {
				t.Error(err)
			}
		}
		g.Close()
		g.Close()
		g.Stop() // does nothing now
		g.Extend(Deadlines{})
		for _, pid := range children(os.Getpid()) {
			t.Errorf("round %d: child %d %s is left", i, pid, processName(pid))
		}
		if i == 3 { // by then everything of the runtime's own is there
			goroutines, fds = runtime.NumGoroutine(), descriptors()
		}
	}
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := descriptors(); n > fds {
		t.Errorf("%d descriptors, were %d:", n, fds)
		for _, fd := range numbered("/proc/self/fd") {
			to, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			t.Logf("%d is %s", fd, to)
		}
	}
}
