package zookeeper

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// Many contend at once on a store in which nothing is, beside nodes of others.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const contenders, rounds = 20, 4
	z := serve(t, backendtest.ZooKeeperOptions{})
	c := raw(t, z.Addr)
	dir := "/crowd" + queues + "/m"
	x := terms(t, 4*time.Second, 4*time.Second)
	var inside atomic.Int32
	var mu sync.Mutex
	var fences []uint64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range contenders {
		b := open(t, "zk://"+z.Addr+"/crowd")
		wg.Go(func() {
			for range rounds {
				cfg := lease.Config{Backend: b, Mutex: "m", Terms: x, Wait: lease.Forever, Info: lease.Info{Note: fmt.Sprint(i)}}
				err := lease.Do(t.Context(), cfg, func(_ context.Context, h *lease.Holder) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d inside", n)
					}
					mu.Lock()
					fences = append(fences, h.Fence())
					if len(fences) == 1 {
						for _, n := range []string{"README", "x-lock-", "zzz--2147483640"} {
							if _, err := c.Create(dir+"/"+n, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
								t.Error(err)
							}
						}
					}
					mu.Unlock()
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d jobs in %v", len(fences), time.Since(began))
	if len(fences) != contenders*rounds || !slices.IsSorted(fences) {
		t.Errorf("%d fences: %v", len(fences), fences)
	}
	names, _, err := c.Children(dir)
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"README", "x-lock-", "zzz--2147483640"}) {
		t.Errorf("left: %v, %v", names, err)
	}
	if names, _, err := c.Children("/crowd" + states); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// Eight in the queue, one after the other, with a server that waits for its disk.
func TestHandOver(t *testing.T) {
	const waiters = 8
	z := serve(t, backendtest.ZooKeeperOptions{Durable: true})
	a := &arena{t: t, mutex: "m", terms: terms(t, 10*time.Second, 6*time.Second)}
	var jobs []*job
	for i := range waiters + 1 {
		j := a.run(open(t, "zk://"+z.Addr), fmt.Sprint(i))
		if i == 0 {
			j.owns()
		} else {
			j.waits()
		}
		jobs = append(jobs, j)
	}
	var gaps []time.Duration
	for i, j := range jobs {
		close(j.finish)
		if i < waiters {
			jobs[i+1].owns()
			_, over := j.times()
			began, _ := jobs[i+1].times()
			gaps = append(gaps, began-over)
		}
		await(t, "it ends", j.done)
	}
	slices.Sort(gaps)
	t.Logf("gaps: %v", gaps)
	if gaps[len(gaps)/2] > time.Second {
		t.Errorf("median %v", gaps[len(gaps)/2])
	}
}

// goroutines of the driver and of the library under it.
func goroutines() (n int, stacks string) {
	buf := make([]byte, 1<<20)
	for _, g := range bytes.Split(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
		s := string(g)
		if strings.Contains(s, "zookeeper.(*") || strings.Contains(s, "zk.(*Conn)") {
			n++
			stacks += s + "\n\n"
		}
	}
	return n, stacks
}

// Nothing runs on after Close, whatever the server was doing, and no session or
// node is left.
func TestNothingIsLeft(t *testing.T) {
	z := serve(t, backendtest.ZooKeeperOptions{})
	x := terms(t, 4*time.Second, 4*time.Second)
	request := lease.TryRequest{Lease: x.Lease(), TTL: x.TTL, Queue: true}
	for _, c := range []struct {
		name        string
		fault, mend func()
	}{
		{"well", func() {}, func() {}},
		{"dead", z.Kill, z.Restart},
		{"stopped", z.Stop, z.Cont},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := Open("zk://"+z.Addr, Options{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var sessions []lease.Session
			var wg sync.WaitGroup
			for i := range 3 {
				s := b.Session("m", lease.Contender{ID: fmt.Sprint(i)})
				if _, err := s.Try(ctx, request); err != nil {
					t.Fatal(err)
				}
				wg.Go(func() { _ = s.Listen(ctx, func(lease.Ring) {}) })
				sessions = append(sessions, s)
			}
			wg.Go(func() { _ = b.Watch(ctx, nil, func(lease.Ring) {}) })
			if _, err := b.List(ctx); err != nil {
				t.Fatal(err)
			}
			c.fault()
			short, done := context.WithTimeout(ctx, 50*time.Millisecond)
			_, _ = sessions[1].Try(short, request)
			done()
			for _, s := range sessions {
				began := time.Now()
				_ = s.Close()
				if took := time.Since(began); took > 500*time.Millisecond {
					t.Errorf("Close of a session took %v", took)
				}
			}
			cancel()
			wg.Wait()
			began := time.Now()
			_ = b.Close()
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("Close took %v", took)
			}
			// One that is over may not be gone yet.
			if err := backendtest.Eventually(500*time.Millisecond, func() error {
				if n, stacks := goroutines(); n > 0 {
					return fmt.Errorf("%d goroutines are left:\n%s", n, stacks)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			c.mend()
			if c.name == "well" {
				s, err := open(t, "zk://"+z.Addr).Inspect(t.Context(), "m")
				if err != nil || s.State != lease.Free || len(s.Waiters) > 0 {
					t.Errorf("%+v, %v", s, err)
				}
			}
		})
	}
}

// Waiters that wait cost heartbeats and nothing else: nothing is written.
func TestIdleWaiters(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	relay := backendtest.StartRelay(t, z.Addr)
	a := &arena{t: t, mutex: "m", terms: terms(t, 10*time.Second, 6*time.Second)}
	c := raw(t, z.Addr)
	jvm := startCurator(t, z.Addr, queues+"/m", "0:1@jvm")
	jvm.getsIt(t)
	b := open(t, "zk://"+relay.Addr)
	var jobs []*job
	for i := range 20 {
		jobs = append(jobs, a.run(b, fmt.Sprint(i)))
	}
	for _, j := range jobs {
		j.waits()
	}
	eventually(t, "all are in the queue", func() bool {
		names, _, err := c.Children(queues + "/m")
		return err == nil && len(newQueue(names)) == 21
	})
	last := func() int64 {
		path, err := c.Create("/mark-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		_, stat, err := c.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		return stat.Czxid
	}
	before := last()
	up, down := relay.Bytes()
	const while = 4 * time.Second
	time.Sleep(while)
	up2, down2 := relay.Bytes()
	if wrote := last() - before - 1; wrote != 0 {
		t.Errorf("%d transactions", wrote)
	}
	per := float64(up2-up+down2-down) / 20 / while.Seconds()
	t.Logf("%.0f bytes a second a waiter", per)
	if per > 3000 {
		t.Errorf("%.0f bytes a second a waiter", per)
	}
}
