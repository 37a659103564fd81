package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/lease"
)

type releaseOptions struct {
	backendFlags
	force bool
}

func (a *app) newRelease() *cobra.Command {
	o := &releaseOptions{}
	c := &cobra.Command{
		Use:   "release --force NAME",
		Short: "Have the owner of a mutex give it up",
		Long: `release --force tells the owner of a mutex to give it up: its simba stops the job in
order, as after a loss, and releases the mutex when nothing of the job is left. It
does not wait for that. If the owner is dead its lease runs out instead, so
no two jobs run at once in any case.

Exit status: 0 if the owner is told, 1 if nobody holds the mutex, 64 for a usage
error, 69 if the backend cannot be reached, or the owner is of a kind that would
not hear it (a service that uses the JVM library).`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("release needs the name of one mutex")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.settle(c.Flags(), &o.backendFlags, only(args), backendFlagNames...); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			if _, err := mutexNames(args); err != nil {
				return err
			}
			if !o.force {
				return usagef("only --force can release what another process holds: its job is stopped")
			}
			return a.revoke(c.Context(), o, args[0])
		},
		ValidArgsFunction: a.completeArgs(&o.backendFlags),
	}
	o.add(c.Flags())
	c.Flags().BoolVar(&o.force, "force", false, "the owner's job is stopped")
	return c
}

func (a *app) revoke(ctx context.Context, o *releaseOptions, mutex string) error {
	b, err := o.open(ctx)
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
