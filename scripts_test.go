//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// bin is where the binary under test was built: the guard is the same file
// executed again, so the test binary in its place would not do.
var bin string

func TestMain(m *testing.M) {
	os.Exit(withBinary(m))
}

func withBinary(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin = dir
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "simba"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	status := m.Run()
	// Guards carry no environment, so the scripts cannot look for theirs alone.
	if left := executing(filepath.Join(dir, "simba")); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes %v of the binary under test are left\n", left)
		return 1
	}
	return status
}

// executing finds the processes that still execute a file, after some patience.
func executing(path string) []int {
	var pids []int
	until(5*time.Second, func() bool {
		pids = nil
		exes, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, exe := range exes {
			if target, err := os.Readlink(exe); err != nil || target != path {
				continue
			}
			if pid, err := strconv.Atoi(strings.Split(exe, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
		return len(pids) == 0
	})
	return pids
}

// TestScripts runs testdata/scripts, one behaviour a file. The commands beyond
// those of testscript are in scriptcmd_test.go.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/scripts",
		Setup:               setUp,
		Cmds:                scriptCommands,
		Condition:           condition,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// condition knows [pidns]: whether PID namespaces can be made here.
func condition(name string) (bool, error) {
	if name != "pidns" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return exec.Command("unshare", "-pf", "--mount-proc", "true").Run() == nil, nil
}

// setUp gives each script a directory of mutexes of its own, and a mark by which
// its processes are found wherever they went.
func setUp(env *testscript.Env) error {
	s := &script{mark: "MARK=" + env.WorkDir, jobs: map[string]*job{}}
	env.Values[scriptKey{}] = s
	env.Vars = append(env.Vars,
		s.mark,
		"SIMBA_BACKEND=file://"+filepath.Join(env.WorkDir, "mutexes"),
		"PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"SIMBA_CONFIG="+os.DevNull, // not that of whoever runs the tests
		"LC_ALL=C.UTF-8",
	)
	s.env = env.Vars
	env.Defer(s.killAll)
	return nil
}
