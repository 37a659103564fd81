package torture

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var rounds = flag.Int("rounds", 1, "rounds of each fault")

// binary is simba, built once.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "beat" {
		beat(os.Args[2:])
		return
	}
	// Most of a round is waiting. A flag of the command line comes after this and wins.
	_ = flag.Set("test.parallel", "4")
	flag.Parse()
	os.Exit(build(m))
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "torture-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "simba")
	cmd := exec.Command("go", "build", "-o", binary, "github.com/simba-lock/simba")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// beat is a worker of a job: it appends a line with the time since boot to a
// log, 50 times a second, for so long. "deaf" ones ignore what asks them to end.
//
//	beat LABEL LOG DURATION [deaf]
func beat(args []string) {
	label, path := args[0], args[1]
	d, err := time.ParseDuration(args[2])
	if err != nil {
		panic(err)
	}
	if len(args) > 3 {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	log, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		fmt.Fprintf(log, "%s %d %d\n", label, os.Getpid(), boot())
	}
}

func boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// life is when a label's workers were seen alive.
type life struct{ first, last time.Duration }

func lives(t *testing.T, log string) map[string]life {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]life{}
	for line := range strings.Lines(string(b)) {
		var label string
		var pid int
		var at time.Duration
		if _, err := fmt.Sscan(line, &label, &pid, &at); err != nil {
			continue // the last line of one that was killed in the middle
		}
		l, ok := out[label]
		if !ok {
			l.first = at
		}
		l.last = max(l.last, at)
		out[label] = l
	}
	return out
}
