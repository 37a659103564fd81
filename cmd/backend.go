package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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
	urlFrom  string // what named the backend, for messages
}

// backendFlagNames are the ones with variables.
var backendFlagNames = []string{backendKey, connectTimeoutKey, passwordFileKey}

func (f *backendFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.url, "backend", "b", "file:", "where the mutex lives, as a `URL`")
	f.connectTimeout = lease.DefaultConnectTimeout
	flags.Var(&durationValue{
		d: &f.connectTimeout, min: lease.MinDuration, max: time.Hour, shown: shortDuration(f.connectTimeout),
	}, "connect-timeout", "longest time for the first contact with the backend")
	flags.StringVar(&f.passwordFile, "password-file", "", "`file` whose first line is the backend's password")
	flags.StringVar(&f.config, "config", "", "configuration `file` (default /etc/simba/config.toml, then ~/.config/simba/config.toml)")
}

// check finds what is wrong with the URL while it is known what it is from.
func (f *backendFlags) check() error {
	if f.url == "" {
		return usagef("%s: the backend is empty: give its URL, or leave out --backend and SIMBA_BACKEND for a local directory", f.urlFrom)
	}
	if f.urlFrom == "--"+backendKey {
		return nil
	}
	_, err := backend.Tag(context.Background(), f.url, "")
	return f.badURL(err)
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
		return nil, unavailable(f.badURL(err))
	}
	return b, nil
}

func (f *backendFlags) badURL(err error) error {
	if errors.Is(err, backend.ErrURL) && f.urlFrom != "" {
		return usagef("%s: %w", f.urlFrom, err)
	}
	return badURL(err)
}

// badURL marks an error about the URL as one of usage.
func badURL(err error) error {
	if errors.Is(err, backend.ErrURL) {
		return usagef("--backend: %w", err)
	}
	return err
}

// hasPassword tells whether there is one in a URL, also for another server, as in
// sentinel_password.
func hasPassword(rawURL string) bool {
	_, rest, _ := strings.Cut(rawURL, "://")
	authority, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 && strings.Contains(authority[:at], ":") {
		return true
	}
	_, query, _ := strings.Cut(rawURL, "?")
	query, _, _ = strings.Cut(query, "#")
	parameters, _ := url.ParseQuery(query) // what it cannot read, no backend can
	for name := range parameters {
		if strings.HasSuffix(strings.ToLower(name), "password") {
			return true
		}
	}
	return false
}

// sameBackend tells whether a URL that was given names the backend of the
// configuration. A job is given its name in full and without the password.
func sameBackend(given, configured string) bool {
	if given == configured {
		return true
	}
	name := backendName(given)
	return name != "" && !hasPassword(given) && name == backendName(configured)
}

// backendName is the URL as a backend itself writes it; empty if it names none.
func backendName(rawURL string) string {
	b, err := backend.Open(context.Background(), rawURL, backend.Options{})
	if err != nil {
		return ""
	}
	defer func() { _ = b.Close() }()
	return b.Name()
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
