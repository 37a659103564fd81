package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/lease"
)

type renewOptions struct {
	tokenFlags
	ttl, transition time.Duration
}

func (a *app) newRenew() *cobra.Command {
	o := &renewOptions{}
	c := &cobra.Command{
		Use:   "renew [TOKEN]",
		Short: "Begin a lease held by hand anew",
		Long: `renew has a lease that acquire left count from now on again, for as long as acquire was
asked to hold it, or for the durations given. It does so also in the transition, but never
for a lease that was revoked or lost, or whose end has come.

The token is an argument, in --token-file or in SIMBA_TOKEN.

Exit status: 0 if it is renewed, 79 if it is not held any more, 64 for a usage error,
69 if that is not known.`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(a, c.Flags(), args); err != nil {
				return err
			}
			return a.renew(c.Context(), o)
		},
	}
	o.add(c.Flags())
	c.Flags().Var(newLeaseDuration(&o.ttl), "ttl", "how long it is held from now on (default as it was acquired)")
	c.Flags().Var(newLeaseDuration(&o.transition), "transition", "how long after that nobody else may have it (default as it was acquired)")
	return c
}

func (a *app) renew(ctx context.Context, o *renewOptions) error {
	terms, err := o.terms(o.ttl, o.transition)
	if err != nil {
		return &usageError{err: err}
	}
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	if !staysInStore(b.Name()) {
		return a.renewThere(ctx, o, b, terms)
	}
	s := o.session(b)
	defer func() { _ = s.Close() }()
	got, err := persist(ctx, o.connectTimeout, func(ctx context.Context) (lease.Answer, error) {
		return s.Renew(ctx, lease.RenewRequest{Lease: terms.Lease(), TTL: terms.TTL, Fence: o.Fence, Hold: o.restOfHold()})
	})
	switch {
	case err != nil:
		return unavailable(err)
	case got.State == lease.Mine && got.Revoked:
		return lostError("it was revoked")
	case got.State == lease.Mine:
		return nil
	}
	return o.lost(ctx, b)
}

// renewThere asks the keeper, which only its own host can reach.
func (a *app) renewThere(ctx context.Context, o *renewOptions, b lease.Backend, terms lease.Terms) error {
	if o.Keeper == nil {
		return lostError("no process keeps it")
	}
	// It answers at once, or is frozen; what it has to wait for then is the store.
	got, err := o.ask(ctx, request{Op: askCheck}, answersWithin)
	if err == nil && got.Held {
		limit := confirmedWithin(o.connectTimeout, time.Duration(o.TTL+o.Rest)) + answersWithin
		got, err = o.ask(ctx, request{Op: askRenew, TTL: terms.TTL, Rest: terms.Transition, Within: o.connectTimeout}, limit)
	}
	switch {
	case err == nil && got.Unknown != "":
		return &coded{fmt.Errorf("it is not known whether the lease is renewed: %s", got.Unknown), exitUnavailable}
	case err == nil && got.Held:
		return nil
	case err == nil:
		return lostError(got.Why)
	case errors.Is(err, errSilent):
		return &coded{fmt.Errorf("%w: process %d", err, o.Keeper.PID), exitUnavailable}
	}
	s, known := persist(ctx, o.connectTimeout, func(ctx context.Context) (lease.Snapshot, error) { return b.Inspect(ctx, o.Mutex) })
	switch {
	case known != nil:
		return unavailable(known)
	case o.notOwner(&s) != "":
		return lostError(o.notOwner(&s))
	case o.Keeper.dead():
		return lostError(errDead.Error() + "; in the backend it ends by itself")
	}
	return &coded{fmt.Errorf("only the process that keeps the lease can renew it, which is %d on %s, and it cannot be reached from here",
		o.Keeper.PID, escape(o.Keeper.Host)), exitUnavailable}
}

// lost says who owns it now, as far as that is to be known.
func (f *tokenFlags) lost(ctx context.Context, b lease.Backend) error {
	s, err := inspect(ctx, b, f.Mutex, attempt)
	why := "nobody owns it"
	if err == nil {
		why = f.notOwner(&s)
	}
	if why == "" {
		why = "it is about to end"
	}
	return lostError(why)
}
