package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/lease"
)

type releaseOptions struct {
	tokenFlags
	force bool
}

func (a *app) newRelease() *cobra.Command {
	o := &releaseOptions{}
	c := &cobra.Command{
		Use:   "release [TOKEN] | release --force NAME",
		Short: "Give up a lease held by hand, or have the owner of a mutex give it up",
		Long: `release gives up the lease that acquire left; others may own the mutex at once. Where a
process keeps it that cannot be reached, that is told by way of the backend, and gives the
mutex up when the lease ends at the latest. The token is an argument, in --token-file or in
SIMBA_TOKEN.

release --force tells the owner of a mutex to give it up, whoever that is: its simba stops
the job in order, as after a loss, and releases the mutex when nothing of the job is left. It
does not wait for that. If the owner is dead, or holds it by hand, its lease runs out
instead, so no two jobs run at once in any case.

Exit status of release TOKEN: 0 if it is released, 79 if it was not held any more.
Of release --force: 0 if the owner is told, 1 if nobody holds the mutex.
64 for a usage error, 69 if the backend cannot be reached, or the owner is of a kind that
would not hear it (a service that uses the JVM library).`,
		RunE: func(c *cobra.Command, args []string) error {
			if o.force {
				return a.force(c, o, args)
			}
			return a.giveBack(c, o, args)
		},
		ValidArgsFunction: a.completeArgs(&o.backendFlags),
	}
	o.add(c.Flags())
	c.Flags().BoolVar(&o.force, "force", false, "whoever owns the mutex: its job is stopped")
	return c
}

func (a *app) force(c *cobra.Command, o *releaseOptions, args []string) error {
	if len(args) != 1 {
		return usagef("release --force needs the name of one mutex")
	}
	if c.Flags().Changed(tokenFileFlag) {
		return usagef("--force names a mutex, --%s a lease: they exclude each other", tokenFileFlag)
	}
	if strings.HasPrefix(args[0], tokenMark) {
		return usagef("--force needs the name of a mutex, and this is a token, which needs no force")
	}
	if err := a.settle(c.Flags(), &o.backendFlags, only(args), backendFlagNames...); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if _, err := mutexNames(args); err != nil {
		return err
	}
	return a.revoke(c.Context(), o, args[0])
}

func (a *app) giveBack(c *cobra.Command, o *releaseOptions, args []string) error {
	if len(args) == 1 && !strings.HasPrefix(args[0], tokenMark) {
		return usagef("%q is no token; only --force can release what another process holds: its job is stopped", args[0])
	}
	if err := o.complete(a, c.Flags(), args); err != nil {
		return err
	}
	ctx := c.Context()
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	if o.Keeper != nil {
		got, err := o.askRelease(ctx, staysInStore(b.Name()))
		switch {
		case err == nil && !got.Held && got.TTL <= 0 && got.Lease <= 0:
			return lostError(got.Why)
		case err == nil:
			return nil
		case !staysInStore(b.Name()):
			return a.releaseFrom(ctx, o, b, err)
		}
	}
	was, err := o.inBackend(ctx, b)
	if err != nil {
		return unavailable(err)
	}
	s := o.session(b)
	defer func() { _ = s.Close() }()
	// A request of the process that acquired it may have gone unanswered, and a keeper out of
	// reach would put back what has vanished: the tombstone keeps both from it.
	_, err = persist(ctx, o.connectTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Release(ctx, lease.ReleaseRequest{Tombstone: true})
	})
	switch {
	case err != nil:
		return unavailable(err)
	case was.Lease <= 0:
		return lostError(was.Why)
	}
	return nil
}

// askRelease asks the keeper, which answers when the mutex is released. That may take as
// long as the store does, but one that does not even say how the lease stands is frozen;
// and where the store can be asked in its place, little is gained by waiting.
func (o *releaseOptions) askRelease(ctx context.Context, elsewhere bool) (answer, error) {
	if elsewhere {
		return o.ask(ctx, request{Op: askRelease}, answersWithin)
	}
	if got, err := o.ask(ctx, request{Op: askCheck}, answersWithin); err != nil {
		return got, err
	}
	return o.ask(ctx, request{Op: askRelease}, max(o.connectTimeout, answersWithin))
}

// releaseFrom is for a keeper that does not answer. It is told by way of the backend.
func (a *app) releaseFrom(ctx context.Context, o *releaseOptions, b lease.Backend, why error) error {
	s, err := persist(ctx, o.connectTimeout, func(ctx context.Context) (lease.Snapshot, error) { return b.Inspect(ctx, o.Mutex) })
	if err != nil {
		return unavailable(err)
	}
	if lost := o.notOwner(&s); lost != "" {
		return lostError(lost)
	}
	if o.Keeper.dead() {
		return lostError(errDead.Error() + "; in the backend it ends by itself")
	}
	_, err = persist(ctx, o.connectTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.Revoke(ctx, o.Mutex, o.Owner)
	})
	switch {
	case errors.Is(err, lease.ErrNotOwner):
		return nil // it has given it up in this moment
	case err != nil:
		return unavailable(err)
	}
	told := fmt.Sprintf("process %d on %s, which keeps the lease, is told by way of the backend to give it up, and does so within %s",
		o.Keeper.PID, escape(o.Keeper.Host), time.Duration(o.TTL+o.Rest))
	if errors.Is(why, errSilent) {
		return &coded{fmt.Errorf("%w; %s once it goes on", why, told), exitUnavailable}
	}
	a.log.Warn(told)
	return nil
}

func (a *app) revoke(ctx context.Context, o *releaseOptions, mutex string) error {
	b, err := o.backendFlags.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	s, err := inspect(ctx, b, mutex, o.connectTimeout)
	if err != nil {
		return unavailable(err)
	}
	if owner := ownerOf(s); owner == "" || owner == nobodyKnows {
		a.log.Warn("nobody holds it", keyMutex, mutex)
		return &ended{code: exitFree}
	}
	_, err = within(ctx, o.connectTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.Revoke(ctx, mutex, s.Owner)
	})
	switch {
	case errors.Is(err, lease.ErrNotOwner):
		a.log.Warn(fmt.Sprintf("%s has given it up in this moment", who(s.Owner, s.Info)), keyMutex, mutex)
		return &ended{code: exitFree}
	case errors.Is(err, lease.ErrForeign):
		return &coded{fmt.Errorf("%s: %w", who(s.Owner, s.Info), err), exitUnavailable}
	case err != nil:
		return unavailable(err)
	}
	return nil
}
