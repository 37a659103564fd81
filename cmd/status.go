package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/lease"
)

type statusOptions struct {
	backendFlags
	names  []string
	asJSON bool
	quiet  bool
}

func (a *app) newStatus() *cobra.Command {
	o := &statusOptions{}
	c := &cobra.Command{
		Use:   "status [NAME…]",
		Short: "Show who holds mutexes and who waits for them",
		Long: `status shows who holds the mutexes named, or all that the backend knows, and who
waits for them. It writes nothing and disturbs nobody.

Exit status: 0; with -q, which prints nothing, 0 if the mutex is held or kept back and
1 if it is free. 64 for a usage error, 69 if the state is not known.`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(a, c, args); err != nil {
				return err
			}
			return a.status(c.Context(), o)
		},
		ValidArgsFunction: a.completeArgs(&o.backendFlags),
	}
	o.add(c.Flags())
	c.Flags().VarP(&choiceValue[bool]{v: &o.asJSON, words: []string{"table", "json"}, are: []bool{false, true}},
		"output", "o", "form of what is printed")
	c.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print nothing, tell by the exit status")
	return c
}

func (o *statusOptions) complete(a *app, c *cobra.Command, args []string) (err error) {
	if err := a.settleAll(c.Flags(), &o.backendFlags, args, backendFlagNames...); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.names, err = mutexNames(args); err != nil {
		return err
	}
	if o.quiet && len(o.names) != 1 {
		return usagef("-q needs the name of one mutex")
	}
	return nil
}

func (a *app) status(ctx context.Context, o *statusOptions) error {
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	names := o.names
	if len(names) == 0 {
		if names, err = within(ctx, o.connectTimeout, b.List); err != nil {
			return unavailable(err)
		}
	}
	snaps, unknown := inspectAll(ctx, b, names, o.connectTimeout)
	switch {
	case unknown != nil && len(snaps) == 0:
		return unknown
	case o.quiet && stateName(snaps[0]) == stateFree:
		return &ended{code: exitFree}
	case o.quiet:
		return nil
	case o.asJSON:
		err = writeJSON(a.stdout, b.Name(), snaps)
	default:
		err = writeTable(a.stdout, snaps, time.Now())
	}
	return errors.Join(err, unknown)
}

// inspectAll reads what can be read: a mutex that somebody has spoilt, or locked
// away, must not hide the others. The error is about those that are not known.
func inspectAll(ctx context.Context, b lease.Backend, names []string, limit time.Duration) (snaps []lease.Snapshot, unknown error) {
	for _, name := range names {
		s, err := inspect(ctx, b, name, limit)
		switch {
		case err == nil:
			snaps = append(snaps, s)
		case !lease.IsPermanent(err):
			// It is the backend that does not answer; the others would only take
			// as long to say the same.
			return nil, fmt.Errorf("%s: %w", name, unavailable(err))
		case unknown == nil:
			unknown = fmt.Errorf("%s: %w", name, unavailable(err))
		default:
			unknown = fmt.Errorf("%w; %s: %w", unknown, name, err)
		}
	}
	return snaps, unknown
}

func inspect(ctx context.Context, b lease.Backend, name string, limit time.Duration) (lease.Snapshot, error) {
	return within(ctx, limit, func(ctx context.Context) (lease.Snapshot, error) { return b.Inspect(ctx, name) })
}

func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// The states that status and watch print. A mutex promised to a waiter is free.
const (
	stateFree       = "free"
	stateHeld       = "held"
	stateTransition = "transition" // held, but not renewed in time
	stateCooldown   = "cooldown"   // held by nobody, and nobody may have it yet
)

func stateName(s lease.Snapshot) string {
	switch {
	case s.State == lease.Free, s.State == lease.Promised:
		return stateFree
	case s.State == lease.Cooldown:
		return stateCooldown
	case s.TTL <= 0 && s.Lease > 0:
		return stateTransition
	}
	return stateHeld
}

