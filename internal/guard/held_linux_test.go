package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The lock lives exactly as long as the job, whichever process is killed.
func TestHeldLock(t *testing.T) {
	for _, victim := range []string{"none", "wrapper", "guard"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			lock := filepath.Join(t.TempDir(), "lock")
			if err := os.WriteFile(lock, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			script, ready := stubborn(t)
			if victim == "none" {
				script = "echo > " + ready + "; sleep 0.3"
			}
			w := launch(t, []string{"HOLD=" + lock, "KILLAFTER=300"}, "sh", "-c", script)
			w.started()
			until(t, "the whole job", exists(ready))
			f, err := os.Open(lock)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				t.Fatal("the lock is free beside a living job")
			}
			switch victim {
			case "wrapper":
				unix.Kill(w.pid, unix.SIGKILL)
			case "guard":
				unix.Kill(w.guard(), unix.SIGKILL)
			}
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			if left := marked(w.mark, w.pid); len(left) > 0 {
				t.Errorf("the lock is free, and %v live", left)
			}
			w.wait()
			w.allGone()
		})
	}
}

// A job that became another user cannot be killed. That is said, and the work is not called done.
func TestStuck(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("only root can make the set-user-ID program this needs")
		return
	}
	dir, err := os.MkdirTemp("/var/tmp", "guard")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o777)
	first, ready := filepath.Join(dir, "first"), filepath.Join(dir, "ready")
	become := filepath.Join(dir, "become")
	copyFile(t, lookPath(t, "setpriv"), become)
	if err := unix.Chmod(become, 0o4755); err != nil {
		t.Fatal(err)
	}
	become += " --reuid=0 --regid=0 --clear-groups "
	log := filepath.Join(dir, "log")
	binary := filepath.Join(dir, "test") // the one that runs may stand in a directory of root's
	copyFile(t, "/proc/self/exe", binary)
	os.Chmod(binary, 0o755)
	w := prepare(t, []string{"READY=" + ready, "COMMAND=kill"}, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
		binary, "sh", "-c", become+"sh -c 'echo > "+first+"; exec sleep 1000' & "+
			become+"sh -c 'while ! [ -e "+first+" ]; do sleep 0.01; done; echo > "+ready+"; exec sleep 1001'")
	w.cmd.Path, w.cmd.Args = lookPath(t, "setpriv"), w.cmd.Args[1:]
	w.cmd.Env = append(w.cmd.Env, "WRAP_LOG="+log)
	w.log = log
	w.start()
	_, words := w.await("notice")
	if words[1] != "2" || !strings.Contains(w.lines(), "not permitted") {
		t.Errorf("notice: %q", words)
	}
	time.Sleep(300 * time.Millisecond) // in which it must not spin, nor give up
	if _, _, done := w.entry("done"); done {
		t.Error("called done with processes alive")
	}
	s1 := cpuTicks(w.guard())
	time.Sleep(time.Second)
	if spent := cpuTicks(w.guard()) - s1; spent > 10 {
		t.Errorf("the guard spent %d ticks in a second", spent)
	}
	for _, pid := range marked(w.mark, w.pid) {
		unix.Kill(pid, unix.SIGKILL)
	}
	w.await("done")
	w.wait()
	w.allGone()
}

func cpuTicks(pid int) int {
	b, _ := readProc(pid, "stat")
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return atoi([]byte(f[11])) + atoi([]byte(f[12]))
}

func lookPath(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func copyFile(t *testing.T, from, to string) {
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
