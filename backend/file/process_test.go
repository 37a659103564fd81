package file_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/lease"
)

// The test binary is also what the tests kill, freeze and run as another user.
func TestMain(m *testing.M) {
	if mode := os.Getenv("FILE_TEST_CHILD"); mode != "" {
		child(mode)
		return
	}
	os.Exit(m.Run())
}

// child tells its id, then contends and tells each answer that is new.
func child(mode string) {
	dir, mutex := os.Getenv("FILE_TEST_DIR"), os.Getenv("FILE_TEST_MUTEX")
	if mode == "sleep" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	syscall.Umask(0o077)
	b := file.New(dir, file.Options{})
	id := lease.NewID(lease.IDHost)
	fmt.Println("id", id)
	s := b.Session(mutex, lease.Contender{ID: id, Info: lease.Info{Host: "child", PID: os.Getpid()}})
	if mode == "once" {
		a, err := s.Try(context.Background(), lease.TryRequest{})
		fmt.Println("state", a.State, err)
		fmt.Println("released", s.Release(context.Background(), lease.ReleaseRequest{}))
		return
	}
	rings := make(chan struct{}, 1)
	go func() {
		_ = s.Listen(context.Background(), func(lease.Ring) {
			select {
			case rings <- struct{}{}:
			default:
			}
		})
	}()
	a, err := contend(context.Background(), s, rings, func(a lease.Answer) { fmt.Println("rank", a.Rank) })
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("mine", a.Fence)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Release(context.Background(), lease.ReleaseRequest{})
	fmt.Println("released")
}

// contend waits as the protocol does.
func contend(ctx context.Context, s lease.Session, rings <-chan struct{}, told func(lease.Answer)) (lease.Answer, error) {
	for rank := -1; ; {
		a, err := s.Try(ctx, lease.TryRequest{Queue: true})
		if err != nil || a.State == lease.Mine {
			return a, err
		}
		if a.Rank != rank {
			rank = a.Rank
			told(a)
		}
		look := time.Duration(max(a.Rank, 1)) * time.Second
		for _, d := range []time.Duration{a.Remaining, a.LookBy} {
			if d > 0 {
				look = min(look, d+time.Millisecond)
			}
		}
		select {
		case <-rings:
		case <-time.After(look):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

const patience = 15 * time.Second

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Closer
	lines chan string
	id    string
	once  sync.Once
}

func start(t *testing.T, dir, mode string, with func(*exec.Cmd)) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), "FILE_TEST_CHILD="+mode, "FILE_TEST_DIR="+dir, "FILE_TEST_MUTEX=m")
	p.cmd.Stderr = os.Stderr
	if with != nil {
		with(p.cmd)
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(p.kill)
	if mode != "sleep" {
		p.id = strings.TrimPrefix(p.want("id "), "id ")
	}
	return p
}

// want returns the next line that begins so.
func (p *process) want(prefix string) string {
	p.t.Helper()
	end := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the child ended without saying %q", prefix)
			}
			if strings.HasPrefix(line, prefix) {
				return line
			}
			if strings.HasPrefix(line, "error") {
				p.t.Fatalf("the child says %q", line)
			}
		case <-end:
			p.t.Fatalf("the child does not say %q", prefix)
		}
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// freeze returns when every thread has stopped.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var st syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &st, syscall.WUNTRACED, nil); err != nil || !st.Stopped() {
		p.t.Fatalf("not stopped: %v, %v", st, err)
	}
}

func (p *process) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		for range p.lines {
		}
		_ = p.cmd.Wait()
	})
}

// finish lets an owner release.
func (p *process) finish() {
	p.t.Helper()
	_ = p.in.Close()
	p.want("released")
}

// party is a contender in this process.
type party struct {
	lease.Session
	t     *testing.T
	id    string
	rings chan struct{}
}

func newParty(t *testing.T, b *file.Backend) *party {
	t.Helper()
	id := lease.NewID(lease.IDHost)
	p := &party{Session: b.Session("m", lease.Contender{ID: id}), t: t, id: id, rings: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// hear starts the doorbell and waits until it hears.
func (p *party) hear() *party {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(ended)
		_ = p.Listen(ctx, func(r lease.Ring) {
			if r == lease.Ready {
				once.Do(func() { close(ready) })
				return
			}
			select {
			case p.rings <- struct{}{}:
			default:
			}
		})
	}()
	p.t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-ready:
	case <-time.After(patience):
		p.t.Fatal("the doorbell never was ready")
	}
	return p
}

func (p *party) try(queue bool, want lease.State) lease.Answer {
	p.t.Helper()
	a, err := p.Try(p.t.Context(), lease.TryRequest{Queue: queue})
	if err != nil || a.State != want {
		p.t.Fatalf("try: %+v, %v; want state %d", a, err, want)
	}
	return a
}

func (p *party) renew(want lease.State) lease.Answer {
	p.t.Helper()
	a, err := p.Renew(p.t.Context(), lease.RenewRequest{})
	if err != nil || a.State != want {
		p.t.Fatalf("renew: %+v, %v; want state %d", a, err, want)
	}
	return a
}

func (p *party) release() {
	p.t.Helper()
	if err := p.Release(p.t.Context(), lease.ReleaseRequest{}); err != nil {
		p.t.Fatal(err)
	}
}

// get waits for the mutex and returns how long that took.
func (p *party) get() (lease.Answer, time.Duration) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	a, err := contend(ctx, p, p.rings, func(lease.Answer) {})
	if err != nil {
		p.t.Fatal(err)
	}
	return a, time.Since(began)
}

// watcher has the doorbell of an onlooker.
type watcher struct{ *file.Backend }

func (w watcher) Listen(ctx context.Context, ring func(lease.Ring)) error {
	return w.Watch(ctx, []string{"m"}, ring)
}
func (watcher) Try(context.Context, lease.TryRequest) (a lease.Answer, err error)     { return }
func (watcher) Renew(context.Context, lease.RenewRequest) (a lease.Answer, err error) { return }
func (watcher) Checkpoint(context.Context, string, string) (s string, err error)      { return }
func (watcher) Release(context.Context, lease.ReleaseRequest) error                   { return nil }
