package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// The numbers are those of the rules of the protocol, see docs/protocol.md.

func TestRule02CountsFromBeforeTheRequest(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.DelayReply, Delay: 2 * time.Second, Times: 1})
		sent := backendtest.BubbleClock{}.Now()
		c := b.run(b.config(), holdFor(time.Hour))
		h := c.holder(t)
		if end := h.Deadlines().End; end != sent+16*time.Second {
			t.Fatalf("a lease sent for at 0 and answered at 2s ends at %v", end-sent)
		}
		// Renewals that are not answered, or with an error, change nothing.
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpRenew, Do: backendtest.LoseReply})
		<-time.After(5 * time.Second)
		if end := h.Deadlines().End; end != sent+16*time.Second {
			t.Fatalf("a renewal that failed moved the end to %v", end-sent)
		}
		if err := <-c.done; !errors.Is(err, lease.ErrLost) {
			t.Fatal(err)
		}
		b.within(10*time.Second, 15*time.Second)
	})
}

func TestRule02NeverLongerThanAnswered(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.back = tampered{Backend: b.mem, renew: func(a *lease.Answer) { a.Remaining = 7 * time.Second }}
		c := b.run(b.config(), holdFor(time.Hour))
		h := c.holder(t)
		d := <-h.Changes()
		left := d.End - backendtest.BubbleClock{}.Now()
		if left > 7*time.Second || d.Stop >= d.Kill || d.Kill >= d.DeadBy || d.DeadBy >= d.End {
			t.Fatalf("%v left of 7s, deadlines %+v", left, d)
		}
		c.cancel(errors.New("enough"))
		<-c.done
	})
}

func TestRule03StopsBeforeTheLeaseEnds(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), func(ctx context.Context, h *lease.Holder) error {
			b.mem.Inject(backendtest.Fault{Op: backendtest.OpRenew, Do: backendtest.Hang})
			<-ctx.Done()
			now, d := backendtest.BubbleClock{}.Now(), h.Deadlines()
			if now < d.Held || now > d.Stop || d.Kill != d.Stop+b.terms.KillAfter || d.Kill > d.End-640*time.Millisecond {
				t.Errorf("told to stop at %v: %+v", now, d)
			}
			return context.Cause(ctx)
		})
		if err := <-c.done; !errors.Is(err, lease.ErrLost) {
			t.Fatal(err)
		}
	})
}

func TestRule03Granted(t *testing.T) {
	for _, granted := range []time.Duration{8 * time.Second, 32 * time.Second} {
		inBubble(t, func(b *bubble) {
			b.mem.Grant(granted)
			sent := backendtest.BubbleClock{}.Now()
			c := b.run(b.config(), holdFor(time.Hour))
			d := c.holder(t).Deadlines()
			if d.End-sent != granted || d.Held-sent != granted*10/16 || d.DeadBy > d.End-granted/100 {
				t.Fatalf("granted %v: %+v", granted, d)
			}
			<-time.After(3 * granted)
			if !b.saw(lease.EventGranted) {
				t.Fatal("nobody was told")
			}
			c.cancel(errors.New("enough"))
			if err := <-c.done; errors.Is(err, lease.ErrLost) {
				t.Fatal(err)
			}
		})
	}
	inBubble(t, func(b *bubble) { // an explicit kill-after that no longer fits
		b.terms, _ = lease.NewTerms(10*time.Second, 6*time.Second, 5*time.Second)
		b.mem.Grant(4 * time.Second)
		c := b.run(b.config(), func(context.Context, *lease.Holder) error { t.Error("started"); return nil })
		if err := <-c.done; !errors.Is(err, lease.ErrTerms) {
			t.Fatal(err)
		}
		if s := b.inspect(); s.State != lease.Free {
			t.Fatalf("left %v", s.State)
		}
	})
}

func TestRule04RenewsThroughErrors(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), holdFor(time.Minute))
		c.holder(t)
		<-time.After(3 * time.Second)
		if n := b.mem.Calls(backendtest.OpRenew); n > 1 { // one when the doorbell is ready
			t.Fatalf("%d renewals in 3s", n)
		}
		for _, do := range []backendtest.Action{backendtest.Fail, backendtest.Hang, backendtest.LoseReply, backendtest.DelayRequest} {
			heal := b.mem.Inject(backendtest.Fault{Op: backendtest.OpRenew, Do: do, Delay: 5 * time.Second,
				Err: lease.Permanent(errors.New("no rights"))})
			<-time.After(5 * time.Second)
			heal()
			<-time.After(3 * time.Second)
			if l := b.inspect().Lease; l < 12*time.Second {
				t.Fatalf("after %v the lease has %v left: not renewed in full", do, l)
			}
		}
		if n := b.mem.Calls(backendtest.OpRenew); n > 120 {
			t.Fatalf("%d calls in 35s", n)
		}
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
		b.within(time.Minute, time.Minute+time.Second)
	})
}

func TestRule04OneAttemptAtATime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), holdFor(time.Hour))
		c.holder(t)
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpRenew, Do: backendtest.Hang})
		before := b.mem.Calls(backendtest.OpRenew)
		if err := <-c.done; !errors.Is(err, lease.ErrLost) {
			t.Fatal(err)
		}
		// 7s from the first to the stop, 2.5s an attempt.
		if n := b.mem.Calls(backendtest.OpRenew) - before; n < 3 || n > 6 {
			t.Fatalf("%d attempts", n)
		}
	})
}

