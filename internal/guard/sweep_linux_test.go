package guard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endByEnv calls EndByEnv in a process of its own, since what it spares depends on who calls. That process
// carries the variable.
func endByEnv(t *testing.T, entry string) (out string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", entry)
	cmd.Env = append(os.Environ(), modeVariable+"=sweeper", entry)
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, b)
	}
	return string(b)
}

func TestBothKilledAtOnce(t *testing.T) {
	for _, job := range []string{"stubborn", "storm", "hopper", "nested"} {
		t.Run(job, func(t *testing.T) {
			script, ready := stubborn(t)
			self, _ := os.Executable()
			inner := ""
			switch job {
			case "storm":
				script, ready = storm, ""
			case "hopper":
				script, ready = hopper, ""
			case "nested":
				// A wrapper in the job, whose own job does not carry the variable.
				inner = newMark()
				script = fmt.Sprintf(`trap '' TERM; %s=wrapper WRAP_KILLAFTER=20000 %s env %s sh -c '%s'`, modeVariable, self, inner,
					`trap "" TERM; echo > `+ready+`; while :; do sleep 0.01; done`)
			}
			w := launch(t, []string{"KILLAFTER=20000"}, "sh", "-c", script)
			w.started()
			if ready != "" {
				until(t, "the whole job", exists(ready))
			}
			all := w.guards()
			if inner != "" {
				// The one of the wrapper in the job has the same tag.
				for _, pid := range all {
					if s, _ := readStat(pid); s.ppid == w.pid {
						all = []int{pid}
						break
					}
				}
			}
			guard := all[0]
			// In one instant: nothing of either runs between.
			signalAll(unix.SIGSTOP, w.pid, guard)
			signalAll(unix.SIGKILL, guard, w.pid)
			w.wait()
			began := time.Now()
			out := endByEnv(t, w.mark)
			left := marked(w.mark)
			if inner != "" {
				left = append(left, marked(inner)...)
			}
			if len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			t.Logf("%v: ended, stuck, error: %s", time.Since(began), out)
			if inner != "" {
				until(t, "the end of the inner job", func() bool { return len(marked(inner)) == 0 })
			}
			w.allGone()
		})
	}
}

func TestEndByEnvSparesOthers(t *testing.T) {
	mark := newMark()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{mark + "0", "X" + mark}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if out := endByEnv(t, mark); out != "0 [] <nil>\n" {
		t.Errorf("got %s", out)
	}
	if s, ok := readStat(cmd.Process.Pid); !ok || s.state == 'Z' {
		t.Error("a process with another value was ended")
	}
	for _, bad := range []string{"", "=", "=x", "name"} {
		if _, _, err := EndByEnv(t.Context(), bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A chain of processes that fork the next and end at once is never there when one looks; it leaves its
// track in a file.
func TestEndByEnvCatchesHoppers(t *testing.T) {
	mark := newMark()
	track := filepath.Join(t.TempDir(), "track")
	cmd := exec.Command("sh", "-c", "h() { echo >> "+track+"; h & }; h; h")
	cmd.Env = append(os.Environ(), mark)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	length := func() int64 {
		info, err := os.Stat(track)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	until(t, "the hoppers", func() bool { return length() > 100 })
	began := time.Now()
	out := endByEnv(t, mark)
	t.Logf("%v: %s", time.Since(began), out)
	for before := length(); ; before = length() {
		time.Sleep(300 * time.Millisecond)
		if length() == before {
			break
		}
		t.Error("they hop on")
		out := endByEnv(t, mark)
		t.Log(out)
	}
}

func TestHolding(t *testing.T) {
	holding := func(tag string) int {
		pids, err := Holding(tag)
		if err != nil {
			t.Fatal(err)
		}
		return len(pids)
	}
	ready := filepath.Join(t.TempDir(), "ready")
	w := launch(t, []string{"DELAY=300"}, "sh", "-c", "echo > "+ready+"; sleep 0.5")
	w.await("launched")
	guard := w.guard()
	until(t, "the name", func() bool { return processName(guard) == waitingName })
	if !exists(ready)() && holding(w.tag) != 0 {
		t.Error("a waiting guard was said to hold")
	}
	until(t, "the start", exists(ready))
	if holding(w.tag) != 1 || holding(w.tag[:len(w.tag)-1]) != 0 {
		t.Error("a holding guard was not found by its tag alone")
	}
	w.wait()
	w.allGone()
	if holding(w.tag) != 0 {
		t.Error("a finished guard is said to hold")
	}
	if len(waitingName) > 15 || len(holdingName) > 15 {
		t.Error("a name is too long for the kernel")
	}
	if _, err := Launch(Config{Tag: "a-simba-tag"}); err == nil {
		t.Error("a tag with the program's name was taken: pkill would find the guard")
	}
}
