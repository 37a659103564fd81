package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/lease"
)

type checkOptions struct {
	tokenFlags
	output  string
	atLeast time.Duration
}

const (
	printNothing = ""
	printJSON    = "json"
	printFence   = "fence"
)

func (a *app) newCheck() *cobra.Command {
	o := &checkOptions{}
	c := &cobra.Command{
		Use:   "check [TOKEN]",
		Short: "Tell whether a lease held by hand is still held",
		Long: `check is what a script asks before its point of no return: whether the token that acquire
printed still stands for the owner of the mutex, and its ttl is not over.

The answer is true when it is given. What the script does then should be over before the ttl
is, see --for; nobody else may own the mutex for the transition after it. Where that is
not enough, let what is written to refuse fencing tokens lower than the highest it has seen:
-o fence prints this one's.

The token is an argument, in --token-file or in SIMBA_TOKEN.

Exit status: 0 if it is held, 79 if not, 64 for a usage error, 69 if that is not known.`,
		Example: `  simba check --token-file token --for 30s && ./commit.sh
  FENCE=$(simba check --token-file token -o fence) && ./commit.sh --fence "$FENCE"`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(a, c.Flags(), args); err != nil {
				return err
			}
			return a.check(c.Context(), o)
		},
	}
	o.add(c.Flags())
	c.Flags().Var(&durationValue{d: &o.atLeast, max: lease.MaxDuration}, "for", "no, unless so much of the ttl is left")
	c.Flags().VarP(&choiceValue[string]{
		v: &o.output, words: []string{"none", printJSON, printFence}, are: []string{printNothing, printJSON, printFence},
	}, "output", "o", "what is printed")
	return c
}

// checkLine is the JSON of one check. Remaining times are null if there is no end.
type checkLine struct {
	Mutex      string  `json:"mutex"`
	Held       bool    `json:"held"`
	Owner      string  `json:"owner"`
	Fence      uint64  `json:"fence"`
	TTL        *int64  `json:"ttl_ms"`
	Transition *int64  `json:"transition_ms"`
	Backend    string  `json:"backend"`
	Why        *string `json:"why"` // if it is not held
}

func (a *app) check(ctx context.Context, o *checkOptions) error {
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	got, err := o.state(ctx, b)
	if err != nil {
		return err
	}
	short := got.Held && got.TTL > 0 && got.TTL < o.atLeast
	if got.Held && got.TTL < max(o.atLeast, 1) {
		got.Held, got.Why = false, fmt.Sprintf("its ttl is over in %s", left(got.TTL))
	}
	switch {
	case o.output == printJSON:
		if err := writeJSONLine(a.stdout, o.line(got)); err != nil {
			return err
		}
	case o.output == printFence && got.Held:
		if _, err := fmt.Fprintln(a.stdout, o.Fence); err != nil {
			return err
		}
	}
	switch {
	case short:
		return &coded{fmt.Errorf("the lease is held, but not for another %s: %s", shortDuration(o.atLeast), got.Why), exitLost}
	case !got.Held:
		return lostError(got.Why)
	}
	return nil
}

func (o *checkOptions) line(got answer) checkLine {
	l := checkLine{Mutex: o.Mutex, Held: got.Held, Owner: o.Owner, Fence: o.Fence, Backend: o.Backend, Why: orNull(got.Why)}
	if got.Lease != lease.Forever {
		ttl := max(got.TTL, 0)
		ttlMS, restMS := ttl.Milliseconds(), max(got.Lease-ttl, 0).Milliseconds()
		l.TTL, l.Transition = &ttlMS, &restMS
	}
	return l
}

// state asks who knows: the store if the lease lives in it, else the keeper, by which a
// lease on files or ZooKeeper is counted.
func (f *tokenFlags) state(ctx context.Context, b lease.Backend) (got answer, err error) {
	if staysInStore(b.Name()) {
		if got, err = f.inBackend(ctx, b); err != nil {
			err = unavailable(err)
		}
		return got, err
	}
	if f.Keeper == nil {
		return answer{Why: "no process keeps it"}, nil
	}
	clock := lease.BootClock{}
	asked := clock.Now()
	if got, err = f.ask(ctx, request{Op: askCheck}, answersWithin); err != nil {
		return f.without(ctx, b, err)
	}
	if got.Held {
		got = f.doubted(ctx, b, got)
	}
	got.age(clock.Now() - asked)
	return got, nil
}

// without the keeper the backend can say no. It can never say yes: the owner's id stands in
// it, but how far the lease has run that was asked for, only the keeper knows.
func (f *tokenFlags) without(ctx context.Context, b lease.Backend, there error) (answer, error) {
	s, err := persist(ctx, f.connectTimeout, func(ctx context.Context) (lease.Snapshot, error) { return b.Inspect(ctx, f.Mutex) })
	if err != nil {
		return answer{}, unavailable(err)
	}
	why := f.notHeld(&s)
	if why == "" && f.Keeper.dead() {
		why = errDead.Error()
	}
	if why != "" {
		return answer{Why: why}, nil
	}
	return answer{}, &coded{fmt.Errorf("it is not known whether the lease is still held: %w: process %d on %s; in the backend it still owns the mutex",
		there, f.Keeper.PID, escape(f.Keeper.Host)), exitUnavailable}
}

// doubted: a revocation, or another owner, may stand in the backend and not have reached
// the keeper yet. A backend that does not answer takes nothing away from a lease that the
// keeper counts.
func (f *tokenFlags) doubted(ctx context.Context, b lease.Backend, got answer) answer {
	s, err := inspect(ctx, b, f.Mutex, attempt)
	if err != nil {
		return got
	}
	if why := f.notHeld(&s); why != "" {
		got.Held, got.Why = false, why
	}
	return got
}

// notHeld says why the lease counts for nothing any more by what the backend shows.
func (t *token) notHeld(s *lease.Snapshot) string {
	switch why := t.notOwner(s); {
	case why != "":
		return why
	case s.Revoked:
		return "it was revoked"
	}
	return ""
}

// inBackend is what the store says.
//
// A lease in it is counted by its own clock from the moment in which it carried the
// acquisition or the renewal out. That is after the request was sent, so its end lies at or
// after the one that the requester would count from the sending. Yes means that some of
// the ttl was left when the store answered, of which the whole time that the question took
// is taken off here; and until anybody else may own the mutex there is the transition
// beyond, more than clocks may differ. What happens after the answer no answer can tell.
func (f *tokenFlags) inBackend(ctx context.Context, b lease.Backend) (answer, error) {
	clock := lease.BootClock{}
	var took time.Duration
	s, err := persist(ctx, f.connectTimeout, func(ctx context.Context) (lease.Snapshot, error) {
		asked := clock.Now()
		s, err := b.Inspect(ctx, f.Mutex)
		took = clock.Now() - asked
		return s, err
	})
	if err != nil {
		return answer{}, err
	}
	got := answer{Why: f.notHeld(&s), TTL: s.TTL, Lease: s.Lease}
	switch {
	case f.notOwner(&s) != "":
		got.TTL, got.Lease = 0, 0
	case got.Why == "" && s.Detail != "" && s.TTL == lease.Forever:
		got.Why = "its record was tampered with: " + s.Detail
	}
	got.Held = got.Why == ""
	got.age(took)
	return got, nil
}

// age takes off the time that the answer was on its way.
func (a *answer) age(d time.Duration) {
	if a.TTL != lease.Forever {
		a.TTL -= d
	}
	if a.Lease != lease.Forever {
		a.Lease -= d
	}
	if a.Held && a.TTL <= 0 {
		a.Held, a.Why = false, "its ttl is over"
	}
}
