package backendtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-lock/simba/lease"
)

func TestMemoryFaults(t *testing.T) {
	for _, c := range []struct {
		do       Action
		executed bool
		took     time.Duration
		err      error
	}{
		{Fail, false, 0, errBroken},
		{Hang, false, time.Second, context.DeadlineExceeded},
		{HangDone, true, time.Second, context.DeadlineExceeded},
		{HangLate, true, time.Second, context.DeadlineExceeded},
		{LoseReply, true, 0, errBroken},
		{DelayReply, true, 300 * time.Millisecond, nil},
		{DelayRequest, true, 300 * time.Millisecond, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory("", BubbleClock{})
			m.Inject(Fault{Op: OpTry, ID: "a", Do: c.do, Delay: 300 * time.Millisecond, Times: 1})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			r := lease.TryRequest{Lease: testLease, TTL: testTTL, Queue: true}
			_, err := m.Session("m", contender("a")).Try(ctx, r)
			if took := time.Since(begun); !errors.Is(err, c.err) || took != c.took {
				t.Errorf("%v: err %v after %v", c.do, err, took)
			}
			time.Sleep(time.Second)
			snap, err := m.Inspect(t.Context(), "m")
			if err != nil || (snap.State == lease.Held) != c.executed {
				t.Errorf("%v: %+v, %v", c.do, snap, err)
			}
		})
	}
}

func TestMemoryBells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory("", BubbleClock{})
		a, b := m.Session("m", contender("a")), m.Session("m", contender("b"))
		r := lease.TryRequest{Lease: testLease, TTL: testTTL, Queue: true}
		heard, watched := 0, 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() {
			ended <- b.Listen(ctx, func(k lease.Ring) { heard++ })
		}()
		go func() {
			ended <- m.Watch(ctx, []string{"m"}, func(k lease.Ring) { watched++ })
		}()
		synctest.Wait()
		_, _ = a.Try(ctx, r)
		synctest.Wait()
		_, _ = b.Try(ctx, r)
		synctest.Wait()
		if heard != 1 || watched != 3 {
			t.Errorf("heard %d, watched %d", heard, watched)
		}
		_ = a.Release(ctx, lease.ReleaseRequest{})
		synctest.Wait()
		if heard != 2 || watched != 4 {
			t.Errorf("heard %d, watched %d", heard, watched)
		}
		m.BreakBells()
		if err := <-ended; !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if _, err := a.Try(ctx, r); !errors.Is(err, lease.ErrSpent) {
			t.Error(err)
		}
		cancel()
		if _, err := b.Try(ctx, r); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
