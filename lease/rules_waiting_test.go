package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

func TestRule01OneOwner(t *testing.T) {
	inBubble(t, func(b *bubble) {
		inside, runs := 0, 0
		var all []*contending
		for range 10 {
			all = append(all, b.run(b.config(), func(ctx context.Context, h *lease.Holder) error {
				inside++ // in a bubble with no other synchronisation: the race detector looks too
				runs++
				if inside != 1 {
					t.Errorf("%d inside", inside)
				}
				<-time.After(3 * time.Second)
				inside--
				return nil
			}))
		}
		for _, c := range all {
			if err := <-c.done; err != nil {
				t.Fatal(err)
			}
		}
		if runs != 10 || inside != 0 || b.saw(lease.EventTrouble) {
			t.Fatalf("%d runs, %d inside, events %v", runs, inside, b.events)
		}
	})
}

func TestRule07TooLateToStart(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.DelayReply, Delay: 4 * time.Second, Times: 2})
		b.terms, _ = lease.NewTerms(3*time.Second, 6*time.Second, lease.Unset)
		var ids []string
		c := b.run(b.config(), func(ctx context.Context, h *lease.Holder) error {
			now, d := backendtest.BubbleClock{}.Now(), h.Deadlines()
			if age := now - (d.End - 9*time.Second); age >= 3*time.Second {
				t.Errorf("started under a lease of age %v", age)
			}
			ids = append(ids, h.ID())
			if len(ids) < 3 {
				return fmt.Errorf("guard: %w", lease.ErrLate)
			}
			return nil
		})
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
		if slices.Sort(ids); len(slices.Compact(ids)) != 3 {
			t.Fatalf("ids used again: %v", ids)
		}
		if s := b.inspect(); s.State != lease.Free {
			t.Fatal(s.State)
		}
	})
}

// What was given back too late to begin anything under it keeps nobody out, not the next attempt of the same run either.
func TestRule07HoldsOnlyWhatRan(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.DelayReply, Delay: 4 * time.Second, Times: 1})
		b.terms, _ = lease.NewTerms(3*time.Second, 6*time.Second, lease.Unset)
		cfg := b.config()
		cfg.Hold = time.Hour
		starts := 0
		c := b.run(cfg, func(context.Context, *lease.Holder) error {
			if starts++; starts == 1 {
				return lease.ErrLate
			}
			return nil
		})
		if err := <-c.done; err != nil || starts != 2 {
			t.Fatal(err, starts)
		}
		b.within(4*time.Second, 10*time.Second)
		if s := b.inspect(); s.State != lease.Cooldown {
			t.Fatalf("the work that ran is not held: %+v", s)
		}
	})
}

func TestRule09InOrder(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first := b.run(b.config(), holdFor(10*time.Second))
		first.holder(t)
		var order []int
		var all []*contending
		for i := range 8 {
			all = append(all, b.run(b.config(), func(context.Context, *lease.Holder) error {
				order = append(order, i)
				<-time.After(100 * time.Millisecond)
				return nil
			}))
			<-time.After(100 * time.Millisecond)
		}
		// A newcomer that does not wait finds it busy, and has not queued.
		cfg := b.config()
		cfg.Wait = 0
		var busy *lease.BusyError
		if err := <-b.run(cfg, holdFor(0)).done; !errors.As(err, &busy) || busy.Answer.Info.PID == 0 {
			t.Fatal(err)
		}
		for _, c := range all {
			if err := <-c.done; err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(order, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
			t.Fatal(order)
		}
		b.within(10*time.Second, 11*time.Second) // woken, not found out
		<-first.done
	})
}

func TestRule09LostWakeUps(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpRing, Do: backendtest.Fail})
		first := b.run(b.config(), holdFor(10*time.Second))
		first.holder(t)
		a, z := b.run(b.config(), holdFor(5*time.Second)), b.run(b.config(), holdFor(0))
		for _, c := range []*contending{first, a, z} {
			if err := <-c.done; err != nil {
				t.Fatal(err)
			}
		}
		b.within(15*time.Second, 19*time.Second)
	})
}

func TestRule09NoPush(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.back = tampered{Backend: b.mem, noPush: true}
		first := b.run(b.config(), holdFor(30*time.Second))
		first.holder(t)
		before := b.mem.Calls(backendtest.OpTry)
		if err := <-b.run(b.config(), holdFor(0)).done; err != nil {
			t.Fatal(err)
		}
		if n := b.mem.Calls(backendtest.OpTry) - before; n < 25 || n > 35 {
			t.Fatalf("%d looks in 30s", n)
		}
		b.within(30*time.Second, 32*time.Second)
		<-first.done
	})
}

func TestRule09DeadWaitersInFront(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first := b.run(b.config(), holdFor(10*time.Second))
		first.holder(t)
		for i := range 3 { // they queue and are never heard of again
			s := b.mem.Session("m", lease.Contender{ID: fmt.Sprint("dead", i)})
			if _, err := s.Try(t.Context(), lease.TryRequest{Lease: time.Minute, TTL: time.Minute, Queue: true}); err != nil {
				t.Fatal(err)
			}
		}
		// One that does not wait waits out a promise, but no owner.
		last := b.run(b.config(), holdFor(0))
		if err := <-last.done; err != nil {
			t.Fatal(err)
		}
		b.within(10*time.Second, 15*time.Second)
		<-first.done
	})
}

