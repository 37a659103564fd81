package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

func TestDoReturnsWhatTheWorkReturns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		mine := errors.New("mine")
		err := lease.Do(b.t.Context(), b.config(), func(context.Context, *lease.Holder) error { return mine })
		if !errors.Is(err, mine) {
			t.Fatal(err)
		}
		cfg := b.config()
		cfg.Mutex = "no good"
		if err := lease.Do(b.t.Context(), cfg, nil); !errors.Is(err, lease.ErrName) {
			t.Fatal(err)
		}
	})
}

func TestDoEndedContext(t *testing.T) {
	inBubble(t, func(b *bubble) {
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(b.t.Context())
		cancel(enough)
		if err := lease.Do(ctx, b.config(), nil); !errors.Is(err, enough) {
			t.Fatal(err)
		}
		// While it is held: the work is told, and what it says counts.
		ctx, cancel = context.WithCancelCause(b.t.Context())
		err := lease.Do(ctx, b.config(), func(ctx context.Context, _ *lease.Holder) error {
			cancel(enough)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), enough) {
				t.Error(context.Cause(ctx))
			}
			return nil
		})
		if err != nil || b.inspect().State != lease.Free {
			t.Fatal(err)
		}
	})
}

// A reader of events that hangs holds up nothing but itself.
func TestSlowObserver(t *testing.T) {
	inBubble(t, func(b *bubble) {
		cfg := b.config()
		var told []lease.EventKind
		cfg.Observe = func(e lease.Event) {
			<-time.After(time.Hour)
			told = append(told, e.Kind)
		}
		err := lease.Do(b.t.Context(), cfg, func(ctx context.Context, h *lease.Holder) error {
			<-time.After(2 * time.Minute)
			return context.Cause(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(told) != 2 || told[0] != lease.EventAcquired || told[1] != lease.EventReleased {
			t.Fatal(told)
		}
	})
}
