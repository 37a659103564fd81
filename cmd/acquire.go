package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/lease"
)

// acquireOptions are those of run that are about the mutex, and where the token goes.
type acquireOptions struct {
	runOptions
	tokenFile string
	watchPID  int

	watch watched
}

var acquireVariables = append([]string{
	"ttl", "transition", "wait", "no-wait", "busy-exit-code", "hold-at-least", "owner-id", "note", tokenFileFlag,
	"verbose", "quiet", "log-format",
}, backendFlagNames...)

func (a *app) newAcquire() *cobra.Command {
	o := &acquireOptions{}
	c := &cobra.Command{
		Use:   "acquire -m NAME [flags]",
		Short: "Hold a mutex for steps that are separate processes",
		Long: `acquire waits for the mutex as run does, prints a token and ends; the mutex stays
held. check, renew and release, which are other processes, are given the token:

  simba acquire -m deploy --ttl 5m --token-file token
  ...
  simba check --token-file token && ./commit.sh
  simba release --token-file token

The lease lasts for --ttl, of which check says yes, and for --transition, in which nobody
else may have the mutex yet. renew begins it anew; nobody else does, unless there is a
--watch-pid. No process is ended when it is lost: the steps have to ask.

Exit status: 0 if it is held, else as that of run:
  64   usage: a wrong flag, name, duration or URL
  69   the backend cannot be reached, or refuses
  70   a fault in simba, or the token could not be written
  75   the mutex stayed busy (see --busy-exit-code)
  128+n  signal n while waiting`,
		Example: `  TOKEN=$(simba acquire -m deploy --ttl 5m) && ./build.sh && simba check "$TOKEN" && ./commit.sh
  simba acquire -m deploy --watch-pid $$ --token-file /run/deploy.token`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(a, c.Flags(), args); err != nil {
				return err
			}
			a.log = newLogger(a.msg, o.level(), o.jsonLog).With(keyMutex, o.mutex)
			return a.acquire(c.Context(), o)
		},
	}
	o.addFlags(c.Flags())
	_ = c.RegisterFlagCompletionFunc("mutex", a.completeArgs(&o.backendFlags))
	return c
}

func (o *acquireOptions) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	all := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.runOptions.addFlags(all)
	// All that is about the mutex, and nothing that is about a job.
	all.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(acquireVariables, f.Name) || f.Name == "mutex" || f.Name == "config" {
			flags.AddFlag(f)
		}
	})
	flags.Lookup("ttl").Usage = "how long the mutex is held without a renewal (default 10s)"
	flags.StringVar(&o.tokenFile, tokenFileFlag, "", "`file` for the token, instead of standard output; made anew, with the mode 0600")
	flags.Var((*pidValue)(&o.watchPID), "watch-pid", "have the lease renewed until this process has ended, and released then")
}

// pidValue is a flag that names a process.
type pidValue int

func (v *pidValue) Type() string { return "pid" }

func (v *pidValue) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.Itoa(int(*v))
}

func (v *pidValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n <= 0 {
		return errors.New("a process is named by a number above 0")
	}
	*v = pidValue(n)
	return nil
}

func (o *acquireOptions) complete(a *app, flags *pflag.FlagSet, args []string) (err error) {
	if len(args) > 0 {
		return usagef("acquire runs no command: run does, and acquire takes --mutex NAME")
	}
	if err := o.settle(a, flags, acquireVariables); err != nil {
		return err
	}
	if o.busyCode == 0 { // without a token nobody may believe that it is held
		if flags.Changed("busy-exit-code") {
			return usagef("--busy-exit-code 0 would say that the mutex is held")
		}
		o.busyCode = exitCodeValue(exitBusy) // what is meant for run
	}
	o.killAfter = 0 // nothing has to be ended before the lease does, so all of it may be used
	if err := o.checkLease(flags); err != nil {
		return err
	}
	o.ttl, o.transition = o.terms.TTL, o.terms.Transition
	if o.tokenFile == "" && flags.Changed(tokenFileFlag) {
		return usagef("--%s names no file", tokenFileFlag)
	}
	if flags.Changed("watch-pid") {
		if o.watch, err = findProcess(o.watchPID); err != nil {
			return usagef("--watch-pid %d: %w", o.watchPID, err)
		}
	}
	return o.checkTokenFile(a)
}

// checkTokenFile finds out before the wait what would stand in the token's way after it.
func (o *acquireOptions) checkTokenFile(a *app) error {
	if o.tokenFile == "" {
		if isNull(a.stdout) {
			return usagef("standard output is closed, or %s, so nobody would have the token: --%s names a file for it",
				os.DevNull, tokenFileFlag)
		}
		return nil
	}
	if err := writable(o.tokenFile); err != nil {
		return usagef("--%s: %w", tokenFileFlag, err)
	}
	return nil
}

// isNull tells whether what is written is lost. A standard output that was closed is the
// null device, too: the runtime opens it in its place.
func isNull(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	null, err := os.Stat(os.DevNull)
	info, err2 := f.Stat()
	if err != nil || err2 != nil {
		return err2 != nil
	}
	a, ok1 := null.Sys().(*syscall.Stat_t)
	b, ok2 := info.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && info.Mode()&os.ModeCharDevice != 0 && a.Rdev == b.Rdev
}

