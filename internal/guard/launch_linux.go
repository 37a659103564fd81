package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/internal/guard/early"
)

// A Guard is the wrapper's end of one guard process. Its methods may be called from any goroutine; none but
// Start, Hold, Wait and Close ever waits.
type Guard struct {
	cfg          Config
	wake         waker
	signals      chan os.Signal
	signalsTaken chan struct{} // those that end this process, or are passed on
	allTaken     chan struct{}
	running      sync.WaitGroup // every goroutine of this guard
	notices      chan Notice
	done         chan struct{} // the tree is gone
	reaped       chan struct{} // and so is the guard process
	ended        chan struct{} // the supervisor has ended

	mu     sync.Mutex
	posted []func() // what the supervisor is to do
	closed bool     // it has ended and does nothing any more

	supervisor
}

// guards are the live guard processes of this program. A wrapper that ends a tree by itself must spare the
// others.
var guards struct {
	sync.Mutex
	pids map[int]bool
}

func isGuard(pid int) bool {
	guards.Lock()
	defer guards.Unlock()
	return guards.pids[pid]
}

func guardPIDs() []int {
	guards.Lock()
	defer guards.Unlock()
	pids := make([]int, 0, len(guards.pids))
	for pid := range guards.pids {
		pids = append(pids, pid)
	}
	return pids
}

func setGuard(pid int, on bool) {
	guards.Lock()
	defer guards.Unlock()
	if guards.pids == nil {
		guards.pids = map[int]bool{}
	}
	if on {
		guards.pids[pid] = true
	} else {
		delete(guards.pids, pid)
	}
}

// noticeDepth is how many notices wait for a reader before the oldest is dropped.
const noticeDepth = 16

// Discard ends the process that was forked during initialisation, if no Launch has taken it.
func Discard() {
	if p := early.Take(); p != nil {
		closeAll([]int{p.Line, p.Lifetime, p.PIDFD}) // it ends then
		retry(func() (int, error) { return unix.Wait4(p.PID, nil, 0, nil) })
	}
}

// Launch starts the guard process. It is meant to be called early: the process starts up in parallel with
// whatever the caller does next, and a failure to is reported by Start. From here (see AwaitSignals) until Close
// this package owns the process's signals. The process becomes a subreaper.
func Launch(cfg Config) (*Guard, error) {
	if strings.Contains(cfg.Tag, "simba") || strings.ContainsRune(cfg.Tag, 0) || len(cfg.Tag) > early.MaxTag {
		return nil, fmt.Errorf("bad tag %q", cfg.Tag)
	}
	if cfg.Signal == 0 {
		cfg.Signal = unix.SIGTERM
	}
	if cfg.OnLost < LostStop || cfg.OnLost > LostWarn || cfg.Leftover < LeftoverStop || cfg.Leftover > LeftoverLeave {
		return nil, errors.New("bad guard configuration")
	}
	wake, err := newWaker()
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	g := &Guard{
		supervisor: supervisor{
			ordered: make(chan struct{}), guardFD: -1,
			stopAt: newAlarm(), killAt: newAlarm(),
		},
		cfg:     cfg,
		wake:    wake,
		notices: make(chan Notice, noticeDepth),
		done:    make(chan struct{}),
		reaped:  make(chan struct{}),
		ended:   make(chan struct{}),
		// Deep enough for every signal once; the runtime drops what does not fit.
		signals: make(chan os.Signal, 32), signalsTaken: make(chan struct{}), allTaken: make(chan struct{}),
	}
	g.takeSignals() // while the guard process comes up
	if p := early.Take(); p != nil {
		g.adopt(*p)
	} else {
		g.relaunch()
	}
	g.running.Go(g.loop)
	return g, nil
}

// post has the supervisor do something; it reports false if there is no supervisor any more.
func (g *Guard) post(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.posted = append(g.posted, f)
	g.wake.wake()
	return true
}

