package lease_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A mutant is the protocol with one rule switched off by a change of its source.
type mutant struct {
	rule     string
	what     string
	file     string // below the module's root
	old, new string
	unit     string // the unit test that must fail; empty if none looks at this
	seed     uint64 // the world that must go wrong; 0 for the rules of which the simulation knows nothing
}

var mutants = []mutant{
	{"01", "the store looks, and takes later", "backend/backendtest/store.go",
		"\tcase m.owned(now):\n\t\tm.join(c, r.Queue)", "\tcase m.owned(now) && m.rank(c.ID) == 0:\n\t\tm.join(c, r.Queue)",
		"TestRule01OneOwner", 1},
	{"02", "t0 is read when the answer comes", "lease/step.go",
		"\tm.flight = nil\n\tif in.err != nil {", "\tm.flight = nil\n\tf.sent = now\n\tif in.err != nil {",
		"TestRule02CountsFromBeforeTheRequest", 139},
	{"03", "no allowance before the end of the lease", "lease/terms.go",
		"ratePercent = 99", "ratePercent = 104",
		"TestRule03StopsBeforeTheLeaseEnds", 46},
	{"04", "the first error of a renewal ends it", "lease/step.go",
		"\tpause := m.backoff()\n", "\tif f.op == opRenew {\n\t\tm.stop(ErrLost)\n\t}\n\tpause := m.backoff()\n",
		"TestRule04RenewsThroughErrors", 6},
	{"05", "another owner's name is not looked at", "lease/holding.go",
		"\tdefault:\n\t\tm.lose(a)", "\tdefault:\n\t\tm.nextAt = m.lastRenew + m.terms.TTL/3",
		"TestRule05AnotherOwner", 1},
	{"06", "a late renewal takes the stop back", "lease/holding.go",
		"\tif m.stopCause != nil {\n\t\treturn // the lease", "\tif false {\n\t\treturn // the lease",
		"TestRule06NeverTakenBack", 13},
	{"07", "it starts however old the lease is", "lease/terms.go",
		"Held:   t0 + t.TTL,", "Held:   t0 + 3*t.Lease(),",
		"TestRule07TooLateToStart", 3584},
	{"08", "it releases when told to stop", "lease/waiting.go",
		"\tcase holding:\n\t\tm.stop(cause)", "\tcase holding:\n\t\tm.stop(cause)\n\t\tm.depart(now, now+releaseWithin, cause, false)",
		"TestRule08ReleasedAfterTheWork", 23},
	{"09", "a waiter only looks when it is woken", "lease/waiting.go",
		"\treturn now + look\n", "\treturn now + 1000*look + time.Hour\n",
		"TestRule09LostWakeUps", 1},
	{"10", "an emptied store is a free one", "backend/backendtest/store.go",
		"seen.Owner == \"\" ||", "seen.Owner != \"\" || seen.Owner == \"\" ||",
		"TestRule10EmptiedStore", 20},
	{"11", "no tombstone is left", "lease/waiting.go",
		"Tombstone: m.unanswered", "Tombstone: false",
		"TestRule11LateRequestTakesNothing", 191},
	{"12", "nobody compares the clocks", "lease/step.go",
		"\tif clock == 0 {\n", "\tif clock >= 0 {\n",
		"TestRule12ClockSteps", 0},
	{"13", "every error is tried again", "lease/waiting.go",
		"\tcase IsPermanent(err):\n\t\tm.leave(now, err, false)\n", "",
		"TestRule13Permanent", 0},
}

// TestMutants shows that the tests and the simulation see: each must fail when
// its rule is switched off. SIMBA_MUTANT_SEEDS=N looks for the seeds anew.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) {
			bin := m.build(t, root)
			out, err := exec.Command(bin, "-test.run", "^"+m.unit+"$").CombinedOutput()
			if err == nil {
				t.Errorf("%s passes although %s", m.unit, m.what)
			} else if !strings.Contains(string(out), "--- FAIL: "+m.unit) {
				t.Errorf("%s did not fail by itself: %s", m.unit, out)
			}
			if m.seed == 0 {
				return
			}
			if seeds := os.Getenv("SIMBA_MUTANT_SEEDS"); seeds != "" {
				cmd := exec.Command(bin, "-test.run", "^TestSimulation$", "-test.v")
				cmd.Env = append(os.Environ(), "SIMBA_SEEDS="+seeds)
				out, err := cmd.CombinedOutput()
				t.Logf("%v: %s", err, out)
				return
			}
			out, err = exec.Command(bin, "-test.run", "^TestSimulation$", "-sim.seed", strconv.FormatUint(m.seed, 10)).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "seed "+strconv.FormatUint(m.seed, 10)+": at ") {
				t.Errorf("world %d stays right although %s: %.500s", m.seed, m.what, out)
			}
		})
	}
}

// build makes the test binary of this package with the one change.
func (m mutant) build(t *testing.T, root string) string {
	path := filepath.Join(root, m.file)
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		t.Fatalf("%s has the text to change %d times: %q", m.file, n, m.old)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "mutant.test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-o", bin, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}
