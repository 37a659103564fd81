package guard

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// failure is something done to the two processes of a running job.
type failure struct {
	name  string
	lease bool // it is the deadlines that end the job
	cause func(t *testing.T, w *wrap, guard int)
}

var failures = []failure{
	{"wrapper killed", false, func(t *testing.T, w *wrap, guard int) { signalAll(unix.SIGKILL, w.pid) }},
	{"guard killed", false, func(t *testing.T, w *wrap, guard int) { signalAll(unix.SIGKILL, guard) }},
	{"wrapper stopped", true, func(t *testing.T, w *wrap, guard int) { signalAll(unix.SIGSTOP, w.pid) }},
	{"guard stopped", true, func(t *testing.T, w *wrap, guard int) { signalAll(unix.SIGSTOP, guard) }},
	{"both stopped", true, func(t *testing.T, w *wrap, guard int) { signalAll(unix.SIGSTOP, w.pid, guard) }},
	{"both stopped, guard first", true, func(t *testing.T, w *wrap, guard int) { signalAll(unix.SIGSTOP, guard, w.pid) }},
	{"wrapper stopped, guard killed", false, func(t *testing.T, w *wrap, guard int) {
		signalAll(unix.SIGSTOP, w.pid)
		awaitState(t, w.pid, 'T')
		signalAll(unix.SIGKILL, guard)
	}},
	{"guard stopped, wrapper killed", false, func(t *testing.T, w *wrap, guard int) {
		signalAll(unix.SIGSTOP, w.pid) // or it would resume the guard
		awaitState(t, w.pid, 'T')
		signalAll(unix.SIGSTOP, guard)
		awaitState(t, guard, 'T')
		signalAll(unix.SIGKILL, w.pid)
	}},
}

func awaitState(t *testing.T, pid int, state byte) {
	t.Helper()
	until(t, fmt.Sprintf("state %c", state), func() bool {
		s, ok := readStat(pid)
		return ok && s.state == state
	})
}

func TestNoFailureLeavesAJob(t *testing.T) {
	for _, f := range failures {
		for _, job := range []string{"stubborn", "storm", "hopper"} {
			t.Run(f.name+"/"+job, func(t *testing.T) {
				t.Parallel()
				script, ready := map[string]string{"storm": storm, "hopper": hopper}[job], ""
				if job == "stubborn" {
					script, ready = stubborn(t)
				}
				settings := []string{"KILLAFTER=100"}
				if f.lease {
					settings = append(settings, "STOP=1500", "KILL=1600")
				}
				w := launch(t, settings, "sh", "-c", script)
				_, d := w.started()
				guard := w.guard()
				if ready != "" {
					until(t, "the whole job", exists(ready))
				}
				before := Now()
				f.cause(t, w, guard)
				gone := w.gone()
				if f.lease {
					t.Logf("gone %v after the Kill deadline", gone-d.Kill)
					if late := gone - d.Kill; late > 5*time.Second {
						t.Errorf("gone %v after the Kill deadline", late)
					}
				} else {
					t.Logf("gone after %v", gone-before)
				}
				w.wait()
				w.allGone()
			})
		}
	}
}

// The moments around the start are the narrowest: the guard may not have its handlers yet, or have forked
// and not said so.
func TestKilledAroundTheStart(t *testing.T) {
	for i := range 30 {
		delay := time.Duration(i) * 250 * time.Microsecond
		for _, victim := range []string{"wrapper", "guard"} {
			t.Run(fmt.Sprint(victim, " after ", delay), func(t *testing.T) {
				t.Parallel()
				script, _ := stubborn(t)
				w := launch(t, nil, "sh", "-c", script)
				var pid int
				if pid = w.pid; victim == "guard" {
					until(t, "a guard", func() bool {
						all := w.guards()
						if len(all) > 0 {
							pid = all[0]
						}
						return len(all) > 0
					})
				}
				for begin := time.Now(); time.Since(begin) < delay; {
					runtime.Gosched()
				}
				signalAll(unix.SIGKILL, pid)
				if victim == "guard" {
					// It was replaced before the start, or the wrapper ended the tree and itself.
					until(t, "start or end", func() bool {
						_, _, died := w.entry("done")
						_, _, refused := w.entry("start:")
						all := w.guards()
						return died || refused || len(all) == 1 && all[0] != pid
					})
					signalAll(unix.SIGKILL, w.pid)
				}
				w.wait()
				w.allGone()
			})
		}
	}
}

