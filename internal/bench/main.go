// Bench measures what simba costs beside flock(1): the wall time of a run, the
// hand-over to a waiter, the size of the binary and the memory of a run. Runs of
// both are interleaved, so that what else the machine does hits them alike; the
// numbers are medians.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	simba := flag.String("simba", "bin/simba", "the binary to measure")
	rounds := flag.Int("rounds", 60, "how often to measure")
	flag.Parse()
	if err := run(*simba, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(simba string, rounds int) error {
	// What is measured shall not inherit descriptors, as from cron: how many are open changes what some calls cost.
	for fd := 3; fd < 1024; fd++ {
		syscall.CloseOnExec(fd)
	}
	simba, err := filepath.Abs(simba)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Setenv("SIMBA_BACKEND", "file://"+filepath.Join(dir, "mutexes")); err != nil {
		return err
	}
	flock := []string{"flock", filepath.Join(dir, "f")}
	held := []string{simba, "run", "-m", "x", "--"}
	if err := compare("run of true", rounds, flock, held, wall); err != nil {
		return err
	}
	if err := compare("hand-over", rounds, flock, held, handOver); err != nil {
		return err
	}
	return footprint(simba, held)
}

func compare(what string, rounds int, a, b []string, measure func([]string) (time.Duration, error)) error {
	var times [2][]time.Duration
	for range rounds {
		for i, under := range [][]string{a, b} {
			d, err := measure(under)
			if err != nil {
				return fmt.Errorf("%s under %s: %w", what, under[0], err)
			}
			times[i] = append(times[i], d)
		}
	}
	flock, simba := median(times[0]), median(times[1])
	fmt.Printf("%-12s  flock %8s  simba %8s  ratio %.2f\n", what, round(flock), round(simba), float64(simba)/float64(flock))
	return nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func under(wrapper []string, job ...string) *exec.Cmd {
	args := append(slices.Clone(wrapper), job...)
	c := exec.Command(args[0], args[1:]...)
	c.Stderr = os.Stderr
	return c
}

func wall(wrapper []string) (time.Duration, error) {
	c := under(wrapper, "true")
	began := time.Now()
	err := c.Run()
	return time.Since(began), err
}

// handOver is the time from the end of a job to the first sign of life of the
// next one, which was waiting.
func handOver(wrapper []string) (time.Duration, error) {
	first, end, err := holder(wrapper)
	if err != nil {
		return 0, err
	}
	next := under(wrapper, "echo")
	life, err := next.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := next.Start(); err != nil {
		return 0, err
	}
	<-time.After(60 * time.Millisecond) // it waits by now
	began := time.Now()
	if err := end.Close(); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(life, make([]byte, 1)); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := next.Wait(); err != nil {
		return 0, err
	}
	return took, first.Wait()
}

// holder runs a job that ends when end is closed, and returns once it is running.
func holder(wrapper []string) (job *exec.Cmd, end io.Closer, err error) {
	job = under(wrapper, "cat")
	in, err := job.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := job.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := job.Start(); err != nil {
		return nil, nil, err
	}
	if _, err := in.Write([]byte{'\n'}); err != nil {
		return nil, nil, err
	}
	_, err = io.ReadFull(out, make([]byte, 1))
	return job, in, err
}

// footprint tells the size of the binary and what a run keeps resident.
func footprint(simba string, wrapper []string) error {
	info, err := os.Stat(simba)
	if err != nil {
		return err
	}
	job, end, err := holder(wrapper)
	if err != nil {
		return err
	}
	var sum int
	for _, pid := range executing(simba) {
		kb, err := resident(pid)
		if err != nil {
			return err
		}
		sum += kb
	}
	fmt.Printf("%-12s  %.1f MB\n", "binary", float64(info.Size())/1e6)
	fmt.Printf("%-12s  %.1f MB in simba and guard\n", "resident", float64(sum)/1e3)
	if err := end.Close(); err != nil {
		return err
	}
	return job.Wait()
}

// executing finds the processes of a binary.
func executing(path string) (pids []int) {
	path, _ = filepath.EvalSymlinks(path)
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		if target, err := os.Readlink(exe); err == nil && target == path {
			if pid, err := strconv.Atoi(strings.Split(exe, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func resident(pid int) (kb int, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}