// statusLine is the JSON of one mutex. The fields are always there; null stands
// for what there is not.
type statusLine struct {
	Mutex        string       `json:"mutex"`
	State        string       `json:"state"`
	Owner        *string      `json:"owner"`
	Host         *string      `json:"host"`
	PID          *int         `json:"pid"`
	User         *string      `json:"user"`
	Program      *string      `json:"program"`
	Note         *string      `json:"note"`
	Fence        *uint64      `json:"fence"`
	AcquiredAt   *string      `json:"acquired_at"`
	TTL          *int64       `json:"ttl_ms"`        // remaining
	Transition   *int64       `json:"transition_ms"` // remaining after the ttl
	Waiting      []waiterLine `json:"waiting"`
	Backend      string       `json:"backend"`
	Detail       string       `json:"detail,omitempty"` // what is unusual
	AboutToLeave bool         `json:"revoked,omitempty"`
}

type waiterLine struct {
	Owner string  `json:"owner"`
	Host  *string `json:"host"`
	PID   *int    `json:"pid"`
	Since *string `json:"since"`
}

// orNull is nil for a zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	return &s
}

func newStatusLine(backend string, s lease.Snapshot) statusLine {
	l := statusLine{
		Mutex: s.Mutex, State: stateName(s), Waiting: []waiterLine{},
		Backend: backend, Detail: s.Detail, AboutToLeave: s.Revoked,
	}
	if l.State == stateHeld || l.State == stateTransition {
		l.Owner, l.Fence, l.AcquiredAt = orNull(s.Owner), orNull(s.Fence), timeOrNull(s.Acquired)
		l.Host, l.PID, l.User = orNull(s.Info.Host), orNull(s.Info.PID), orNull(s.Info.User)
		l.Program, l.Note = orNull(s.Info.Program), orNull(s.Info.Note)
	}
	if l.State != stateFree && s.Lease != lease.Forever {
		ttl := min(max(s.TTL, 0), s.Lease)
		ttlMS, restMS := ttl.Milliseconds(), (s.Lease - ttl).Milliseconds()
		l.TTL, l.Transition = &ttlMS, &restMS
	}
	for _, w := range s.Waiters {
		l.Waiting = append(l.Waiting, waiterLine{
			Owner: w.ID, Host: orNull(w.Info.Host), PID: orNull(w.Info.PID), Since: timeOrNull(w.Info.Since),
		})
	}
	return l
}

func writeJSON(to io.Writer, backend string, snaps []lease.Snapshot) error {
	for _, s := range snaps {
		if err := writeJSONLine(to, newStatusLine(backend, s)); err != nil {
			return err
		}
	}
	return nil
}

func writeJSONLine(to io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = to.Write(append(escapeJSON(line), '\n'))
	return err
}

func writeTable(to io.Writer, snaps []lease.Snapshot, now time.Time) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	painted := colours(to)
	row := func(cells ...string) {
		for i, c := range cells {
			if c == "" {
				c = "-"
			}
			cells[i] = escape(c) // also keeps tabs out of the cells
		}
		if painted {
			state, _, _ := strings.Cut(cells[1], ",")
			cells[1] = colourOf(state).paint(cells[1])
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("MUTEX", "STATE", "OWNER", "USER", "PROGRAM", "SINCE", "ENDS IN", "FENCE", "WAITING", "NOTE")
	for _, s := range snaps {
		state := stateName(s)
		var owner, user, program, since, ends, fence, note string
		if state == stateHeld || state == stateTransition {
			owner, user, program, note = lease.ShortID(s.Owner), s.Info.User, s.Info.Program, s.Info.Note
			if !s.Acquired.IsZero() {
				since = when(s.Acquired, now)
			}
			if s.Fence > 0 {
				fence = strconv.FormatUint(s.Fence, 10)
			}
		}
		if state != stateFree && s.Lease > 0 && s.Lease != lease.Forever {
			ends = left(s.Lease)
		}
		if s.Revoked {
			state += ", revoked"
		}
		if s.Detail != "" {
			state += ", " + s.Detail
		}
		row(s.Mutex, state, owner, user, program, since, ends, fence, strconv.Itoa(len(s.Waiters)), note)
	}
	return w.Flush()
}
