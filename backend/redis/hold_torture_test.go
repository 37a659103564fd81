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

// kept is the hold of whoever was at work last, by the server's clock.
type kept struct {
	w  *world
	mu sync.Mutex
	// until: nobody else may own the mutex before, in ms.
	until  int64
	worked [2]int // by kind
	died   int
}

// begins is said at work, so nobody else is. It is told when the mutex was acquired.
func (k *kept) begins(kind int, acquired int64, hold time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if acquired < k.until {
		k.w.Errorf("kind %d: acquired %d ms before the end of a hold", kind, k.until-acquired)
	}
	k.until = 0
	if hold > 0 {
		k.until = acquired + hold.Milliseconds()
	}
	k.worked[kind]++
}

// mine says the same of an owner of our kind, by what the server has on record.
func (k *kept) mine(id string, hold time.Duration) bool {
	fields, _ := k.w.r.Do("HMGET", leaseKey("m"), "owner", "acquired").([]any)
	if len(fields) != 2 || fields[0] != id {
		return false // it was frozen or cut off, and its lease has ended
	}
	acquired, err := strconv.ParseInt(fields[1].(string), 10, 64)
	if err != nil {
		k.w.Error(err)
	}
	k.begins(ours, acquired, hold)
	return true
}

// Both kinds contend; ours have holds of all lengths, networks that go wrong and
// owners that die. Whoever begins does so after the hold of the one before.
func TestTortureHolds(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	span := 4 * time.Second
	if s := os.Getenv("SIMBA_TORTURE"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	x, k := &together{t: t}, &kept{w: w}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var own, others sync.WaitGroup
	end := time.Now().Add(span)
	for range 4 {
		relay := backendtest.StartRelay(t, w.r.Addr)
		own.Go(func() { x.contendWithHolds(ctx, k, open(t, "redis://"+relay.Addr), end) })
		others.Go(func() { spoil(ctx, relay, end) })
	}
	for i := range 2 {
		j := newJVM(t, w.r, strconv.Itoa(i)+":7@jvm", time.Second)
		others.Go(func() {
			j.contend(ctx, func() {
				k.begins(theirs, serverMillis(w), 0)
				x.work(theirs, 0)
			})
		})
	}
	for time.Now().Before(end) {
		w.r.Do([][]string{{"SCRIPT", "FLUSH"}, {"CLIENT", "KILL", "TYPE", "pubsub"}}[rand.IntN(2)]...)
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
	}
	own.Wait()
	cancel()
	others.Wait()
	if k.worked[theirs] == 0 || k.worked[ours] == 0 || k.died == 0 {
		t.Errorf("theirs and ours: %v, died: %d", k.worked, k.died)
	}
	t.Logf("jobs of theirs and ours: %v, of which died: %d", k.worked, k.died)
}

func (x *together) contendWithHolds(ctx context.Context, k *kept, b *Backend, end time.Time) {
	cfg := lease.Config{Backend: b, Mutex: "m", Terms: terms(x.t, 300*time.Millisecond), Wait: lease.Forever, ConnectTimeout: time.Minute}
	for first := true; first || time.Now().Before(end); first = false {
		cfg.Hold = time.Duration(max(0, rand.IntN(500)-100)) * time.Millisecond
		if first || rand.IntN(4) == 0 {
			x.diesWithHold(ctx, k, b, cfg)
			continue
		}
		err := lease.Do(ctx, cfg, func(_ context.Context, h *lease.Holder) error {
			if k.mine(h.ID(), cfg.Hold) {
				x.work(ours, h.Fence())
			}
			return nil
		})
		if err != nil && !errors.Is(err, lease.ErrUnreachable) && !errors.Is(err, lease.ErrLost) {
			x.t.Error(err)
		}
	}
}

// diesWithHold takes the mutex, if it can, and is never heard of again.
func (x *together) diesWithHold(ctx context.Context, k *kept, b *Backend, cfg lease.Config) {
	p := contender(x.t, b, cfg.Mutex, "dies")
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	for ctx.Err() == nil {
		r := lease.TryRequest{Lease: cfg.Terms.Lease(), TTL: cfg.Terms.TTL, Hold: cfg.Hold, Queue: true}
		if a, err := p.Try(ctx, r); err == nil && a.State == lease.Mine {
			if k.mine(p.id, cfg.Hold) {
				k.mu.Lock()
				k.died++
				k.mu.Unlock()
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