func TestRule09WaitZeroOutlastsAPromise(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ask := lease.TryRequest{Lease: 16 * time.Second, TTL: 10 * time.Second, Queue: true}
		owner, dead := b.mem.Session("m", lease.Contender{ID: "owner"}), b.mem.Session("m", lease.Contender{ID: "dead"})
		for _, s := range []lease.Session{owner, dead} {
			if _, err := s.Try(t.Context(), ask); err != nil {
				t.Fatal(err)
			}
		}
		if err := owner.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		cfg := b.config()
		cfg.Wait = 0
		if err := <-b.run(cfg, holdFor(0)).done; err != nil {
			t.Fatal(err)
		}
		b.within(time.Second, 2*time.Second)
	})
}

func TestRule10EmptiedStore(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ended := time.Duration(0)
		first := b.run(b.config(), func(ctx context.Context, _ *lease.Holder) error {
			<-ctx.Done()
			ended = b.since()
			return context.Cause(ctx)
		})
		h := first.holder(t)
		waiter := b.run(b.config(), holdFor(0))
		<-time.After(5 * time.Second)
		b.mem.Inject(backendtest.Fault{ID: h.ID(), Do: backendtest.Hang}) // cut off
		b.mem.Empty()
		if got := waiter.holder(t); got.Fence() <= h.Fence() {
			t.Fatalf("fence %d after %d", got.Fence(), h.Fence())
		}
		if ended == 0 {
			t.Fatal("the first still runs")
		}
		b.within(5*time.Second+16*time.Second, 25*time.Second) // a whole lease from when it was noticed
		<-first.done
		<-waiter.done
	})
	inBubble(t, func(b *bubble) { // an owner that is there puts its record back
		first := b.run(b.config(), holdFor(30*time.Second))
		first.holder(t)
		waiter := b.run(b.config(), holdFor(0))
		<-time.After(5 * time.Second)
		b.mem.Empty()
		for _, c := range []*contending{first, waiter} {
			if err := <-c.done; err != nil {
				t.Fatal(err)
			}
		}
		b.within(30*time.Second, 31*time.Second)
	})
}

func TestRule13ShortWaitIsBusy(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first := b.run(b.config(), holdFor(time.Minute))
		first.holder(t)
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.DelayReply, Delay: 200 * time.Millisecond, Times: 1})
		cfg := b.config()
		cfg.Wait = time.Millisecond
		if err := <-b.run(cfg, holdFor(0)).done; !errors.Is(err, lease.ErrBusy) {
			t.Fatal(err)
		}
		first.cancel(errors.New("enough"))
		<-first.done
	})
}

func TestRule11LeavesNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first := b.run(b.config(), holdFor(time.Minute))
		first.holder(t)
		cfg := b.config()
		cfg.Wait = 3 * time.Second
		if err := <-b.run(cfg, holdFor(0)).done; !errors.Is(err, lease.ErrBusy) {
			t.Fatal(err)
		}
		b.within(3*time.Second, 3*time.Second+50*time.Millisecond)
		signal := errors.New("signal")
		second := b.run(b.config(), holdFor(0))
		<-time.After(time.Second)
		second.cancel(signal)
		if err := <-second.done; !errors.Is(err, signal) {
			t.Fatal(err)
		}
		if w := b.inspect().Waiters; len(w) != 0 {
			t.Fatalf("left in the queue: %v", w)
		}
		<-first.done
	})
}

func TestRule11LateRequestTakesNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.HangLate, Delay: 20 * time.Second, Times: 1})
		c := b.run(b.config(), holdFor(0))
		<-time.After(time.Second)
		c.cancel(errors.New("enough"))
		<-c.done
		<-time.After(25 * time.Second)
		synctest.Wait()
		if s := b.inspect(); s.State != lease.Free {
			t.Fatalf("%s owns the mutex though it has left", s.Owner)
		}
	})
}

func TestRule13Permanent(t *testing.T) {
	inBubble(t, func(b *bubble) {
		reason := errors.New("NOAUTH")
		b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.Fail, Err: lease.Permanent(reason)})
		c := b.run(b.config(), holdFor(0))
		if err := <-c.done; !errors.Is(err, reason) || errors.Is(err, lease.ErrUnreachable) {
			t.Fatal(err)
		}
		b.within(0, 100*time.Millisecond)
	})
}

func TestRule13Unreachable(t *testing.T) {
	for _, do := range []backendtest.Action{backendtest.Fail, backendtest.Hang} {
		inBubble(t, func(b *bubble) {
			b.mem.Inject(backendtest.Fault{Do: do})
			c := b.run(b.config(), holdFor(0))
			if err := <-c.done; !errors.Is(err, lease.ErrUnreachable) {
				t.Fatal(err)
			}
			b.within(10*time.Second, 11*time.Second)
			if n := b.mem.Calls(backendtest.OpTry); n > 60 {
				t.Fatalf("%d attempts", n)
			}
		})
	}
}

func TestRule13LaterOutage(t *testing.T) {
	inBubble(t, func(b *bubble) {
		first := b.run(b.config(), holdFor(time.Minute))
		first.holder(t)
		c := b.run(b.config(), holdFor(0))
		<-time.After(time.Second)
		heal := b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.Fail})
		<-time.After(70 * time.Second)
		heal()
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
		<-first.done

		heal = b.mem.Inject(backendtest.Fault{Op: backendtest.OpTry, Do: backendtest.Fail})
		defer heal()
		cfg := b.config()
		cfg.Wait = 3 * time.Second
		if err := <-b.run(cfg, holdFor(0)).done; !errors.Is(err, lease.ErrUnreachable) {
			t.Fatal(err) // out of reach, which is not busy
		}
	})
}