// hand passes the token on. Whoever is to read it may be slow, or frozen: then a signal
// ends acquire all the same, and nobody is served by a token whose ttl is over.
func (o *acquireOptions) hand(ctx context.Context, a *app, token string) error {
	clock := lease.BootClock{}
	late, free := clock.At(clock.Now() + o.ttl)
	defer free()
	done := make(chan error, 1)
	go func() { done <- o.write(a, token) }() // a write that blocks ends with the process
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late:
		err = errors.New("nobody took it before its ttl was over")
	}
	if err != nil {
		err = &coded{fmt.Errorf("the mutex is given back, since the token could not be written: %w", err), exitFault}
	}
	return err
}

func (o *acquireOptions) write(a *app, token string) error {
	if o.tokenFile == "" {
		_, err := fmt.Fprintln(a.stdout, token)
		return err
	}
	return replaceFile(o.tokenFile, token+"\n", 0o600)
}

// staysInStore tells whether a lease on this backend lives in the store alone, so that no
// process has to keep it. Kernel locks and ZooKeeper's sessions end with theirs.
func staysInStore(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	kind, _, _ := strings.Cut(scheme, "+")
	return kind == "redis" || kind == "rediss" || kind == "mysql"
}

func (a *app) acquire(ctx context.Context, o *acquireOptions) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer onSignals(func(sig syscall.Signal) { giveUp(&ended{sig: sig}) })()
	// A reader of the token who is gone must not end acquire with the mutex held.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if !staysInStore(o.url) || o.watch.PID != 0 {
		return a.detach(ctx, o.order(), func(ctx context.Context, token string) error { return o.hand(ctx, a, token) })
	}
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	c := &contention{app: a, o: &o.runOptions, backend: b, info: o.info()}
	return c.run(ctx, func(held context.Context, h *lease.Holder) error {
		held, lost := context.WithCancelCause(held)
		defer lost(nil)
		defer context.AfterFunc(ctx, func() { lost(context.Cause(ctx)) })()
		if err := o.hand(held, a, newToken(&o.runOptions, b.Name(), h).String()); err != nil {
			return err
		}
		return lease.ErrKeep
	})
}

func (o *acquireOptions) order() order {
	return order{
		URL: o.url, Password: o.password, Mutex: o.mutex, TTL: o.ttl, Rest: o.transition, Wait: o.wait, Hold: o.hold,
		ConnectTimeout: o.connectTimeout, IDForm: o.idForm, BusyCode: o.busyCode, Info: o.info(), Watch: o.watch,
		Verbose: o.verbose, Quiet: o.quiet, JSONLog: o.jsonLog,
	}
}

// info names the process for which the mutex is held: the one that is watched, or the
// script that acquire is a step of.
func (o *acquireOptions) info() lease.Info {
	pid := o.watch.PID
	if pid == 0 {
		pid = os.Getppid()
	}
	return lease.Info{PID: pid, User: userName(), Program: programOf(pid), Note: o.note}
}

func newToken(o *runOptions, backend string, h *lease.Holder) *token {
	t := &token{
		Mutex: o.mutex, Owner: h.ID(), Fence: h.Fence(), Backend: backend,
		TTL: int64(o.ttl), Rest: int64(o.transition),
	}
	if o.hold > 0 {
		t.HoldEnd = time.Now().Add(o.hold).UnixMilli()
	}
	return t
}

// contention is a wait for the mutex with what people are told about it, in acquire or in
// its keeper.
type contention struct {
	*app
	o       *runOptions
	backend lease.Backend
	tag     string
	info    lease.Info
}

func (c *contention) run(ctx context.Context, work lease.Work) error {
	o := c.o
	r := &runner{app: c.app, o: o, env: os.Environ(), backend: c.backend}
	switch heldAbove(r.env, c.backend.Name(), o.mutex, c.tag) {
	case proved:
		return usagef("acquire is part of a job that runs under the mutex %s: it would wait for its own ancestor", o.mutex)
	case doubtful:
		if err := r.unproved(ctx); err != nil {
			return err
		}
	case noClaim:
	}
	defer r.warn(ctx)()
	r.line = newWaitingLine(c.app, o, r.acquired)
	defer r.line.erase()
	r.news = &news{log: c.log, line: r.line, o: o}
	waits := true // what comes later is for check to tell
	err := lease.Do(ctx, lease.Config{
		Backend:        c.backend,
		Mutex:          o.mutex,
		Terms:          o.terms,
		Wait:           o.wait,
		Hold:           o.hold,
		ConnectTimeout: o.connectTimeout,
		IDForm:         o.idForm,
		Info:           c.info,
		Observe: func(e lease.Event) {
			if waits {
				r.news.observe(e)
			}
			waits = waits && e.Kind != lease.EventAcquired
		},
	}, func(ctx context.Context, h *lease.Holder) error {
		r.line.erase()
		if err := r.endPrevious(ctx, h); err != nil {
			return err
		}
		return work(ctx, h)
	})
	r.line.erase()
	var busy *lease.BusyError
	if errors.As(err, &busy) {
		text := busyText(busy, r.identify(&busy.Answer), time.Now())
		c.log.Warn(text, keyStatus, int(o.busyCode), keyOwner, busy.Answer.Owner)
		return &ended{code: exitCode(o.busyCode)}
	}
	return err
}

// errUnwanted: the process for which the mutex was to be held ended before.
func errUnwanted(pid int) error {
	return &coded{fmt.Errorf("the process %d, for which it was to be held, has ended", pid), exitBusy}
}
