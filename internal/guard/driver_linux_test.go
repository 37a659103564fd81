package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays three parts besides its own: the guard, a wrapper, and jobs. modeVariable chooses.
const (
	modeVariable = "GUARD_TEST_MODE"
	markVariable = "GUARD_TEST_MARK" // in the environment of everything a test starts, except guards
)

func TestMain(m *testing.M) {
	mode := os.Getenv(modeVariable)
	if mode == "" {
		os.Exit(m.Run())
	}
	os.Unsetenv(modeVariable)
	switch mode {
	case "wrapper":
		os.Exit(wrapper(os.Args[1:]))
	default:
		os.Exit(jobMode(mode, os.Args[1:]))
	}
}

// option reads a setting of the wrapper from the environment: WRAP_NAME.
func option(name string) string { return os.Getenv("WRAP_" + name) }

func optionDuration(name string) time.Duration {
	ms, _ := strconv.ParseFloat(option(name), 64)
	return time.Duration(ms * float64(time.Millisecond))
}

// say appends a line to the wrapper's log.
func say(format string, args ...any) {
	f, err := os.OpenFile(option("LOG"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%d %s\n", Now().Microseconds(), fmt.Sprintf(format, args...))
}

func wrapperConfig() Config {
	onLost, _ := strconv.Atoi(option("ONLOST"))
	leftover, _ := strconv.Atoi(option("LEFTOVER"))
	cfg := Config{
		Tag:       option("TAG"),
		KillAfter: optionDuration("KILLAFTER"),
		OnLost:    OnLost(onLost),
		Leftover:  Leftover(leftover),
		OnSignal: func(s syscall.Signal) {
			say("onsignal %d", s)
			if option("WAITING") != "" {
				DieOf(s)
			}
		},
	}
	return cfg
}

// wrapper does what the tool does, without a mutex: it starts a guard, gives it the job, renews, and ends
// as the job ended.
func wrapper(argv []string) int {
	before := time.Now()
	g, err := Launch(wrapperConfig())
	if err != nil {
		say("launch failed: %v", err)
		return 70
	}
	defer g.Close()
	say("launched %d after %d", os.Getpid(), time.Since(before).Microseconds())
	if option("WAITING") != "" {
		select {}
	}
	path, full, err := Find(argv, os.Environ())
	if err != nil {
		say("find: %v", err)
		return findStatus(err)
	}
	time.Sleep(optionDuration("DELAY"))
	o := Order{Path: path, Argv: full, Env: os.Environ()}
	stop, kill := optionDuration("STOP"), optionDuration("KILL")
	deadlines := func() Deadlines {
		if stop == 0 {
			return Deadlines{}
		}
		return Deadlines{Now() + stop, Now() + kill}
	}
	o.Deadlines = deadlines()
	if by := optionDuration("STARTBY"); by != 0 {
		o.StartBy = Now() + by
	}
	if name := option("HOLD"); name != "" {
		f, err := os.Open(name)
		if err == nil {
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			say("hold: %v", err)
			return 70
		}
		defer f.Close()
		o.Hold = []*os.File{f}
	}
	if option("STEPS") != "" {
		o = Order{Path: path, Argv: full, Env: os.Environ(), Standby: true}
	}
	before = time.Now()
	pid, err := g.Start(context.Background(), o)
	if err != nil {
		say("start: %v", err)
		return findStatus(err)
	}
	say("started %d after %d stop %d kill %d", pid, time.Since(before).Microseconds(),
		o.Deadlines.Stop.Microseconds(), o.Deadlines.Kill.Microseconds())
	if option("STEPS") != "" {
		go conduct(g, deadlines) // until the job is gone
	}
	return attend(g, deadlines)
}

func findStatus(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return 127
	case errors.Is(err, ErrNotRunnable):
		return 126
	case errors.Is(err, ErrLate):
		return 75
	}
	return 70
}

// attend renews and obeys the test until the job is gone.
func attend(g *Guard, deadlines func() Deadlines) int {
	var renew <-chan time.Time
	if every := optionDuration("RENEW"); every != 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		renew = t.C
	}
	var command <-chan time.Time
	if option("COMMAND") != "" {
		ready := make(chan time.Time)
		command = ready
		go func() { // until the job is ready
			for {
				if _, err := os.Stat(option("READY")); err == nil {
					ready <- time.Now()
					return
				}
				time.Sleep(2 * time.Millisecond)
			}
		}()
	}
	for {
		select {
		case <-renew:
			g.Extend(deadlines())
		case <-command:
			say("command %s", option("COMMAND"))
			switch option("COMMAND") {
			case "stop":
				g.Stop()
			case "kill":
				g.Kill()
			case "lost":
				g.Lost()
			case "signal":
				g.Signal(syscall.SIGUSR1)
			}
		case n := <-g.Notices():
			say("notice %d %v %s %v", n.Kind, n.PIDs, strings.Join(n.Names, ","), n.Err)
		case <-g.Done():
			s := g.Wait()
			for range len(g.Notices()) {
				n := <-g.Notices()
				say("notice %d %v %s %v", n.Kind, n.PIDs, strings.Join(n.Names, ","), n.Err)
			}
			say("done known=%v code=%d signal=%d stopped=%v guarddied=%v left=%v", s.Known, s.Code, s.Signal, s.Stopped, s.GuardDied, s.Left)
			fmt.Fprintln(os.Stderr, "wrapper: done")
			before := time.Now()
			g.Close()
			say("closed after %d", time.Since(before).Microseconds())
			if s.Signal != 0 {
				DieOf(s.Signal)
				return 128 + int(s.Signal)
			}
			if !s.Known {
				return 70
			}
			return s.Code
		}
	}
}

// jobMode is a job that a shell cannot play.
func jobMode(mode string, args []string) int {
	switch mode {
	case "sweeper":
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ended, stuck, err := EndByEnv(ctx, args[0])
		fmt.Println(ended, stuck, err)
		if err != nil || len(stuck) > 0 {
			return 1
		}
		return 0
	case "counter":
		// Counts the signals it gets for as long as it is asked to, then prints the count.
		c := make(chan os.Signal, 100)
		signal.Notify(c, syscall.SIGINT)
		say("counting")
		for n := 0; ; {
			select {
			case <-c:
				n++
				say("count %d", n)
			case <-time.After(optionDuration("COUNT")):
				fmt.Printf("count=%d\n", n)
				return 0
			}
		}
	}
	return 99
}
