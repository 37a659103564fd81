package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSignalsArePassedOn(t *testing.T) {
	for _, test := range []struct {
		sig  syscall.Signal
		name string
	}{
		{unix.SIGTERM, "TERM"}, {unix.SIGINT, "INT"}, {unix.SIGHUP, "HUP"}, {unix.SIGQUIT, "QUIT"},
		{unix.SIGUSR1, "USR1"}, {unix.SIGUSR2, "USR2"}, {unix.SIGWINCH, "WINCH"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ready, seen := filepath.Join(dir, "ready"), filepath.Join(dir, "seen")
			// No escalation: the job outlives the signal by more than KillAfter.
			script := fmt.Sprintf(`trap 'echo >> %s' %s; echo > %s; while [ ! -s %s ]; do sleep 0.01; done; sleep 0.4; exit 6`, seen, test.name, ready, seen)
			w := prepare(t, nil, "sh", "-c", script)
			w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // away from a terminal the tests may have
			w.start()
			w.started()
			until(t, "the trap", exists(ready))
			unix.Kill(w.pid, test.sig)
			if ws := w.wait(); ws.ExitStatus() != 6 {
				t.Errorf("ended with %v; %s", ws, w.err.String())
			}
			if b, _ := os.ReadFile(seen); string(b) != "\n" {
				t.Errorf("seen %d times", len(b))
			}
			w.allGone()
		})
	}
	t.Run("fatal to the job", func(t *testing.T) {
		w := prepare(t, nil, "sleep", "1000")
		w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		w.start()
		w.started()
		unix.Kill(w.pid, unix.SIGHUP)
		if ws := w.wait(); !ws.Signaled() || ws.Signal() != unix.SIGHUP || strings.Contains(w.err.String(), "goroutine") {
			t.Errorf("ended with %v; %s", ws, w.err.String())
		}
		w.allGone()
	})
}

func TestSignalsWhileWaiting(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			w := launch(t, []string{"WAITING=1"}, "true")
			w.await("launched")
			w.guard()
			unix.Kill(w.pid, sig)
			if ws := w.wait(); !ws.Signaled() || ws.Signal() != sig || strings.Contains(w.err.String(), "goroutine") {
				t.Errorf("ended with %v; %s", ws, w.err.String())
			}
			w.allGone()
		})
	}
	t.Run("others do nothing", func(t *testing.T) {
		w := launch(t, []string{"DELAY=600"}, "true")
		w.await("launched")
		w.guard()
		for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGPIPE, unix.SIGALRM} {
			unix.Kill(w.pid, sig)
		}
		if ws := w.wait(); ws.ExitStatus() != 0 {
			t.Errorf("ended with %v", ws)
		}
	})
}

// Every signal that people send is harmless to a guard; only its wrapper and its timers move it.
func TestGuardHeedsNoSignal(t *testing.T) {
	w := launch(t, nil, "sleep", "1")
	w.started()
	guard := w.guard()
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP:
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS, unix.SIGSTKFLT, unix.SIGABRT: // faults
		case 32, 33, 34: // the C library's own; Go leaves them alone
		default:
			unix.Kill(guard, sig)
		}
	}
	if ws := w.wait(); ws.ExitStatus() != 0 || strings.Contains(w.lines(), "notice") {
		t.Errorf("ended with %v; %s", ws, w.lines())
	}
}

func TestNohup(t *testing.T) {
	w := prepare(t, nil)
	self, _ := os.Executable()
	w.cmd.Path, w.cmd.Args = lookPath(t, "sh"), []string{"sh", "-c", `trap '' HUP; exec "$0" "$@"`, self, "sleep", "0.5"}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	w.start()
	pid, _ := w.started()
	for _, p := range []int{w.pid, w.guard(), pid} {
		unix.Kill(p, unix.SIGHUP)
	}
	if ws := w.wait(); ws.ExitStatus() != 0 {
		t.Errorf("ended with %v", ws)
	}
}

// onTerminal starts an interactive shell on a terminal of its own. The test types; typed text can use $W
// for the wrapper.
func onTerminal(t *testing.T, settings ...string) (w *wrap, terminal *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	if err := unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	self, _ := os.Executable()
	w = prepare(t, settings)
	w.cmd.Path, w.cmd.Args = lookPath(t, "bash"), []string{"bash", "--norc", "--noprofile", "-i"}
	w.cmd.Env = append(w.cmd.Env, "W="+self)
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = tty, tty, tty
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	w.start()
	go func() { // ends when the terminal is closed
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			w.screen.Write(buf[:max(n, 0)])
			if err != nil {
				return
			}
		}
	}()
	return w, terminal
}

