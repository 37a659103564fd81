package cmd

import (
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/backend"
	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// runOptions are the flags of run, checked.
type runOptions struct {
	backendFlags
	mutex   string
	argv    []string
	terms   lease.Terms
	wait    time.Duration
	timeout time.Duration // 0: none
	hold    time.Duration

	busyCode exitCodeValue
	onLost   guard.OnLost
	signal   signalValue
	leftover guard.Leftover
	idForm   lease.IDForm
	note     string
	hooks    hookFlags

	standby     standbyFlags
	recontend   bool
	metricsFile string

	verbose, quiet, jsonLog bool

	// As given; complete turns them into the ones above.
	command                    string
	ttl, transition, killAfter time.Duration
	noWait                     bool
}

// runVariables are the flags of run that may come from the environment. A mutex
// or a command from there would surprise more than it helps.
var runVariables = append([]string{
	"ttl", "transition", "wait", "no-wait", "busy-exit-code", "on-lost", "signal", "kill-after",
	"timeout", "hold-at-least", "leftover", "owner-id", "note", "recontend", "won-signal", "lost-signal", "fence-file", "metrics-file", "verbose", "quiet", "log-format",
	hookFlag(hookAcquired), hookFlag(hookReleased), hookFlag(hookLost), hookFlag(hookBusy),
}, backendFlagNames...)

func (a *app) newRun() *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use:   "run -m NAME [flags] [--] COMMAND [ARG…]",
		Short: "Run a command while holding a mutex",
		Long: `run waits for the mutex, runs the command while it holds it, and passes on its
exit status. If ownership is lost, the command and all that it started is stopped
before anybody else can own the mutex.

Flags end at the first word that is not one, or at --. Each flag but --mutex and
--command can also be set by a variable, SIMBA_KILL_AFTER=2s for --kill-after, or
in the configuration, kill-after = "2s"; a flag beats a variable beats a file.

With --won-signal and --lost-signal the command is a warm standby: it runs from the
start on, waits with simba and is told when it owns the mutex and when no more. A
command that goes on working after the lost signal is not ended: nothing keeps it
from running beside the next owner then.

Exit status: the command's own, or
  64   usage: a wrong flag, name, duration or URL
  69   the backend cannot be reached, or refuses
  70   a fault in simba
  75   the mutex stayed busy (see --busy-exit-code)
  79   ownership was lost
  124  --timeout ran out
  126  the command cannot be run; 127 it is not found
  128+n  signal n while waiting`,
		Example: `  simba run --mutex nightly-job -- ./backup.sh
  simba run -m nightly-job --wait 10m --timeout 2h -- ./backup.sh /srv
  simba run -m hourly --no-wait --busy-exit-code 0 -- ./sync.sh
  simba run -m leader --won-signal USR1 --lost-signal USR2 -- ./daemon`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(a, c.Flags(), args); err != nil {
				return err
			}
			a.log = newLogger(a.msg, o.level(), o.jsonLog).With(keyMutex, o.mutex)
			return a.run(c.Context(), o)
		},
	}
	o.addFlags(c.Flags())
	_ = c.RegisterFlagCompletionFunc("mutex", a.completeArgs(&o.backendFlags))
	return c
}

