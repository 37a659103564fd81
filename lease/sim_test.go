package lease_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run only the world of this seed, and trace it")
	simFirst = flag.Uint64("sim.first", 1, "first seed")
)

// simTime is how long the simulation goes on in an ordinary test run.
const simTime = time.Minute

// TestSimulation looks for a seed under which two jobs run at once, a fence
// falls, or nobody gets on. SIMBA_SEEDS=N tries that many; otherwise it tries
// as many as the time holds.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		w := newWorld(*simSeed)
		w.trace = func(s string) { t.Log(s) }
		if wrong := w.run(); wrong != "" {
			t.Fatalf("seed %d: %s", *simSeed, wrong)
		}
		return
	}
	seeds, deadline := uint64(1<<62), time.Now().Add(simTime)
	if s := os.Getenv("SIMBA_SEEDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds, deadline = n, time.Now().Add(24*time.Hour)
	}
	tried, wrong := simulate(*simFirst, seeds, deadline)
	t.Logf("%d worlds", tried)
	if wrong != "" {
		t.Fatalf("%s; trace it with -run TestSimulation -sim.seed", wrong)
	}
	if tried < 100 {
		t.Fatalf("only %d worlds were tried", tried)
	}
}

func simulate(first, seeds uint64, deadline time.Time) (uint64, string) {
	var next, tried atomic.Uint64
	next.Store(first)
	var mu sync.Mutex
	var wrong string
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for time.Now().Before(deadline) {
				seed := next.Add(1) - 1
				if seed >= first+seeds {
					return
				}
				w := newWorld(seed)
				bad := w.run()
				tried.Add(1)
				if bad != "" {
					mu.Lock()
					if wrong == "" {
						wrong = fmt.Sprintf("seed %d: %s", seed, bad)
					}
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return tried.Load(), wrong
}
