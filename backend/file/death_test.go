package file_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/lease"
)

// What is left of a mutex that nobody uses is its lock and its record.
func wantClean(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "m"))
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"lock", "record"}) {
		t.Errorf("left behind: %v", names)
	}
}

func inspect(t *testing.T, b *file.Backend) lease.Snapshot {
	t.Helper()
	s, err := b.Inspect(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKilledOwner(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	owner := start(t, dir, "hold", nil)
	owner.want("mine")
	p := newParty(t, b)
	if a := p.try(true, lease.Held); a.Owner != owner.id || a.Info.PID != owner.cmd.Process.Pid {
		t.Errorf("%+v", a)
	}
	p.hear()
	owner.kill()
	a, took := p.get()
	if took > time.Second {
		t.Errorf("free after %v", took)
	}
	if !slices.Equal(a.Unreleased, []string{owner.id}) {
		t.Errorf("unreleased: %v", a.Unreleased)
	}
	p.release()
	wantClean(t, dir)
}

// The lock belongs to whoever has the anchors, not to the session alone.
func TestAnchorsOutliveTheOwner(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	owner, next := newParty(t, b), newParty(t, b)
	owner.try(true, lease.Mine)
	anchors := owner.Session.(lease.Anchored).Anchors()
	if len(anchors) == 0 {
		t.Fatal("no anchors")
	}
	guard := start(t, dir, "sleep", func(c *exec.Cmd) { c.ExtraFiles = anchors })
	_ = owner.Close()
	if a := next.try(true, lease.Held); a.Owner != owner.id {
		t.Errorf("%+v", a)
	}
	next.hear()
	select {
	case <-next.rings:
		t.Error("it rings though the guard lives")
	case <-time.After(300 * time.Millisecond):
	}
	next.try(true, lease.Held)
	guard.kill()
	if _, took := next.get(); took > time.Second {
		t.Errorf("free after %v", took)
	}
}

func TestManyAtTheDeathOfTheOwner(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	owner := start(t, dir, "hold", nil)
	owner.want("mine")
	const many = 16
	var inside, entered atomic.Int32
	var wg sync.WaitGroup
	for i := range many {
		p := newParty(t, b)
		if i%2 == 0 { // half of them wait, half come at that instant
			p.try(true, lease.Held)
		}
		p.hear()
		wg.Go(func() {
			if i%2 == 1 {
				time.Sleep(time.Duration(i) * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			if _, err := contend(ctx, p, p.rings, func(lease.Answer) {}); err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside", n)
			}
			entered.Add(1)
			time.Sleep(2 * time.Millisecond)
			inside.Add(-1)
			if err := p.Release(ctx, lease.ReleaseRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	owner.kill()
	wg.Wait()
	if entered.Load() != many {
		t.Errorf("%d of %d came in", entered.Load(), many)
	}
	wantClean(t, dir)
}

func TestKilledWaiter(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	owner := newParty(t, b)
	owner.try(true, lease.Mine)
	first := start(t, dir, "hold", nil)
	first.want("rank 1")
	second := newParty(t, b)
	if a := second.try(true, lease.Held); a.Rank != 2 {
		t.Fatalf("%+v", a)
	}
	second.hear()
	first.kill()
	owner.release()
	if _, took := second.get(); took > 500*time.Millisecond {
		t.Errorf("the dead one in front cost %v", took)
	}
	second.release()
	wantClean(t, dir)
}

// A frozen first waiter costs the next about a second, and finds its place gone.
func TestFrozenFirstWaiter(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	owner := newParty(t, b)
	owner.try(true, lease.Mine)
	first := start(t, dir, "hold", nil)
	first.want("rank 1")
	second := newParty(t, b)
	second.try(true, lease.Held)
	second.hear()
	first.freeze()
	owner.release()
	_, took := second.get()
	if took < lease.PromiseLife/2 || took > 2*lease.PromiseLife {
		t.Errorf("the frozen one in front cost %v", took)
	}
	third := newParty(t, b)
	if a := third.try(true, lease.Held); a.Rank != 1 {
		t.Errorf("%+v", a)
	}
	third.hear()
	first.signal(syscall.SIGCONT)
	first.want("rank 2")
	second.release()
	third.get()
	third.release()
	first.want("mine")
	first.finish()
	wantClean(t, dir)
}

// An owner that died before it had ended what the one before left behind does
// not make that forgotten.
func TestUnreleasedOwnersAddUp(t *testing.T) {
	b := file.New(t.TempDir(), file.Options{})
	dies := func() (*party, lease.Answer) {
		p := newParty(t, b)
		a := p.try(true, lease.Mine)
		_ = p.Close()
		return p, a
	}
	first, _ := dies()
	second, a := dies()
	if !slices.Equal(a.Unreleased, []string{first.id}) {
		t.Errorf("%v", a.Unreleased)
	}
	gaveUp := newParty(t, b)
	gaveUp.try(true, lease.Mine)
	gaveUp.release() // before it began anything
	third := newParty(t, b)
	third.try(true, lease.Mine) // and again, if the answer was lost
	if a := third.try(true, lease.Mine); !slices.Equal(a.Unreleased, []string{second.id, first.id}) {
		t.Errorf("%v", a.Unreleased)
	}
	third.Session.(lease.Anchored).Anchors() // the work starts
	third.release()
	last := newParty(t, b)
	if a := last.try(true, lease.Mine); len(a.Unreleased) != 0 {
		t.Errorf("%v", a.Unreleased)
	}
}

// Waiters that come back join at the end: the order of 200 hand-overs is the
// order in which they joined.
func TestOrderOfManyHandOvers(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	const parties, handOvers = 5, 200
	var mu sync.Mutex
	var joined, got []int
	var gaps []time.Duration
	var released time.Time
	owner := newParty(t, b)
	owner.try(true, lease.Mine)
	var wg sync.WaitGroup
	for i := range parties {
		wg.Go(func() {
			for {
				mu.Lock()
				if len(joined) >= handOvers {
					mu.Unlock()
					return
				}
				p := newParty(t, b)
				a, err := p.Try(t.Context(), lease.TryRequest{Queue: true})
				if err != nil {
					t.Error(err)
				}
				joined = append(joined, i)
				if a.State == lease.Mine { // nobody is left in the queue
					got = append(got, i)
				}
				mu.Unlock()

				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = p.Listen(ctx, func(lease.Ring) {
						select {
						case p.rings <- struct{}{}:
						default:
						}
					})
				}()
				if a.State != lease.Mine {
					if _, err := contend(t.Context(), p, p.rings, func(lease.Answer) {}); err != nil {
						t.Error(err)
					}
					mu.Lock()
					got = append(got, i)
					gaps = append(gaps, time.Since(released))
					mu.Unlock()
				}
				time.Sleep(3 * time.Millisecond)
				mu.Lock()
				released = time.Now()
				err = p.Release(t.Context(), lease.ReleaseRequest{})
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				cancel()
				<-ended
				_ = p.Close()
			}
		})
	}
	for {
		mu.Lock()
		n := len(joined)
		mu.Unlock()
		if n == parties {
			break
		}
		time.Sleep(time.Millisecond)
	}
	mu.Lock()
	released = time.Now()
	owner.release()
	mu.Unlock()
	wg.Wait()
	if !slices.Equal(joined, got) {
		t.Errorf("joined\n%v\ngot it\n%v", joined, got)
	}
	slices.Sort(gaps)
	t.Logf("from release to the next Mine: median %v, 95%% %v, longest %v", gaps[len(gaps)/2], gaps[len(gaps)*95/100], gaps[len(gaps)-1])
	wantClean(t, dir)
}

func TestNothingLeaks(t *testing.T) {
	dir := t.TempDir()
	b := file.New(dir, file.Options{})
	open := func() int {
		entries, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	round := func() {
		owner, waiter := newParty(t, b), newParty(t, b)
		owner.try(true, lease.Mine)
		waiter.try(true, lease.Held)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = waiter.Listen(ctx, func(lease.Ring) { cancel() })
		}()
		<-ended
		owner.renew(lease.Mine)
		owner.release()
		waiter.try(true, lease.Mine)
		waiter.release()
	}
	round()
	before := open()
	for range 30 {
		round()
	}
	if after := open(); after > before {
		t.Errorf("%d files are open, %d were", after, before)
	}
	wantClean(t, dir)
}
