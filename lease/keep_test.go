package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// keepAfter leaves with the mutex held.
func keepAfter(d time.Duration) lease.Work {
	return func(context.Context, *lease.Holder) error {
		<-time.After(d)
		return lease.ErrKeep
	}
}

// What is kept stays its owner's for the rest of the lease, can be renewed and
// released by its id, and by nothing else than that.
func TestKeep(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), keepAfter(0))
		h := c.holder(t)
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
		<-time.After(9 * time.Second)
		if s := b.inspect(); s.Owner != h.ID() || s.Fence != h.Fence() || s.TTL != time.Second || s.Lease != 7*time.Second {
			t.Fatalf("9s later: %+v", s)
		}
		by := b.mem.Session("m", lease.Contender{ID: h.ID()})
		r := lease.RenewRequest{Lease: b.terms.Lease(), TTL: b.terms.TTL, Fence: h.Fence()}
		if a, err := by.Renew(context.Background(), r); err != nil || a.State != lease.Mine {
			t.Fatalf("a renewal by its id: %+v, %v", a, err)
		}
		if s := b.inspect(); s.TTL != 10*time.Second {
			t.Fatalf("renewed: %+v", s)
		}
		next := b.run(b.config(), keepAfter(0))
		<-time.After(5 * time.Second)
		if err := by.Release(context.Background(), lease.ReleaseRequest{Tombstone: true}); err != nil {
			t.Fatal(err)
		}
		if n := next.holder(t); n.Fence() <= h.Fence() {
			t.Fatalf("fence %d after %d", n.Fence(), h.Fence())
		}
		b.within(14*time.Second, 15*time.Second)
		if err := <-next.done; err != nil {
			t.Fatal(err)
		}
		if a, err := by.Renew(context.Background(), r); err != nil || a.State != lease.Held {
			t.Fatalf("a renewal of what was released: %+v, %v", a, err)
		}
		// The second one is not renewed: it ends by itself, and not before.
		last := b.run(b.config(), keepAfter(0))
		last.holder(t)
		b.within(30*time.Second, 31*time.Second)
		<-last.done
	})
}

// Only a lease in order is kept; any other is given back, and the error says why.
func TestKeepWhatIsNotInOrder(t *testing.T) {
	enough := errors.New("enough")
	for name, test := range map[string]struct {
		work lease.Work
		want error
	}{
		"in the transition": {func(_ context.Context, h *lease.Holder) error {
			<-time.After(h.Deadlines().Held - backendtest.BubbleClock{}.Now())
			return lease.ErrKeep
		}, lease.ErrLost},
		"lost": {func(ctx context.Context, _ *lease.Holder) error {
			<-ctx.Done()
			return lease.ErrKeep
		}, lease.ErrLost},
		"given up": {func(ctx context.Context, _ *lease.Holder) error {
			return errors.Join(lease.ErrKeep, context.Cause(ctx))
		}, enough},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				c := b.run(b.config(), func(ctx context.Context, h *lease.Holder) error {
					if errors.Is(test.want, enough) {
						<-ctx.Done()
					} else {
						b.mem.Inject(backendtest.Fault{Op: backendtest.OpRenew, Do: backendtest.LoseReply})
					}
					return test.work(ctx, h)
				})
				c.holder(t)
				if errors.Is(test.want, enough) {
					c.cancel(enough)
				}
				if err := <-c.done; !errors.Is(err, test.want) || errors.Is(err, lease.ErrKeep) {
					t.Fatal(err)
				}
				if s := b.inspect(); s.State == lease.Held {
					t.Fatalf("it is still held: %+v", s)
				}
			})
		})
	}
}

// A lease without an end cannot be left behind.
func TestKeepWithoutAnEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.mem.Grant(lease.Forever)
		c := b.run(b.config(), keepAfter(0))
		if err := <-c.done; !errors.Is(err, lease.ErrKeep) {
			t.Fatal(err)
		}
		if s := b.inspect(); s.State == lease.Held {
			t.Fatalf("it is still held: %+v", s)
		}
	})
}
