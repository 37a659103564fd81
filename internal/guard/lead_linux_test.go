package guard

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// conduct has the job of a wrapper lead and step down as the setting STEPS says; a number is a pause in milliseconds.
func conduct(g *Guard, deadlines func() Deadlines) {
	var lock *os.File
	for step := range strings.FieldsSeq(option("STEPS")) {
		var err error
		switch step {
		case "ready":
			for _, err := os.Stat(option("READY")); err != nil; _, err = os.Stat(option("READY")) {
				time.Sleep(2 * time.Millisecond)
			}
		case "lead", "late":
			p := Promotion{Deadlines: deadlines(), Signal: syscall.SIGUSR1}
			if step == "late" {
				p.By = Now()
			}
			if name := option("LOCK"); name != "" {
				if lock, err = os.Open(name); err == nil {
					err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
				}
				if err != nil {
					say("lock: %v", err)
				}
				p.Hold = []*os.File{lock}
			}
			say("leads")
			err = g.Lead(p)
		case "down":
			say("down")
			err = g.StepDown(syscall.SIGUSR2)
		case "release":
			if lock != nil {
				lock.Close()
			}
			err = g.Release()
		case "extend":
			g.Extend(deadlines())
		default:
			ms, _ := strconv.Atoi(step)
			time.Sleep(time.Duration(ms) * time.Millisecond)
		}
		say("step %s %v", step, err)
	}
	say("conducted")
}

// A standby writes to a file what it is told, and heeds no stop signal.
func standby(t *testing.T) (script, ready, told string) {
	t.Helper()
	dir := t.TempDir()
	ready, told = filepath.Join(dir, "ready"), filepath.Join(dir, "told")
	return "trap 'echo won >>" + told + "' USR1; trap 'echo lost >>" + told + "' USR2; trap 'echo term >>" + told + `' TERM
(trap '' TERM USR1 USR2; setsid sleep 300) &
echo >` + ready + `; while :; do sleep 0.01; done`, ready, told
}

func heard(told string) func(string) bool {
	return func(want string) bool {
		b, _ := os.ReadFile(told)
		return strings.Join(strings.Fields(string(b)), " ") == want
	}
}

// The deadlines count while the job leads and only then, and the locks are held only then.
func TestLeadsAndStepsDown(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script, ready, told := standby(t)
	w := launch(t, []string{
		"READY=" + ready, "LOCK=" + lock, "STOP=1000", "KILL=1200",
		"STEPS=ready 500 late release lead 700 extend 700 down release 1500 lead 300 down 1500 release lead",
	}, "sh", "-c", script)
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	try := func() bool {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		return err == nil && unix.Flock(int(f.Fd()), unix.LOCK_UN) == nil
	}
	leads := func() bool {
		pids, err := Holding(w.tag)
		return err == nil && len(pids) == 1
	}
	w.await("started")
	if leads() {
		t.Error("a standby was said to hold")
	}
	says := heard(told)
	until(t, "the first leadership", func() bool { return says("won") })
	if !leads() || try() {
		t.Error("the lock is free, or the guard does not say that it holds")
	}
	until(t, "its end", func() bool { return says("won lost") })
	until(t, "the release", func() bool { return try() && !leads() })
	until(t, "the second end", func() bool { return says("won lost won lost") })
	if try() {
		t.Error("the lock is free before it was let go")
	}
	begun, _ := w.await("conducted")
	ended, _ := w.await("done")
	if took := ended - begun; took < 900*time.Millisecond || took > 1200*time.Millisecond+patient/10 {
		t.Errorf("the leader that was told nothing ended after %v", took)
	}
	if !says("won lost won lost won term") {
		b, _ := os.ReadFile(told)
		t.Errorf("it was told %q", b)
	}
	for _, want := range []string{"step late too late", "step lead <nil>", "step down <nil>", "step release <nil>", "notice 4"} {
		if !strings.Contains(w.lines(), want) {
			t.Errorf("no %q", want)
		}
	}
	w.wait()
	w.allGone()
}

