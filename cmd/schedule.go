package cmd

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/internal/cron"
	"github.com/simba-lock/simba/internal/schedule"
)

// scheduleOptions are the flags of schedule, checked.
type scheduleOptions struct {
	runOptions

	every        time.Duration // 0: by the calendar
	cron, zone   string
	initialDelay time.Duration
	fixedDelay   bool
	maxFailures  int
	listen       string

	calendar schedule.Calendar
}

// sharedWithRun are the flags that mean the same to each run of a schedule, or to
// the ownership around them.
var sharedWithRun = append([]string{
	"ttl", "transition", "on-lost", "signal", "kill-after", "timeout", "leftover", "owner-id", "note",
	"metrics-file", "verbose", "quiet", "log-format",
	hookFlag(hookAcquired), hookFlag(hookReleased), hookFlag(hookLost),
}, backendFlagNames...)

// ofSchedule are its own flags that have variables and may be configured.
var ofSchedule = []string{"every", "cron", "tz", "initial-delay", "strategy", "max-failures", "metrics-listen"}

func (a *app) newSchedule() *cobra.Command {
	o := &scheduleOptions{}
	c := &cobra.Command{
		Use:   "schedule -m NAME (--every DUR | --cron EXPR) [flags] [--] COMMAND [ARG…]",
		Short: "Run a command again and again, on one of many hosts",
		Long: `schedule waits for the mutex and, as long as it owns it, runs the command each
time that is due; the same schedule on other hosts stands by. A tick that was begun
on one host is not begun again by another, nor after a restart. Ticks that pass
while a run lasts, or while nobody owns the mutex, are made up for by one run.

If ownership is lost the run is stopped and this host stands by again. TERM lets a run
finish, a second one stops it; INT, HUP and QUIT do the same. USR1 has it say what it is
doing. A run that fails is told and changes nothing, see --max-failures.

The five fields of --cron are those of cron; @hourly, @daily, @weekly, @monthly and
@yearly are known.

Exit status: 0 after TERM, 128+n after another signal n or a second one, or
  64   usage: a wrong flag, name, duration, expression or URL
  69   the backend cannot be reached when it begins, or refuses
  126  the command cannot be run; 127 it is not found
  that of the last run if --max-failures of them failed in a row`,
		Example: `  simba schedule -m cleanup --every 10m -- ./cleanup.sh
  simba schedule -m nightly-job --cron '30 2 * * *' --tz Europe/Berlin -- ./backup.sh
  simba schedule -m poll --every 5s --strategy fixed-delay --max-failures 10 -- ./poll`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(a, c.Flags(), args); err != nil {
				return err
			}
			a.log = newLogger(a.msg, o.level(), o.jsonLog).With(keyMutex, o.mutex)
			return a.schedule(c.Context(), o)
		},
	}
	o.addFlags(c.Flags())
	_ = c.RegisterFlagCompletionFunc("mutex", a.completeArgs(&o.backendFlags))
	return c
}

// maxEvery: a longer period is a date, and a matter for --cron.
const maxEvery = 366 * 24 * time.Hour

func (o *scheduleOptions) addFlags(flags *pflag.FlagSet) {
	flags.SetInterspersed(false)
	flags.SortFlags = false
	ofRun := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.runOptions.addFlags(ofRun)
	flags.AddFlag(ofRun.Lookup("mutex"))
	flags.Var(&durationValue{d: &o.every, min: 100 * time.Millisecond, max: maxEvery}, "every", "time from tick to tick")
	flags.StringVar(&o.cron, "cron", "", "when it is due, as an `expression` of five fields, 'MINUTE HOUR DAY MONTH WEEKDAY', or @hourly and the like")
	flags.StringVar(&o.zone, "tz", "", "time `zone` of --cron, as Europe/Berlin or UTC (default that of the host)")
	flags.Var(&choiceValue[bool]{v: &o.fixedDelay, words: []string{"fixed-rate", "fixed-delay"}, are: []bool{false, true}},
		"strategy", "whether --every counts from tick to tick or from the end of a run to the next tick")
	flags.Var(&durationValue{d: &o.initialDelay, max: maxEvery, shown: "0s"}, "initial-delay",
		"how long after its start this process runs nothing")
	flags.Var((*countValue)(&o.maxFailures), "max-failures", "end when so many runs in a row have failed; 0: never")
	ofRun.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(sharedWithRun, f.Name) || f.Name == "config" || f.Name == "command" {
			flags.AddFlag(f)
		}
	})
	flags.StringVar(&o.listen, "metrics-listen", "", "`address` at which metrics are served for Prometheus, as :9500")
}

func (o *scheduleOptions) complete(a *app, flags *pflag.FlagSet, args []string) error {
	if err := o.settle(a, flags, slices.Concat(ofSchedule, sharedWithRun)); err != nil {
		return err
	}
	if err := o.check(flags, args); err != nil {
		return err
	}
	switch {
	case o.every == 0 && o.cron == "":
		return usagef("when is it due? --every DUR or --cron EXPR is required")
	case o.every != 0 && o.cron != "":
		return usagef("--every and --cron exclude each other")
	case o.cron == "" && o.zone != "":
		return usagef("--tz is for --cron")
	case o.cron == "":
		return nil
	case o.fixedDelay:
		return usagef("--strategy fixed-delay is for --every; the ticks of --cron are fixed")
	}
	zone, err := cron.Zone(o.zone)
	if err != nil {
		return usagef("--tz: %w", err)
	}
	spec, err := cron.Parse(o.cron, zone)
	if err != nil {
		return usagef("--cron: %w", err)
	}
	if spec.Next(time.Now()).IsZero() {
		return usagef("--cron %q: there is no such day", o.cron)
	}
	o.calendar = spec
	return nil
}

func (o *scheduleOptions) plan(start time.Time) schedule.Plan {
	return schedule.Plan{
		Every: o.every, FixedDelay: o.fixedDelay, Calendar: o.calendar,
		NotBefore: start.Add(o.initialDelay).Truncate(time.Millisecond),
	}
}

// says is when it is due, for people.
func (o *scheduleOptions) says() string {
	if o.calendar != nil {
		return fmt.Sprintf("%q", o.cron)
	}
	return "every " + shortDuration(o.every)
}
