package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/lease"
)

type watchOptions struct {
	backendFlags
	names  []string
	asJSON bool
	until  string
}

func (a *app) newWatch() *cobra.Command {
	o := &watchOptions{}
	c := &cobra.Command{
		Use:   "watch [NAME…]",
		Short: "Print what happens to mutexes, as it happens",
		Long: `watch prints the state of the mutexes named, or of all that the backend knows, and
then each change: acquired, transition (not renewed in time), recovered,
released, expired, revoked, waiting, left. After a lost connection it reads the
state again and tells what differs. It writes nothing and disturbs nobody.

Exit status: 0 when --until is reached or nobody reads any more, 64 for a usage
error, 69 if the backend cannot be reached at the start, or refuses.`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(a, c, args); err != nil {
				return err
			}
			return a.watch(c.Context(), o)
		},
		ValidArgsFunction: a.completeArgs(&o.backendFlags),
	}
	o.add(c.Flags())
	c.Flags().VarP(&choiceValue[bool]{v: &o.asJSON, words: []string{"text", "json"}, are: []bool{false, true}},
		"output", "o", "form of what is printed")
	c.Flags().Var(&choiceValue[string]{v: &o.until, words: []string{stateHeld, stateFree}, are: []string{stateHeld, stateFree}},
		"until", "end as soon as all mutexes named are so")
	return c
}

func (o *watchOptions) complete(a *app, c *cobra.Command, args []string) (err error) {
	if err := a.settleAll(c.Flags(), &o.backendFlags, args, backendFlagNames...); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.names, err = mutexNames(args); err != nil {
		return err
	}
	if o.until != "" && len(o.names) == 0 {
		return usagef("--until needs the name of a mutex")
	}
	return nil
}

func (a *app) watch(ctx context.Context, o *watchOptions) error {
	// A reader that is gone is no failure: it has read what it wanted.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f, ok := a.stdout.(*os.File); ok {
		go func() {
			untilUnread(f)
			cancel()
		}()
	}
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	w := &watcher{
		backend: b, names: o.names, until: o.until, limit: o.connectTimeout,
		clock: lease.BootClock{}, seen: map[string]reading{}, nameless: map[string]lease.Instant{}, refused: map[string]string{},
		tell: func(e lease.Event) error {
			if o.asJSON {
				return writeJSONLine(a.stdout, newEventLine(e))
			}
			_, err := fmt.Fprintln(a.stdout, eventText(e))
			return err
		},
		trouble: func(err error) { a.log.Warn(err.Error()) },
	}
	err = w.run(ctx)
	if errors.Is(err, syscall.EPIPE) || ctx.Err() != nil {
		return nil
	}
	return err
}

// eventLine is the JSON of one event. The fields are always there.
type eventLine struct {
	Time  string  `json:"time"`
	Mutex string  `json:"mutex"`
	Event string  `json:"event"`
	State string  `json:"state"` // of the mutex, after it
	Owner *string `json:"owner"` // or the waiter
	Host  *string `json:"host"`
	PID   *int    `json:"pid"`
	Fence *uint64 `json:"fence"`
}

func newEventLine(e lease.Event) eventLine {
	return eventLine{
		Time: *timeOrNull(e.Time), Mutex: e.Mutex, Event: string(e.Kind), State: e.State,
		Owner: orNull(e.Owner), Host: orNull(e.Info.Host), PID: orNull(e.Info.PID), Fence: orNull(e.Fence),
	}
}

func eventText(e lease.Event) string {
	s := fmt.Sprintf("%s  %s  %s", e.Time.Local().Format(time.DateTime), escape(e.Mutex), e.Kind)
	if e.Kind == lease.EventSnapshot {
		s += ": " + e.State
	}
	if e.Owner != "" {
		s += "  " + who(e.Owner, e.Info)
	}
	if e.Fence > 0 {
		s += fmt.Sprintf("  fence %d", e.Fence)
	}
	return s
}