// Whatever becomes of the two, a job that leads is gone by the Kill deadline, and one that does not goes with the
// wrapper.
func TestNoFailureLeavesALeader(t *testing.T) {
	const stop, kill = 1500, 2000
	for name, do := range map[string]func(wrapper, guard int){
		"wrapper stopped":                 func(w, _ int) { signalAll(unix.SIGSTOP, w) },
		"both stopped":                    func(w, g int) { signalAll(unix.SIGSTOP, w, g) },
		"wrapper killed":                  func(w, _ int) { signalAll(unix.SIGKILL, w) },
		"guard killed":                    func(_, g int) { signalAll(unix.SIGKILL, g) },
		"wrapper stopped, guard killed":   func(w, g int) { signalAll(unix.SIGSTOP, w); signalAll(unix.SIGKILL, g) },
		"guard stopped, wrapper killed":   func(w, g int) { signalAll(unix.SIGSTOP, g); signalAll(unix.SIGKILL, w) },
		"wrapper stopped before the down": nil,
	} {
		for _, leads := range []bool{true, false} {
			if !leads && (strings.Contains(name, "wrapper stopped") && !strings.Contains(name, "guard killed") || name == "both stopped") {
				continue // nothing ends a standby whose wrapper is stopped
			}
			t.Run(name+map[bool]string{true: ", leading", false: ", standing by"}[leads], func(t *testing.T) {
				t.Parallel()
				script, ready, told := standby(t)
				steps := "ready lead"
				if !leads {
					steps = "ready lead 100 down release"
				}
				if do == nil {
					steps = "ready lead 300 down"
				}
				w := launch(t, []string{
					"READY=" + ready, "STEPS=" + steps, "KILLAFTER=400",
					"STOP=" + strconv.Itoa(stop), "KILL=" + strconv.Itoa(kill),
				}, "sh", "-c", script)
				pid, _ := w.started()
				begun, _ := w.await("leads")
				if do != nil {
					w.await("conducted")
					do(w.pid, w.guard())
				} else {
					until(t, "the signal", func() bool { return heard(told)("won") })
					signalAll(unix.SIGSTOP, w.pid)
				}
				ended := w.gone()
				if leads && ended-begun > (kill+400)*time.Millisecond {
					t.Errorf("the leader %d lived for %v", pid, ended-begun)
				}
				signalAll(unix.SIGCONT, w.pid)
				w.wait()
				if do == nil && heard(told)("won lost") {
					t.Error("it was told to step down after the Stop deadline and left alone")
				}
				w.allGone()
			})
		}
	}
}

// A guard in a debugger's hand confirms nothing: a leader that cannot be told is killed, before its Kill deadline.
func TestFrozenGuardDoesNotKeepALeader(t *testing.T) {
	for _, steps := range []string{"ready lead", "ready lead 600 down"} {
		t.Run(steps, func(t *testing.T) {
			script, ready, told := standby(t)
			w := launch(t, []string{"READY=" + ready, "STEPS=" + steps, "STOP=1500", "KILL=2500"}, "sh", "-c", script)
			w.started()
			begun, _ := w.await("leads")
			until(t, "the signal", func() bool { return heard(told)("won") })
			guard := w.guard()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := unix.PtraceAttach(guard); err != nil { // its main thread, on which it does everything
				t.Fatal(err)
			}
			gone := w.gone()
			t.Logf("gone %v after it was told to lead", gone-begun)
			if gone-begun > 2500*time.Millisecond {
				t.Error("gone too late")
			}
			for {
				var ws unix.WaitStatus
				if _, err := unix.Wait4(guard, &ws, unix.WALL, nil); err != nil || ws.Signaled() || ws.Exited() {
					break
				}
			}
			w.wait()
			w.allGone()
			if heard(told)("won lost") {
				t.Error("a guard that did not run told the job something")
			}
			if strings.Contains(steps, "down") && !strings.Contains(w.lines(), "step down "+ErrGuardDied.Error()) {
				t.Error("the step down was not refused")
			}
		})
	}
}