func TestDeadlines(t *testing.T) {
	for _, test := range []struct {
		lease             time.Duration
		stop, kill, after int // ms
		busy              bool
	}{
		// stop and kill as the lease protocol computes them from ttl and transition.
		{300 * time.Millisecond, 200, 247, 47, false},
		{300 * time.Millisecond, 200, 247, 47, true},
		{5 * time.Second, 3294, 4794, 1500, false},
		{5 * time.Second, 3294, 4794, 1500, true},
		{16 * time.Second, 10340, 15340, 5000, false},
	} {
		t.Run(fmt.Sprint(test.lease, " busy ", test.busy), func(t *testing.T) {
			if test.busy {
				busy(t, 2*runtime.NumCPU())
			}
			// A machine that others load as well can be late by any time: the killed have to be given a
			// processor to end. One trial of some has to be within the lease, and none far from it.
			trials := max(1, min(10, int(15*time.Second/test.lease)))
			best := time.Duration(1 << 62)
			for range trials {
				life, termed := silencedAfterStart(t, test.stop, test.kill, test.after)
				t.Logf("dead %v after silence; stop signal seen: %v", life, termed)
				if life > test.lease+5*time.Second {
					t.Errorf("the job lived %v after the last renewal, of a lease of %v", life, test.lease)
				}
				if termed {
					best = min(best, life)
				}
			}
			if best > test.lease*99/100 {
				t.Errorf("the job lived %v after the last renewal, of a lease of %v", best, test.lease)
			}
		})
	}
}

// silencedAfterStart stops the wrapper of a running job, and returns how long the job lived on, and whether
// it got the stop signal.
func silencedAfterStart(t *testing.T, stop, kill, after int) (life time.Duration, termed bool) {
	t.Helper()
	dir := t.TempDir()
	seen, ready := dir+"/seen", dir+"/ready"
	script := `trap 'echo > ` + seen + `' TERM; echo > ` + ready + `; while :; do sleep 0.01; done`
	for {
		w := launch(t, []string{
			fmt.Sprint("STOP=", stop), fmt.Sprint("KILL=", kill), fmt.Sprint("KILLAFTER=", after),
			"RENEW=50", // until the wrapper is silenced
		}, "sh", "-c", script)
		over := func() bool {
			_, _, refused := w.entry("start:")
			_, _, done := w.entry("done")
			return refused || done
		}
		until(t, "the trap", func() bool { return over() || exists(ready)() })
		signalAll(unix.SIGSTOP, w.pid)
		silenced := Now()
		late := over() // on a loaded machine the lease can be over before the job is up
		gone := w.gone()
		signalAll(unix.SIGCONT, w.pid)
		w.wait()
		w.allGone()
		if !late {
			// Counted from the silence, which is after the last renewal.
			return gone - silenced, exists(seen)()
		}
		os.Remove(ready)
		os.Remove(seen)
	}
}

// A guard in a debugger's hand does not run on SIGCONT; it has to be killed.
func TestFrozenGuardIsKilledByStop(t *testing.T) {
	script, ready := stubborn(t)
	w := launch(t, []string{"STOP=1500", "KILL=2500"}, "sh", "-c", script)
	_, d := w.started()
	until(t, "the whole job", exists(ready))
	guard := w.guard()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PtraceAttach(guard); err != nil { // its main thread, on which it does everything
		t.Fatal(err)
	}
	gone := w.gone()
	t.Logf("gone %v after Stop, %v before Kill", gone-d.Stop, d.Kill-gone)
	if gone > d.Kill {
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
	if _, _, ok := w.entry("notice"); !ok {
		t.Error("nothing was said")
	}
}

// Renewals go on for as long as they come, and a guard that was stopped acts on those that waited for it.
func TestRenewedJobLivesOn(t *testing.T) {
	w := launch(t, []string{"STOP=3000", "KILL=3500", "RENEW=50"}, "sleep", "4")
	w.started()
	guard := w.guard()
	for range 5 {
		signalAll(unix.SIGSTOP, guard)
		time.Sleep(20 * time.Millisecond)
	}
	if ws := w.wait(); ws.ExitStatus() != 0 {
		t.Errorf("ended with %v", ws)
	}
	w.allGone()
}