// Start has the guard start the job, once. It returns the pid of the job's first process, or ErrLate, or an
// error that matches ErrNotFound or ErrNotRunnable, or ErrGuardDied; nothing runs then. After such an
// error, but for the last, the guard can be given another order. If ctx ends before the guard's answer,
// what may have been started is killed; Close waits for that.
func (g *Guard) Start(ctx context.Context, o Order) (pid int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if len(o.Argv) == 0 || len(o.Hold) > maxFiles-3 {
		return 0, errors.New("bad order")
	}
	g.AwaitSignals()
	file, err := packOrder(o)
	if errors.Is(err, unix.EINVAL) {
		return 0, fmt.Errorf("%w: %q: NUL in an argument or the environment", ErrNotRunnable, o.Argv[0])
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	answer := make(chan startAnswer, 1)
	if !g.post(func() { g.order(o, file, answer) }) {
		return 0, ErrGuardDied
	}
	select {
	case a := <-answer:
		return a.pid, a.err
	case <-ctx.Done():
		// The order holds file until the answer is there; the guard is killed if it gives none.
		g.Kill()
		<-answer
		return 0, ctx.Err()
	}
}

// Hold gives the guard one more descriptor to keep open while anything of the job lives. f can be closed
// when it returns.
func (g *Guard) Hold(f *os.File) error {
	sent := make(chan error, 1)
	if !g.post(func() { sent <- g.hold(f) }) {
		return ErrGuardDied
	}
	return <-sent
}

// Extend sets new deadlines after a renewal. It is ignored once stopping has begun.
func (g *Guard) Extend(d Deadlines) { g.post(func() { g.extend(d) }) }

// Stop sends the stop signal to the whole tree now and SIGKILL after KillAfter, but at the Kill deadline at
// the latest.
func (g *Guard) Stop() { g.post(func() { g.demand(msgStop) }) }

// Kill sends SIGKILL to the tree now, round after round until nothing is left.
func (g *Guard) Kill() { g.post(func() { g.demand(msgKill) }) }

// Lost tells that ownership was lost: Config.OnLost says what is done. With LostSignal and LostWarn no
// deadline counts after it.
func (g *Guard) Lost() { g.post(func() { g.lose() }) }

// Signal sends a signal to the job's first process.
func (g *Guard) Signal(s syscall.Signal) {
	g.post(func() {
		if g.phase == running {
			g.tell(message{kind: msgSignal, n: [numbers]int64{int64(s)}})
		}
	})
}

// Notices delivers what the user should be told. A slow reader loses the oldest. The channel is never closed.
func (g *Guard) Notices() <-chan Notice { return g.notices }

func (g *Guard) notify(n Notice) {
	for {
		select {
		case g.notices <- n:
			return
		default:
		}
		select {
		case <-g.notices:
		default:
		}
	}
}

// Done is closed when the whole tree is gone (with LeftoverLeave: or let go). Descriptors that the guard
// held are closed by then.
func (g *Guard) Done() <-chan struct{} { return g.done }

// Wait waits for Done and returns how the job ended.
func (g *Guard) Wait() Status {
	<-g.done
	return g.status
}

// AwaitEnd waits for the end of the guard process after Done, but not longer than the limit.
func (g *Guard) AwaitEnd(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.reaped:
	case <-timer.C:
	}
}

// Close ends the guard process: at once if nothing was started, after Done otherwise; a job that still runs
// is killed first. It waits for all of it and gives the signals back. It can be called again.
func (g *Guard) Close() error {
	g.post(func() { g.closing = true })
	g.running.Wait()
	return nil
}

// spawn forks the guard process.
func (g *Guard) spawn() error {
	terminal.Lock() // the job must not inherit what we set for ourselves
	defer terminal.Unlock()
	if terminal.users > 0 {
		setTerminal(false)
		defer setTerminal(true)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := early.Fork()
	if err == nil {
		g.adopt(p)
	}
	return err
}

func (g *Guard) adopt(p early.Process) {
	setGuard(p.PID, true)
	g.guard, g.guardFD, g.line, g.lifetime = p.PID, p.PIDFD, newLine(p.Line), p.Lifetime
}