func (o *runOptions) addFlags(flags *pflag.FlagSet) {
	flags.SetInterspersed(false)
	flags.SortFlags = false
	flags.StringVarP(&o.mutex, "mutex", "m", "", "`name` of the mutex (required)")
	o.backendFlags.add(flags)
	flags.Var(newLeaseDuration(&o.ttl), "ttl", "how long the mutex is held without a renewal (default 10s)")
	flags.Var(newLeaseDuration(&o.transition), "transition",
		"how long after the ttl only the owner may still renew (default 6s, or ttl/20 if that is more; on ZooKeeper the ttl if that is less)")
	o.wait = lease.Forever
	flags.VarP(&durationValue{d: &o.wait, max: maxWait, word: "forever", wordIs: lease.Forever, shown: "forever"},
		"wait", "w", "how long to wait for the mutex; 0 tries once")
	flags.BoolVarP(&o.noWait, "no-wait", "n", false, "the same as --wait 0")
	o.busyCode = exitCodeValue(exitBusy)
	flags.VarP(&o.busyCode, "busy-exit-code", "E", "exit status if the mutex stayed busy")
	flags.Var(&choiceValue[guard.OnLost]{
		v: &o.onLost, words: []string{"stop", "kill", "signal", "warn"},
		are: []guard.OnLost{guard.LostStop, guard.LostKill, guard.LostSignal, guard.LostWarn},
	}, "on-lost", "what happens to the job if ownership is lost: stop signal, then KILL; KILL at once; only the signal; only a message")
	o.signal = signalValue(syscall.SIGTERM)
	flags.Var(&o.signal, "signal", "the stop signal, by name or number")
	o.killAfter = lease.Unset
	flags.Var(&durationValue{d: &o.killAfter, max: lease.MaxDuration},
		"kill-after", "time between the stop signal and KILL (default 5s, or what fits)")
	flags.Var(&durationValue{d: &o.timeout, min: time.Millisecond, max: maxWait, word: "none", shown: "none"},
		"timeout", "longest time the job may run; then it is stopped")
	flags.Var(&durationValue{d: &o.hold, max: maxWait, shown: "0s"}, "hold-at-least",
		"keep the mutex from everybody for so long after it was acquired, also when the command ends sooner")
	flags.Var(&choiceValue[guard.Leftover]{
		v: &o.leftover, words: []string{"stop", "wait", "leave"},
		are: []guard.Leftover{guard.LeftoverStop, guard.LeftoverWait, guard.LeftoverLeave},
	}, "leftover", "what happens to processes that outlive the command")
	flags.Var(&choiceValue[lease.IDForm]{
		v: &o.idForm, words: []string{"host", "uuid"}, are: []lease.IDForm{lease.IDHost, lease.IDUUID},
	}, "owner-id", "form of the id under which the mutex is held")
	flags.StringVar(&o.note, "note", "", "`text` that status shows")
	o.hooks.add(flags)
	flags.StringVar(&o.metricsFile, "metrics-file", "", "`file` for node_exporter's textfile collector, one a mutex")
	flags.BoolVar(&o.recontend, "recontend", false, "after a loss wait for the mutex again, and start the command anew")
	o.standby.add(flags)
	flags.StringVarP(&o.command, "command", "c", "", "the command as one `string`, split into words as by a shell; none is run")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "also tell what happens")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "tell errors only")
	flags.Var(&choiceValue[bool]{v: &o.jsonLog, words: []string{"text", "json"}, are: []bool{false, true}},
		"log-format", "form of simba's own messages")
}

// complete adds variables and configuration, checks everything and touches nothing.
func (o *runOptions) complete(a *app, flags *pflag.FlagSet, args []string) error {
	if err := o.settle(a, flags, runVariables); err != nil {
		return err
	}
	return o.check(flags, args)
}

// check looks at what was given, wherever it came from.
func (o *runOptions) check(flags *pflag.FlagSet, args []string) (err error) {
	if err := o.checkLease(flags); err != nil {
		return err
	}
	if o.argv, err = commandWords(o.command, flags.Changed("command"), args); err != nil {
		return err
	}
	if err := o.hooks.complete(); err != nil {
		return err
	}
	return o.standby.check(o)
}

// checkLease is about all that is not about a command.
func (o *runOptions) checkLease(flags *pflag.FlagSet) (err error) {
	if o.mutex == "" && !flags.Changed("mutex") {
		return usagef("no mutex given: --mutex NAME is required")
	}
	if err := lease.CheckName(o.mutex); err != nil {
		return &usageError{err: err}
	}
	if err := o.backendFlags.check(); err != nil {
		return err
	}
	if o.verbose && o.quiet {
		return usagef("-v and -q exclude each other")
	}
	if len(o.note) > maxNote {
		return usagef("--note has %d bytes, at most %d are allowed", len(o.note), maxNote)
	}
	if o.transition == lease.Unset {
		o.transition = backend.Transition(o.url, o.ttl)
	}
	if o.terms, err = lease.NewTerms(o.ttl, o.transition, o.killAfter); err != nil {
		return &usageError{err: err}
	}
	return nil
}

// maxNote keeps records small: they are rewritten at each renewal.
const maxNote = 512

// settle adds what stands elsewhere. Two names of one setting, as --wait and --no-wait, are
// settled as one: a flag for either beats the variables of both.
func (o *runOptions) settle(a *app, flags *pflag.FlagSet, names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		other, one := exclusive[name]
		return one && (flags.Changed(name) || flags.Changed(other))
	})
	waited := o.wait
	if err := a.settle(flags, &o.backendFlags, o.mutex, names...); err != nil {
		return err
	}
	if !o.noWait {
		return nil
	}
	if (flags.Changed("wait") || o.wait != waited) && o.wait != 0 {
		return usagef("--no-wait and --wait exclude each other")
	}
	o.wait = 0
	return nil
}

// commandWords is the command, given as words or as one string.
func commandWords(command string, given bool, args []string) ([]string, error) {
	switch {
	case given && len(args) > 0:
		return nil, usagef("give the command either with --command or as words, not both")
	case given:
		words, err := splitWords(command)
		if err != nil {
			return nil, usagef("--command %q: %w", command, err)
		}
		return words, nil
	case len(args) == 0:
		return nil, usagef("no command to run: it stands at the end, after --")
	}
	return args, nil
}

func (o *runOptions) level() slog.Level {
	switch {
	case o.quiet:
		return slog.LevelError
	case o.verbose:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
