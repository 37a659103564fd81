package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killAfter is the --kill-after of the rounds.
const killAfter = time.Second

// prompt is how soon the next job starts when the first is killed: the guard or
// the kernel notices at once, the job is given kill-after at most.
const prompt = time.Second + killAfter

// Exit statuses of the first run, by what was done to it.
const (
	lost   = 79
	fault  = 70
	killed = 128 + int(syscall.SIGKILL)
	termed = 128 + int(syscall.SIGTERM)
)

// faults are what is done to the two processes that watch over the first job.
// They hold for every backend.
var faults = []struct {
	name  string
	deaf  bool
	shut  bool
	codes []int
	soon  bool // the second starts promptly
	do    func(r *round)
}{
	{name: "kill simba", codes: []int{killed}, soon: true,
		do: func(r *round) { r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL) }},
	{name: "kill guard", codes: []int{fault, killed}, soon: true,
		do: func(r *round) { r.kill(r.guardOf(r.first), syscall.SIGKILL) }},
	{name: "kill both", codes: []int{killed}, soon: true, do: func(r *round) {
		guard := r.guardOf(r.first)
		r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
		r.kill(guard, syscall.SIGKILL)
	}},
	{name: "kill by name", codes: []int{killed}, soon: true, do: killByName},
	{name: "stop simba", codes: []int{0}, do: func(r *round) { r.pause(r.first.cmd.Process.Pid) }},
	{name: "stop guard", codes: []int{0}, do: func(r *round) { r.pause(r.guardOf(r.first)) }},
	{name: "stop both", codes: []int{0}, do: func(r *round) {
		guard := r.guardOf(r.first)
		r.kill(guard, syscall.SIGSTOP)
		r.pause(r.first.cmd.Process.Pid)
		_ = syscall.Kill(guard, syscall.SIGCONT)
	}},
	{name: "stop simba and kill guard", codes: []int{fault, killed}, soon: true, do: func(r *round) {
		guard := r.guardOf(r.first)
		r.kill(r.first.cmd.Process.Pid, syscall.SIGSTOP)
		r.kill(guard, syscall.SIGKILL)
	}},
	{name: "stop guard and kill simba", codes: []int{killed}, soon: true, do: func(r *round) {
		r.kill(r.guardOf(r.first), syscall.SIGSTOP)
		r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
	}},
	{name: "deaf job, TERM, then kill simba", deaf: true, codes: []int{killed}, soon: true, do: func(r *round) {
		r.kill(r.first.cmd.Process.Pid, syscall.SIGTERM)
		<-time.After(200 * time.Millisecond)
		r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
	}},
	{name: "TERM", codes: []int{termed, 0}, do: func(r *round) { r.kill(r.first.cmd.Process.Pid, syscall.SIGTERM) }},
	{name: "stderr closed", shut: true, codes: []int{0}, do: func(r *round) {}},
}

// pause stops a process for three seconds. It may be gone by then.
func (r *round) pause(pid int) {
	r.kill(pid, syscall.SIGSTOP)
	<-time.After(3 * time.Second)
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

// killByName does what pkill -9 -f simba would do to the processes of the first
// run and to no other.
func killByName(r *round) {
	hit := 0
	second := map[int]bool{r.second.cmd.Process.Pid: true, r.guardOf(r.second): true}
	ours := append(marked(r.mark), r.guardOf(r.first))
	for _, pid := range ours {
		if second[pid] {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(args), "simba") || strings.Contains(comm(pid), "simba") {
			r.kill(pid, syscall.SIGKILL)
			hit++
		}
	}
	if hit == 0 {
		r.t.Error("there was nobody of that name")
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T) {
				r := newRound(t, "-b", "file://"+filepath.Join(t.TempDir(), "locks"), "--kill-after", killAfter.String())
				r.deaf, r.shut = f.deaf, f.shut
				r.begin()
				at := boot()
				f.do(r)
				if gap := r.finish(at, f.codes...); f.soon && gap > prompt {
					t.Errorf("the second job began %v after the fault", gap)
				}
			})
		})
	}
}

// each does the rounds of a fault, a few side by side: most of a round is waiting.
func each(t *testing.T, one func(t *testing.T)) {
	for i := range *rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			one(t)
		})
	}
}

// remove is rm -rf beside a waiter that may be making its ticket there.
func remove(t *testing.T, path string) {
	t.Helper()
	err := os.RemoveAll(path)
	for range 100 {
		if err == nil {
			return
		}
		err = os.RemoveAll(path)
	}
	t.Fatal(err)
}

// TestFileRemoved: what is removed or put in the place of the lock file in
// mid-run frees nothing.
func TestFileRemoved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(t *testing.T, dir string)
	}{
		{"lock files removed", func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(files) == 0 {
				t.Fatal(err, files)
			}
			for _, f := range files {
				remove(t, f)
			}
		}},
		{"directory removed", func(t *testing.T, dir string) {
			remove(t, dir)
		}},
		{"directory moved away", func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".away"); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "locks")
				r := newRound(t, "-b", "file://"+dir, "--kill-after", killAfter.String(), "--ttl", "2s", "--transition", "2s", "--kill-after", "500ms")
				r.length = "4s"
				r.begin()
				c.do(t, dir)
				third := r.start("$BEAT C $LOG 300ms") // a newcomer, who finds nothing there
				r.finish(boot(), 0)
				if code := r.wait(third); code != 0 {
					t.Errorf("the newcomer ended with %d: %s", code, third.stderr)
				}
				seen := lives(t, r.log)
				for label, l := range seen {
					if label[0] == 'A' && l.last >= seen["C"].first {
						t.Errorf("OVERLAP: %s lived %v after the newcomer began", label, l.last-seen["C"].first)
					}
				}
				if b, c := seen["B"], seen["C"]; b.first <= c.last && c.first <= b.last {
					t.Error("OVERLAP of the second and the newcomer")
				}
			})
		})
	}
}
