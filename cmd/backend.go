package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/backend"
	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// backendFlags are those of every command that talks to a backend.
type backendFlags struct {
	url            string
	connectTimeout time.Duration
	config         string
	passwordFile   string

	password string // from wherever it is
}

// backendFlagNames are the ones with variables.
var backendFlagNames = []string{"backend", "connect-timeout", "password-file"}

func (f *backendFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.url, "backend", "b", "file:", "where the mutex lives, as a `URL`")
	f.connectTimeout = lease.DefaultConnectTimeout
	flags.Var(&durationValue{
		d: &f.connectTimeout, min: lease.MinDuration, max: time.Hour, shown: shortDuration(f.connectTimeout),
	}, "connect-timeout", "longest time for the first contact with the backend")
	flags.StringVar(&f.passwordFile, "password-file", "", "`file` whose first line is the backend's password")
	flags.StringVar(&f.config, "config", "", "configuration `file` (default /etc/simba/config.toml, then ~/.config/simba/config.toml)")
}

func (f *backendFlags) check() error {
	if f.url == "" {
		return usagef("the backend is empty: give its URL, or leave out --backend and SIMBA_BACKEND for a local directory")
	}
	return nil
}

// passwordVariable is taken out of the job's environment.
const passwordVariable = "SIMBA_BACKEND_PASSWORD"

// open prepares the backend; the first call to it makes the connection.
func (f *backendFlags) open(ctx context.Context) (lease.Backend, error) {
	b, err := backend.Open(ctx, f.url, backend.Options{
		LiveGuards: guard.Holding,
		Password:   f.password,
	})
	if err != nil {
		return nil, unavailable(badURL(err))
	}
	return b, nil
}

// badURL marks an error about the URL as one of usage.
func badURL(err error) error {
	if errors.Is(err, backend.ErrURL) {
		return usagef("--backend: %w", err)
	}
	return err
}

// hasPassword tells whether there is one in a URL.
func hasPassword(rawURL string) bool {
	_, rest, _ := strings.Cut(rawURL, "://")
	authority, _, _ := strings.Cut(rest, "/")
	userinfo, _, found := strings.Cut(authority, "@")
	return found && strings.Contains(userinfo, ":")
}

// unavailable marks what went wrong with a backend outside of contending, where
// lease does it.
func unavailable(err error) error {
	if statusOf(err) != exitFault {
		return err
	}
	return fmt.Errorf("%w: %w", lease.ErrUnreachable, err)
}

// only is the one mutex that a command is about; its section of the configuration
// counts.
func only(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return ""
}

// mutexNames checks the names and drops those that are given twice.
func mutexNames(args []string) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	for _, name := range args {
		if err := lease.CheckName(name); err != nil {
			return nil, &usageError{err: err}
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names, nil
}

// completeNames offers the mutexes that the backend knows.
func (a *app) completeNames(c *cobra.Command, f *backendFlags) []cobra.Completion {
	if a.settle(c.Flags(), f, "", backendFlagNames...) != nil || f.check() != nil {
		return nil
	}
	f.connectTimeout = time.Second // somebody is looking at the cursor
	b, err := f.open(c.Context())
	if err != nil {
		return nil
	}
	defer func() { _ = b.Close() }()
	ctx, cancel := context.WithTimeout(c.Context(), f.connectTimeout)
	defer cancel()
	names, _ := b.List(ctx)
	return names
}

func (a *app) completeArgs(f *backendFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.completeNames(c, f), cobra.ShellCompDirectiveNoFileComp
	}
}
