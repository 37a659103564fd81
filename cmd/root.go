// Package cmd is simba's command line: flags, output and exit statuses. What it
// does with them is the work of lease, backend and internal/guard.
package cmd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/internal/guard"
)

// app is what the commands share.
type app struct {
	stdout io.Writer
	stderr *os.File
	msg    *messages
	log    *slog.Logger
	// getenv is os.LookupEnv.
	getenv func(string) (string, bool)
}

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	a := &app{
		stdout: os.Stdout,
		stderr: os.Stderr,
		msg:    newMessages(os.Stderr),
		getenv: os.LookupEnv,
	}
	a.log = newLogger(a.msg, slog.LevelWarn, false)
	root := a.newRoot()
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(context.Background())
	guard.Discard() // of a run that never began
	return a.finish(ran, err)
}

// finish says what went wrong and turns it into the exit status.
func (a *app) finish(ran *cobra.Command, err error) int {
	status := statusOf(err)
	var end *ended
	if err != nil && !errors.As(err, &end) {
		a.log.Error(message(ran, err), keyStatus, int(status))
	}
	a.msg.flush()
	if end != nil && end.sig != 0 {
		guard.DieOf(end.sig)
	}
	return int(status)
}

// message is an error with a hint where one helps.
func message(ran *cobra.Command, err error) string {
	var usage *usageError
	if !errors.As(err, &usage) {
		return err.Error()
	}
	path := "simba"
	if ran != nil {
		path = ran.CommandPath()
	}
	return err.Error() + "; see '" + path + " --help'"
}

func (a *app) newRoot() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "simba",
		Short: "Run a command while holding a named mutex, on one host or across many",
		Long: `simba runs a command while it holds a named mutex, on one host or across many.
No two jobs of one mutex ever run at the same time.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usagef("unknown command %q", args[0])
			case version:
				return nil
			}
			return usagef("no command given, as in: simba run --mutex NAME -- COMMAND")
		},
		RunE: func(*cobra.Command, []string) error { return a.version() },
	}
	root.Flags().BoolVar(&version, "version", false, "print the version")
	root.SetOut(a.stdout)
	root.SetErr(a.msg)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err: flagError(err)} })
	root.AddCommand(a.newRun(), a.newSchedule(), a.newStatus(), a.newWatch(), a.newRelease(), a.newDoctor(), a.newVersion())
	root.AddCommand(a.newAcquire(), a.newRenew(), a.newCheck(), a.newHold())
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(*cobra.Command, []string) error {
			return usagef("completion needs the name of a shell: bash, zsh, fish or powershell")
		}
		for _, shell := range c.Commands() {
			shell.Args = noArgs
		}
	}
	return root
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments", c.Name())
	}
	return nil
}

// flagError says what is wrong with a flag the way the rest of simba does.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &invalid):
		return badValue("--"+invalid.GetFlag().Name, invalid.GetFlag(), invalid.GetValue(), invalid.Unwrap())
	case errors.As(err, &unknown):
		if s := unknown.GetSpecifiedShortnames(); s != "" {
			return usagef("unknown flag -%.1s", s)
		}
		return usagef("unknown flag --%s", unknown.GetSpecifiedName())
	case errors.As(err, &missing):
		return usagef("flag --%s needs a value", missing.GetFlag().Name)
	}
	return err
}

// badValue names where a wrong value came from, and what is allowed there.
func badValue(from string, f *pflag.Flag, value string, cause error) error {
	if f.Value.Type() == "bool" {
		cause = errors.New("true or false is allowed")
	}
	if f.Name == "backend" { // may hold a password
		return usagef("%s: %w", from, cause)
	}
	return usagef("%s %q: %w", from, value, cause)
}
