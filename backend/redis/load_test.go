package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// calls is how many commands clients have sent, by kind; what scripts call is
// left out, except where clients use the same commands.
func calls(r *backendtest.Redis, commands ...string) (n int) {
	for _, line := range strings.Split(r.Text("INFO", "commandstats"), "\r\n") {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if slices.Contains(commands, name) {
			count, _, _ := strings.Cut(rest, ",")
			c, _ := strconv.Atoi(count)
			n += c
		}
	}
	return n
}

// clientCommands counts every command that came over a connection.
func clientCommands(r *backendtest.Redis) int {
	return calls(r, "evalsha", "eval", "hello", "auth", "select", "subscribe", "psubscribe", "unsubscribe", "ping",
		"client|setinfo", "client|setname", "client|tracking", "client|maint_notifications", "command", "wait", "role", "script|load", "quit")
}

func TestTwoRoundTripsAPair(t *testing.T) {
	w := newLoneWorld(t, backendtest.RedisOptions{})
	const pairs = 1000
	terms := terms(t, 10*time.Second)
	pair := func() {
		err := lease.Do(t.Context(), lease.Config{Backend: w.b, Mutex: "m", Terms: terms}, func(context.Context, *lease.Holder) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	pair() // loads the scripts
	before, began := clientCommands(w.r), time.Now()
	for range pairs {
		pair()
	}
	t.Logf("%v a pair", time.Since(began)/pairs)
	if n := clientCommands(w.r) - before; n != 2*pairs {
		t.Errorf("%d commands for %d pairs", n, pairs)
	}
	// And the whole of the first one: HELLO, and each script's text once.
	w.r.Do("SCRIPT", "FLUSH")
	w.r.Do("CONFIG", "RESETSTAT")
	fresh := open(t, w.b.Name())
	p := contender(t, fresh, "m", "")
	p.own()
	p.release()
	if n := clientCommands(w.r); n != 5 {
		t.Errorf("%d commands for the first pair", n)
	}
}

// Two hundred who wait for one owner are no load.
func TestManyWaiters(t *testing.T) {
	w := newLoneWorld(t, backendtest.RedisOptions{})
	const waiters, most = 200, 20
	span := 6 * time.Second
	if s := os.Getenv("SIMBA_LOAD"); s != "" {
		var err error
		if span, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	terms := terms(t, 10*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	leave := make(chan struct{}) // each one that is received lets one waiter go
	cfg := lease.Config{Backend: w.b, Mutex: "m", Terms: terms, Wait: lease.Forever}
	contend := func(ctx context.Context, work lease.Work) {
		wg.Go(func() {
			if err := lease.Do(ctx, cfg, work); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	owned := make(chan struct{})
	contend(ctx, func(ctx context.Context, _ *lease.Holder) error {
		close(owned)
		<-ctx.Done()
		return ctx.Err()
	})
	<-owned
	for range waiters {
		ctx, cancel := context.WithCancel(ctx)
		contend(ctx, func(context.Context, *lease.Holder) error { return nil })
		go func() {
			defer cancel()
			select {
			case leave <- struct{}{}:
			case <-ctx.Done():
			}
		}()
	}
	eventually(t, "they do not all listen", func() bool {
		return strings.Contains(w.r.Text("INFO", "stats"), fmt.Sprintf("pubsub_channels:%d\r", waiters+3)) // the owner hears three
	})
	time.Sleep(2 * time.Second) // those that looked early look again by their rank
	before := clientCommands(w.r)
	time.Sleep(span)
	rate := float64(clientCommands(w.r)-before) / span.Seconds()
	t.Logf("%.1f calls a second", rate)
	if rate > most || rate < 1 {
		t.Errorf("%.1f calls a second, at most %d", rate, most)
	}
	for i := range waiters { // leaving has a limit of a second, too short for all at once on a loaded host
		<-leave
		if i%10 == 0 {
			waitForAtMost(t, w.b, waiters-i)
		}
	}
	waitForAtMost(t, w.b, 0)
	cancel()
	wg.Wait()
	if s, err := w.b.Inspect(context.Background(), "m"); err != nil || s.State != lease.Free || len(s.Waiters) != 0 {
		t.Errorf("%+v, %v", s.State, err)
	}
	if n := w.r.Number("EXISTS", queueKey("m")); n != 0 {
		t.Error("places are left")
	}
}

// Hand-over among eight that are queued.
func TestHandOver(t *testing.T) {
	w := newLoneWorld(t, backendtest.RedisOptions{})
	const waiters, rounds = 8, 10
	terms := terms(t, 10*time.Second)
	var gaps []time.Duration
	var mu sync.Mutex
	var last time.Time
	var order []int
	for range rounds {
		owner := w.contender("owner")
		owner.own()
		var wg sync.WaitGroup
		order, last = nil, time.Time{}
		for i := range waiters {
			wg.Go(func() {
				err := lease.Do(t.Context(), lease.Config{Backend: w.b, Mutex: "m", Terms: terms, Wait: lease.Forever}, func(context.Context, *lease.Holder) error {
					mu.Lock()
					defer mu.Unlock()
					if !last.IsZero() {
						gaps = append(gaps, time.Since(last))
					}
					order = append(order, i)
					last = time.Now()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			waitFor(t, w.b, i+1)
		}
		owner.release()
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Error(order)
		}
	}
	slices.Sort(gaps)
	t.Logf("hand-over: median %v, longest %v of %d", gaps[len(gaps)/2], gaps[len(gaps)-1], len(gaps))
	if gaps[len(gaps)/2] > 20*time.Millisecond || gaps[len(gaps)-1] > time.Second {
		t.Error("too slow")
	}
}

// Reading needs read rights only, and shows no writing to anybody.
func TestReadingOnly(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{ACL: "user default on nopass ~* &* +@all\nuser reader on >x ~* resetchannels -@all +@read\n"})
	owner, waiter := w.contender("owner"), w.contender("waiter")
	owner.own()
	waiter.try()
	reader := open(t, "redis://reader:x@"+w.r.Addr)
	w.r.Do("CONFIG", "RESETSTAT")
	s, err := reader.Inspect(t.Context(), "m")
	if err != nil || s.State != lease.Held || len(s.Waiters) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	between(t, "ttl", s.TTL, testLease/2-5*time.Second, testLease/2)
	between(t, "lease", s.Lease, testLease-5*time.Second, testLease)
	if names, err := reader.List(t.Context()); err != nil || !slices.Equal(names, []string{"m"}) {
		t.Errorf("%v, %v", names, err)
	}
	if err := reader.Watch(t.Context(), nil, func(lease.Ring) {}); !errors.Is(err, lease.ErrNoPush) {
		t.Error(err)
	}
	used := regexp.MustCompile(`cmdstat_(\w+):calls`).FindAllStringSubmatch(w.r.Text("INFO", "commandstats"), -1)
	want := "get hello hgetall psubscribe pttl scan zrange"
	var names []string
	for _, u := range used {
		names = append(names, u[1])
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != want {
		t.Errorf("commands: %s", got)
	}
	owner.release()
	if s, err := reader.Inspect(t.Context(), "m"); err != nil || s.State != lease.Promised || s.Lease <= 0 || s.Lease > 2*time.Second {
		t.Errorf("%+v, %v", s, err)
	}
	eventually(t, "the promise does not lapse", func() bool {
		s, err := reader.Inspect(t.Context(), "m")
		return err == nil && s.State == lease.Free && len(s.Waiters) == 0
	})
}
