package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// Contenders of both kinds, ours each behind a network of its own that goes
// wrong all the time, on a server whose connections and scripts get lost: never
// two at work, fences rise, and when the faults end everybody gets on.
// SIMBA_TORTURE=1h makes it longer.
func TestTorture(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	span := 4 * time.Second
	if s := os.Getenv("SIMBA_TORTURE"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	x := &together{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ours, others sync.WaitGroup
	end := time.Now().Add(span)
	for range 5 {
		relay := backendtest.StartRelay(t, w.r.Addr)
		ours.Go(func() { x.contendAll(ctx, open(t, "redis://"+relay.Addr), end) })
		others.Go(func() { spoil(ctx, relay, end) })
	}
	for i := range 2 {
		j := newJVM(t, w.r, strconv.Itoa(i)+":7@jvm", time.Second)
		others.Go(func() { j.contend(ctx, func() { x.work(theirs, 0) }) })
	}
	faults := [][]string{{"SCRIPT", "FLUSH"}, {"CLIENT", "KILL", "TYPE", "pubsub"}, {"CLIENT", "KILL", "TYPE", "normal"}}
	for time.Now().Before(end) {
		w.r.Do(faults[rand.IntN(len(faults))]...)
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
	}
	before := x.count()
	ours.Wait()
	eventually(t, "nobody gets on afterwards", func() bool { return x.count() > before })
	cancel()
	others.Wait()
	t.Logf("jobs of theirs and ours: %v", x.done)
}

func (x *together) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done[theirs] + x.done[ours]
}

// contendAll contends until the end and once more.
func (x *together) contendAll(ctx context.Context, b *Backend, end time.Time) {
	cfg := lease.Config{Backend: b, Mutex: "m", Terms: terms(x.t, 500*time.Millisecond), Wait: lease.Forever, ConnectTimeout: time.Minute}
	for last := false; !last; {
		last = time.Now().After(end)
		if !last && rand.IntN(3) == 0 {
			cfg.Wait = time.Duration(rand.IntN(800)) * time.Millisecond
		} else {
			cfg.Wait = lease.Forever
		}
		err := lease.Do(ctx, cfg, func(ctx context.Context, h *lease.Holder) error {
			x.work(ours, h.Fence())
			return nil
		})
		if err != nil && (last || !errors.Is(err, lease.ErrBusy) && !errors.Is(err, lease.ErrUnreachable) && !errors.Is(err, lease.ErrLost)) {
			x.t.Error(err)
		}
	}
}

// spoil lets a network go wrong until the end.
func spoil(ctx context.Context, r *backendtest.Relay, end time.Time) {
	modes := []backendtest.RelayMode{backendtest.Blackhole, backendtest.EatReplies, backendtest.Refuse, backendtest.Reset}
	for time.Now().Before(end) && ctx.Err() == nil {
		r.Delay(time.Duration(rand.IntN(3)) * 10 * time.Millisecond)
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		r.Set(modes[rand.IntN(len(modes))])
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		r.Set(backendtest.Pass)
	}
	r.Delay(0)
}