// launched is the pid of a wrapper that a shell started.
func (w *wrap) launched() (pid int) {
	w.t.Helper()
	_, words := w.await("launched")
	fmt.Sscan(words[1], &pid)
	return pid
}

func TestCtrlCArrivesOnce(t *testing.T) {
	w, terminal := onTerminal(t, "COUNT=500")
	fmt.Fprintln(terminal, "$W env "+modeVariable+"=counter $W; echo status=$?")
	w.started()
	w.await("counting")
	terminal.WriteString("\x03")
	w.await("count")
	w.await("done")
	if n := strings.Count(w.lines(), " count "); n != 1 {
		t.Errorf("%d signals", n)
	}
	until(t, "the prompt", func() bool { return strings.Contains(w.screen.String(), "status=0") })
	if !strings.Contains(w.screen.String(), "count=1") {
		t.Errorf("screen: %q", w.screen.String())
	}
}

func TestCtrlCEndsAScript(t *testing.T) {
	w, terminal := onTerminal(t)
	fmt.Fprintln(terminal, `bash -c '$W sleep 1000; echo went-"on"'`)
	w.started()
	terminal.WriteString("\x03")
	w.await("closed")
	fmt.Fprintln(terminal, `echo status="$?"`)
	until(t, "the prompt", func() bool { return strings.Contains(w.screen.String(), "status=130") })
	if strings.Contains(w.screen.String(), "went-on") {
		t.Error("the script went on")
	}
}

func TestJobControl(t *testing.T) {
	w, terminal := onTerminal(t)
	fmt.Fprintln(terminal, "$W sleep 1000 | cat")
	job, _ := w.started()
	pid := w.launched()
	for i := range 3 {
		terminal.WriteString("\x1a")
		awaitState(t, job, 'T')
		awaitState(t, pid, 'T')
		until(t, "the shell", func() bool { return strings.Count(w.screen.String(), "Stopped") > i })
		fmt.Fprintln(terminal, "fg")
		awaitState(t, job, 'S')
		awaitState(t, pid, 'S')
	}
	terminal.WriteString("\x03")
	w.await("done")
	until(t, "the end of the job", func() bool { return len(marked(w.mark, w.pid)) == 0 })
}

func TestBackgroundRead(t *testing.T) {
	w, terminal := onTerminal(t)
	fmt.Fprintln(terminal, "$W sh -c 'read x; echo got-\"$x\"' &")
	job, _ := w.started()
	pid := w.launched()
	awaitState(t, job, 'T')
	awaitState(t, pid, 'T')
	// The shell continues only what it has seen stop.
	until(t, "the shell", func() bool {
		fmt.Fprintln(terminal, "jobs")
		time.Sleep(50 * time.Millisecond)
		return strings.Contains(w.screen.String(), "Stopped")
	})
	fmt.Fprintln(terminal, "fg")
	awaitState(t, pid, 'S')
	fmt.Fprintln(terminal, "word")
	until(t, "the answer", func() bool { return strings.Contains(w.screen.String(), "got-word") })
	w.await("done")
}

// A lease does not wait for somebody to type fg.
func TestStoppedAtTheTerminalUntilTheLeaseEnds(t *testing.T) {
	w, terminal := onTerminal(t, "STOP=1500", "KILL=1600", "RENEW=100")
	fmt.Fprintln(terminal, "$W sleep 1000")
	job, _ := w.started()
	pid := w.launched()
	terminal.WriteString("\x1a")
	awaitState(t, job, 'T')
	awaitState(t, pid, 'T')
	stopped := Now()
	done, _ := w.await("done")
	if took := done - stopped; took > 3*time.Second {
		t.Errorf("ended %v after the stop", took)
	}
	until(t, "the end of the job", func() bool { return len(marked(w.mark, w.pid)) == 0 })
}

// Pausing a job from elsewhere does not pause its wrapper: it has a lease to renew.
func TestPausedJobIsRenewed(t *testing.T) {
	w := launch(t, []string{"STOP=3000", "KILL=3500", "RENEW=50"}, "sh", "-c", "sleep 0.2")
	job, _ := w.started()
	unix.Kill(job, unix.SIGSTOP)
	awaitState(t, job, 'T')
	time.Sleep(4 * time.Second) // more than a lease
	if s, _ := readStat(job); s.state != 'T' {
		t.Errorf("state %c", s.state)
	}
	unix.Kill(w.pid, unix.SIGCONT) // which is passed on
	if ws := w.wait(); ws.ExitStatus() != 0 {
		t.Errorf("ended with %v", ws)
	}
}
