package cmd

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// parseRun parses the arguments of run without running anything.
func parseRun(t *testing.T, env map[string]string, args ...string) (*runOptions, error) {
	t.Helper()
	a := &app{getenv: func(k string) (string, bool) { v, ok := env[k]; return v, ok }}
	o := &runOptions{}
	c := &cobra.Command{
		Use: "run", SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, args []string) error { return o.complete(a, c.Flags(), args) },
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err: flagError(err)} })
	o.addFlags(c.Flags())
	c.SetArgs(args)
	return o, c.Execute()
}

func TestRunDefaults(t *testing.T) {
	o, err := parseRun(t, nil, "-m", "x", "true")
	if err != nil {
		t.Fatal(err)
	}
	want, err := lease.NewTerms(10*time.Second, 6*time.Second, lease.Unset)
	if err != nil {
		t.Fatal(err)
	}
	if o.terms != want || o.wait != lease.Forever || o.timeout != 0 || o.busyCode != 75 || o.url != "file:" ||
		o.signal != signalValue(syscall.SIGTERM) || o.connectTimeout != 10*time.Second {
		t.Errorf("%+v", o)
	}
}

func TestRunLeavesTheCommandAlone(t *testing.T) {
	for _, args := range [][]string{
		{"-m", "x", "--", "-v", "--version", "--", "a b", ""},
		{"-m", "x", "cmd", "-v", "--help", "--ttl", "nonsense", "--"},
	} {
		o, err := parseRun(t, nil, args...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		want := args[2:]
		if want[0] == "--" {
			want = want[1:]
		}
		if !slices.Equal(o.argv, want) || o.verbose {
			t.Errorf("%q: command %q", args, o.argv)
		}
	}
}

func TestRunUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, env, says string }{
		{"-m x", "", "no command"},
		{"true", "", "--mutex"},
		{"-m x -c a b", "", "not both"},
		{"-m a//b true", "", "letter"},
		{"-m x -b  true", "", "empty"},
		{"-m x --ttl 10 true", "", "unit"},
		{"-m x --ttl 0 true", "", "100ms to 24h"},
		{"-m x --ttl -1s true", "", "100ms to 24h"},
		{"-m x --ttl 1ns true", "", "100ms to 24h"},
		{"-m x --ttl 999µs true", "", "100ms to 24h"},
		{"-m x --ttl 1e9h true", "", "100ms to 24h"},
		{"-m x --ttl 25h true", "", "100ms to 24h"},
		{"-m x --transition 0 true", "", "100ms to 24h"},
		{"-m x --ttl 24h --transition 100ms true", "", "exceed the transition"},
		{"-m x --kill-after 7s true", "", "may be at most"},
		{"-m x --wait -1s true", "", "forever"},
		{"-m x --timeout 0 true", "", "none"},
		{"-m x --connect-timeout 0 true", "", "100ms to 1h"},
		{"-m x -E 256 true", "", "0 to 255"},
		{"-m x -E -1 true", "", "0 to 255"},
		{"-m x --signal KILLER true", "", "no such signal"},
		{"-m x --signal 0 true", "", "no such signal"},
		{"-m x --signal STOP true", "", "freezes"},
		{"-m x --on-lost panic true", "", "stop, kill, signal, warn"},
		{"-m x --leftover eat true", "", "stop, wait, leave"},
		{"-m x --log-format xml true", "", "text, json"},
		{"-m x -v -q true", "", "exclude"},
		{"-m x -n -w 3s true", "", "exclude"},
		{"-m x --nonsense true", "", "unknown flag --nonsense"},
		{"-m x -X true", "", "unknown flag -X"},
		{"-m x true", "SIMBA_TTL=5", "variable SIMBA_TTL"},
		{"-m x true", "SIMBA_TTL=", "variable SIMBA_TTL"},
		{"-m x true", "SIMBA_BACKEND=", "empty"},
		{"-m x true", "SIMBA_NO_WAIT=perhaps", "variable SIMBA_NO_WAIT"},
		{"-m x true", "SIMBA_KILL_AFTER=1", "variable SIMBA_KILL_AFTER"},
	} {
		env := map[string]string{}
		if k, v, ok := strings.Cut(c.env, "="); ok {
			env[k] = v
		}
		_, err := parseRun(t, env, strings.Split(c.args, " ")...)
		if err == nil || statusOf(err) != exitUsage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v, want a usage error with %q", c.env, c.args, err, c.says)
		}
	}
}

func TestFlagBeatsVariable(t *testing.T) {
	env := map[string]string{
		"SIMBA_TTL": "20s", "SIMBA_TIMEOUT": "1h", "SIMBA_NO_WAIT": "true", "SIMBA_ON_LOST": "kill",
		"SIMBA_MUTEX": "other", "SIMBA_COMMAND": "false", "SIMBA_BUSY_EXIT_CODE": "0",
	}
	o, err := parseRun(t, env, "-m", "x", "--timeout", "none", "--wait", "3s", "true")
	if err != nil {
		t.Fatal(err)
	}
	if o.mutex != "x" || o.argv[0] != "true" || o.terms.TTL != 20*time.Second || o.timeout != 0 || o.wait != 3*time.Second ||
		o.onLost != guard.LostKill || o.busyCode != 0 {
		t.Errorf("%+v", o)
	}
	if o, err = parseRun(t, env, "-m", "x", "true"); err != nil || o.wait != 0 {
		t.Errorf("wait %v, %v", o.wait, err)
	}
}

func TestSignalNames(t *testing.T) {
	for _, s := range []string{"TERM", "SIGTERM", "sigterm", "term", "15"} {
		if sig, err := parseSignal(s); err != nil || sig != syscall.SIGTERM {
			t.Errorf("%s: %v, %v", s, sig, err)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want exitCode
	}{
		{nil, 0},
		{usagef("x"), 64},
		{lease.ErrTerms, 64},
		{lease.ErrName, 64},
		{lease.ErrUnreachable, 69},
		{lease.Permanent(errors.New("denied")), 69},
		{errors.New("x"), 70},
		{&lease.BusyError{}, 75},
		{lease.ErrRevoked, 79},
		{errors.Join(lease.ErrLost, errors.New("x")), 79},
		{guard.ErrNotRunnable, 126},
		{guard.ErrNotFound, 127},
		{&ended{sig: syscall.SIGTERM}, 143},
		{&ended{code: 7}, 7},
		{&coded{errors.New("x"), exitTimeout}, 124},
	} {
		if got := statusOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}