func TestRule05AnotherOwner(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), holdFor(time.Hour))
		c.holder(t)
		<-time.After(5 * time.Second)
		b.mem.Vanish("m")
		other := b.mem.Session("m", lease.Contender{ID: "other"})
		if a, err := other.Try(t.Context(), lease.TryRequest{Lease: time.Minute, TTL: time.Minute}); err != nil || a.State != lease.Mine {
			t.Fatal(a, err)
		}
		err := <-c.done
		if !errors.Is(err, lease.ErrLost) {
			t.Fatal(err)
		}
		b.within(5*time.Second, 5*time.Second+4*time.Second) // ttl/3 at most
		if s := b.inspect(); s.Owner != "other" {
			t.Fatalf("the owner is %q", s.Owner)
		}
	})
}

func TestRule05Vanished(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), holdFor(30*time.Second))
		fence := c.holder(t).Fence()
		<-time.After(5 * time.Second)
		b.mem.Empty()
		<-time.After(4 * time.Second)
		if s := b.inspect(); s.State != lease.Held || s.Fence != fence {
			t.Fatalf("not put back: %+v", s)
		}
		if err := <-c.done; err != nil || !b.saw(lease.EventRecovered) {
			t.Fatal(err)
		}
	})
}

func TestRule05Revoked(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), func(ctx context.Context, h *lease.Holder) error {
			<-ctx.Done()
			b.within(5*time.Second, 6*time.Second)
			<-time.After(40 * time.Second) // it takes its time to die
			if s := b.inspect(); s.State != lease.Held || s.Owner != h.ID() {
				t.Errorf("not renewed while dying: %+v", s)
			}
			return nil
		})
		h := c.holder(t)
		<-time.After(5 * time.Second)
		if err := b.mem.Revoke(t.Context(), "m", h.ID()); err != nil {
			t.Fatal(err)
		}
		if err := <-c.done; !errors.Is(err, lease.ErrRevoked) || !errors.Is(err, lease.ErrLost) {
			t.Fatal(err)
		}
		if s := b.inspect(); s.State != lease.Free {
			t.Fatal(s.State)
		}
	})
}

func TestRule06NeverTakenBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		heal := b.mem.Inject(backendtest.Fault{Op: backendtest.OpRenew, Do: backendtest.Fail})
		c := b.run(b.config(), func(ctx context.Context, h *lease.Holder) error {
			<-ctx.Done()
			heal()
			before := h.Deadlines()
			select { // what was told before the stop
			case <-h.Changes():
			default:
			}
			<-time.After(time.Minute)
			if s := b.inspect(); s.State != lease.Held || s.Owner != h.ID() {
				t.Errorf("the lease of the dying was not renewed: %+v", s)
			}
			if len(h.Changes()) > 0 || h.Deadlines() != before {
				t.Error("new deadlines after the stop")
			}
			return nil
		})
		if err := <-c.done; !errors.Is(err, lease.ErrLost) {
			t.Fatalf("the renewal made it %v", err)
		}
	})
}

func TestRule08ReleasedAfterTheWork(t *testing.T) {
	inBubble(t, func(b *bubble) {
		gone := false
		first := b.run(b.config(), func(ctx context.Context, _ *lease.Holder) error {
			<-ctx.Done()
			<-time.After(time.Minute)
			gone = true
			return nil
		})
		first.holder(t)
		second := b.run(b.config(), func(context.Context, *lease.Holder) error {
			if !gone {
				t.Error("the second runs beside the first")
			}
			return nil
		})
		<-time.After(5 * time.Second)
		first.cancel(errors.New("enough"))
		if err := <-second.done; err != nil {
			t.Fatal(err)
		}
		b.within(65*time.Second, 66*time.Second)
		<-first.done
	})
}

func TestRule12ClockSteps(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := b.run(b.config(), holdFor(time.Hour))
		h := c.holder(t)
		<-time.After(4 * time.Second)
		if b.saw(lease.EventClockStep) {
			t.Fatal("a step before there was one")
		}
		b.mem.Step(3 * time.Second)
		<-time.After(4 * time.Second)
		synctest.Wait()
		if !b.saw(lease.EventClockStep) {
			t.Fatal("the step was not seen")
		}
		if len(h.Changes()) == 0 {
			t.Fatal("no renewal")
		}
		c.cancel(errors.New("enough"))
		<-c.done
	})
	inBubble(t, func(b *bubble) { // one that leaves too little counts at once
		var short atomic.Bool
		b.back = tampered{Backend: b.mem, renew: func(a *lease.Answer) {
			if short.Load() {
				a.Remaining = 3 * time.Second
			}
		}}
		c := b.run(b.config(), holdFor(time.Hour))
		c.holder(t)
		<-time.After(4 * time.Second)
		short.Store(true)
		if err := <-c.done; !errors.Is(err, lease.ErrLost) {
			t.Fatal(err)
		}
		b.within(4*time.Second, 9*time.Second)
	})
}
