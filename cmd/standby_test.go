package cmd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

var errSignal = errors.New("a signal")

// What a contention does about a store that is away, by whether it is another time.
func TestContendWhileTheStoreIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		again bool
		wait  time.Duration
		away  time.Duration
		end   time.Duration // of the context; 0: never
		fails error         // of the store
		want  error         // nil: the work is done; errAny: some other error
		took  [2]time.Duration
	}{
		"the first time":      {false, lease.Forever, time.Hour, 0, nil, lease.ErrUnreachable, [2]time.Duration{time.Second, 2 * time.Second}},
		"again, not at all":   {true, lease.Forever, 0, 0, nil, nil, [2]time.Duration{comeback, comeback + time.Second}},
		"again, for a while":  {true, lease.Forever, 30 * time.Second, 0, nil, nil, [2]time.Duration{30 * time.Second, 33 * time.Second}},
		"again, for a day":    {true, lease.Forever, 24 * time.Hour, 0, nil, nil, [2]time.Duration{24 * time.Hour, 24*time.Hour + 3*time.Second}},
		"longer than --wait":  {true, 20 * time.Second, time.Hour, 0, nil, lease.ErrUnreachable, [2]time.Duration{20 * time.Second, 23 * time.Second}},
		"without a wait":      {true, 0, time.Hour, 0, nil, lease.ErrUnreachable, [2]time.Duration{time.Second, 5 * time.Second}},
		"a signal":            {true, lease.Forever, time.Hour, 10 * time.Second, nil, errSignal, [2]time.Duration{10 * time.Second, 11 * time.Second}},
		"a signal, too early": {true, lease.Forever, 0, time.Millisecond, nil, errSignal, [2]time.Duration{time.Millisecond, time.Millisecond}},
		"a refusal":           {true, lease.Forever, time.Hour, 0, lease.Permanent(errors.New("wrong password")), errAny, [2]time.Duration{comeback, comeback + time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := backendtest.BubbleClock{}
				store := backendtest.NewMemory("memory", clock)
				if test.away > 0 {
					remove := store.Inject(backendtest.Fault{Do: backendtest.Fail, Err: test.fails})
					defer time.AfterFunc(test.away, remove).Stop()
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				if test.end > 0 {
					defer time.AfterFunc(test.end, func() { cancel(errSignal) }).Stop()
				}
				worked, trouble := false, 0
				began := time.Now()
				err := (&app{}).contend(ctx, lease.Config{
					Backend: store, Mutex: "x", Wait: test.wait, ConnectTimeout: time.Second, Clock: clock,
					Observe: func(e lease.Event) {
						if e.Kind == lease.EventTrouble {
							trouble++
						}
					},
				}, func(context.Context, *lease.Holder) error { worked = true; return nil }, test.again)
				took := time.Since(began)
				right := errors.Is(err, test.want)
				if errors.Is(test.want, errAny) {
					right = err != nil
				}
				if !right || worked != (err == nil) {
					t.Errorf("%v, want %v; worked: %v", err, test.want, worked)
				}
				if took < test.took[0] || took > test.took[1] {
					t.Errorf("it took %v, want %v", took, test.took)
				}
				if test.away > time.Second && test.fails == nil && trouble == 0 {
					t.Error("no trouble was told")
				}
				cancel(nil)
			})
		})
	}
}

var errAny = errors.New("any")

func TestStandbyFlags(t *testing.T) {
	both := []string{"--won-signal", "USR1", "--lost-signal", "USR2"}
	for _, test := range []struct {
		args []string
		want string // part of the error; empty: none
	}{
		{both, ""},
		{append(both, "--hold-at-least", "1m", "--leftover", "wait", "--fence-file", "f"), ""},
		{append(both, "--wait", "forever", "--kill-after", "100ms"), ""},
		{[]string{"--won-signal", "USR1"}, "needed together"},
		{[]string{"--lost-signal", "USR1"}, "needed together"},
		{[]string{"--won-signal", "USR1", "--lost-signal", "SIGUSR1"}, "are the same"},
		{[]string{"--won-signal", "USR1", "--lost-signal", "KILL"}, "KILL"},
		{[]string{"--won-signal", "NOPE", "--lost-signal", "USR1"}, "no such signal"},
		{[]string{"--fence-file", "f"}, "--fence-file needs"},
		{append(both, "--recontend"), "--recontend"},
		{append(both, "--wait", "1m"), "--wait"},
		{append(both, "-n"), "--wait"},
		{append(both, "--timeout", "1m"), "--timeout"},
		{append(both, "--on-lost", "kill"), "--on-lost"},
		{append(both, "--kill-after", "99ms"), "--kill-after"},
	} {
		args := append([]string{"-m", "x"}, append(slices.Clone(test.args), "true")...)
		_, err := parseRun(t, nil, args...)
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		case err != nil && statusOf(err) != exitUsage:
			t.Errorf("%q: exit status %d", test.args, statusOf(err))
		}
	}
}

func TestStandbyEnvironment(t *testing.T) {
	env := standbyEnv([]string{"A=1", "SIMBA_FENCE=7", "SIMBA_OWNER=o", "SIMBA_MUTEX=other", "SIMBA_BACKEND_PASSWORD=p", "SIMBA_HELD=h"},
		"file:///x", "m")
	slices.Sort(env)
	if got := strings.Join(env, " "); got != "A=1 SIMBA_BACKEND=file:///x SIMBA_HELD=h SIMBA_MUTEX=m" {
		t.Error(got)
	}
}
