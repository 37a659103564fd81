package cmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/backend"
	"github.com/simba-lock/simba/lease"
)

// keeper is the process that keeps one lease. lease.Do renews it towards the store as
// long as the keeper lives; how long it is kept for whoever has the token is decided here:
//
//   - with a process to watch until that has ended;
//   - otherwise until the ttl is over that was counted from the acquisition or the last
//     renewal by token. From then on check says no, here and, as the keeper revokes
//     itself, in the store. After the transition it releases.
//
// Nobody's processes are ended. So whatever takes the lease away, but a release, leaves the
// script the rest of the transition to notice, as a lease in a store does.
type keeper struct {
	*app
	order   order
	backend lease.Backend
	socket  net.Listener
	at      *keeperAt // nil: there is no socket
	tag     string
	clock   lease.BootClock

	line   *os.File // to acquire
	heard  chan took
	leave  context.CancelCauseFunc
	gone   <-chan struct{} // the watched process has ended; nil: none is watched
	wake   chan struct{}
	over   context.Context // lease.Do has returned
	finish func()
	asking sync.WaitGroup // those who ask
	tasks  sync.WaitGroup // what is done beside

	mu       sync.Mutex
	holder   *lease.Holder // nil: the mutex is not held yet, or not any more
	until    lease.Instant // the end of the ttl as it was asked for; 0: none
	end      lease.Instant // when it is released at the latest; 0: not yet known
	why      string        // it does not count as held any more
	released bool          // somebody wants it released
	changed  chan struct{} // closed when something happened to the lease, and made anew
}

func (a *app) newHold() *cobra.Command {
	return &cobra.Command{
		Use:    keeperCommand,
		Short:  "Keep a lease (started by acquire)",
		Hidden: true,
		// Its one argument is room for a tag.
		DisableFlagParsing: true,
		RunE:               func(c *cobra.Command, _ []string) error { return a.keep(c.Context()) },
	}
}

// keep is a keeper's life. What it says on standard error is said as acquire.
func (a *app) keep(ctx context.Context) error {
	if len(os.Args) == 0 || os.Args[0] != keeperName {
		return usagef("%s is for acquire alone", keeperCommand)
	}
	unix.CloseOnExec(lineFD)
	unix.CloseOnExec(messagesFD)
	a.stderr = os.NewFile(messagesFD, "messages")
	a.msg = newMessages(a.stderr)
	setProcessName(keeperName)
	k := &keeper{
		app: a, line: os.NewFile(lineFD, "acquire"), heard: make(chan took),
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	k.over, k.finish = context.WithCancel(context.WithoutCancel(ctx))
	ctx, k.leave = context.WithCancelCause(ctx)
	defer onSignals(k.told)()
	from := json.NewDecoder(k.line)
	if err := from.Decode(&k.order); err != nil {
		return &ended{code: exitFault} // nobody is there to be told
	}
	k.log = newLogger(a.msg, k.options().level(), k.order.JSONLog).With(keyMutex, k.order.Mutex)
	go k.listenTo(from)
	err := k.run(ctx)
	k.say(k.last(err))
	return &ended{code: statusOf(err)}
}

func (k *keeper) options() *runOptions {
	o := k.order
	return &runOptions{
		backendFlags: backendFlags{url: o.URL, password: o.Password, connectTimeout: o.ConnectTimeout},
		mutex:        o.Mutex, ttl: o.TTL, transition: o.Rest, wait: o.Wait, hold: o.Hold, busyCode: o.BusyCode, idForm: o.IDForm,
		verbose: o.Verbose, quiet: o.Quiet, jsonLog: o.JSONLog,
	}
}

// last is what acquire is told about the end, if it still listens.
func (k *keeper) last(err error) report {
	r := report{Over: true, Status: statusOf(err)}
	var end *ended
	if errors.As(err, &end) {
		r.Signal = end.sig
	} else if err != nil {
		r.Text = err.Error()
	}
	k.msg.flush()
	return r
}

func (k *keeper) say(r report) {
	_ = json.NewEncoder(k.line).Encode(r)
}

// listenTo hears of acquire's end. Without a token in somebody's hands nothing is kept.
func (k *keeper) listenTo(from *json.Decoder) {
	var t took
	if err := from.Decode(&t); err == nil && t.Took {
		k.heard <- t
		return
	}
	k.leave(&ended{code: exitFault})
}

// told is called with signals.
func (k *keeper) told(sig syscall.Signal) {
	k.mu.Lock()
	held := k.holder != nil
	k.released = true
	k.mu.Unlock()
	if !held {
		k.leave(&ended{sig: sig})
	}
	k.nudge()
}

func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) run(ctx context.Context) (err error) {
	defer k.leave(nil)
	o := k.options()
	if o.terms, err = lease.NewTerms(o.ttl, o.transition, 0); err != nil {
		return err
	}
	if k.tag, err = backend.Tag(ctx, o.url, o.mutex); err != nil {
		return badURL(err)
	}
	// Before the working directory is left: the URL may name files.
	if k.backend, err = o.open(ctx); err != nil {
		return err
	}
	defer func() { _ = k.backend.Close() }()
	if err := k.attend(); err != nil {
		return &coded{err, exitUnavailable}
	}
	defer k.close()
	if k.order.Watch.PID != 0 {
		k.gone = k.order.Watch.ended()
		k.tasks.Go(func() {
			select {
			case <-k.over.Done():
				return
			case <-k.gone:
			}
			k.mu.Lock()
			held := k.holder != nil
			k.mu.Unlock()
			if !held {
				k.leave(errUnwanted(k.order.Watch.PID))
			}
			k.nudge()
		})
	}
	c := &contention{app: k.app, o: o, backend: k.backend, tag: k.tag, info: k.order.Info}
	return c.run(ctx, k.work)
}

// attend makes the socket at which the keeper is reached. Where the lease lives in the
// store there may be none: then everybody asks the store, and what is done there the keeper
// learns by its next renewal.
func (k *keeper) attend() error {
	dir, err := socketDir()
	if err == nil {
		err = k.attendIn(dir)
	}
	if err != nil && staysInStore(k.order.URL) {
		k.at, err = nil, os.Chdir("/")
	}
	return err
}

func (k *keeper) attendIn(dir string) (err error) {
	sweepSockets(dir)
	var random [8]byte
	_, _ = rand.Read(random[:])
	name := hex.EncodeToString(random[:]) + socketNames
	self, _ := findProcess(os.Getpid())
	k.at = &keeperAt{PID: self.PID, Started: self.Started, Host: lease.Host(), World: world(), Socket: filepath.Join(dir, name)}
	if k.socket, err = listen(dir, name); err != nil {
		return fmt.Errorf("cannot be reached at a socket in %s: %w", dir, err)
	}
	k.tasks.Go(k.serve)
	return nil
}

// close comes after the release: whoever finds no socket knows that it is over.
func (k *keeper) close() {
	k.finish()
	if k.at != nil {
		_ = os.Remove(k.at.Socket)
		_ = k.socket.Close()
	}
	k.tasks.Wait()
	k.asking.Wait()
}

// work keeps the lease. When it returns the mutex is released.
func (k *keeper) work(ctx context.Context, h *lease.Holder) error {
	h.Anchors() // what earlier owners left has been ended
	beFound(k.tag)
	k.begin(h)
	if err := k.handOver(ctx, h); err != nil {
		return err
	}
	stop := ctx.Done()
	for {
		next, why := k.look()
		if why != "" {
			return nil
		}
		var timer <-chan struct{}
		free := func() {}
		if next > 0 {
			timer, free = k.clock.At(next)
		}
		select {
		case <-k.gone:
			free()
			return nil
		case <-stop:
			stop = nil
			cause := context.Cause(ctx)
			if !errors.Is(cause, lease.ErrRevoked) {
				k.expire(cause.Error(), false)
				free()
				return cause
			}
			k.expire("it was revoked", false)
		case <-timer:
		case <-k.wake:
		case <-h.Changes():
		}
		free()
		k.tell()
	}
}

func (k *keeper) begin(h *lease.Holder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holder = h
	// The store may grant less at a time: that is renewed here all the while, so what was
	// asked for can be kept.
	k.extend(k.order.TTL, k.order.Rest)
}

// tell has those look again who wait for something to happen to the lease.
func (k *keeper) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.changed)
	k.changed = make(chan struct{})
}

// extend counts the lease as it was asked for from now; the caller locks.
func (k *keeper) extend(ttl, rest time.Duration) {
	if k.gone == nil {
		k.until = k.clock.Now() + ttl
		k.end = k.until + rest
	}
}

// handOver gives the token to acquire, and waits until that has passed it on. From then
// on nothing of the caller's is in use any more.
func (k *keeper) handOver(ctx context.Context, h *lease.Holder) error {
	t := newToken(k.options(), k.backend.Name(), h)
	t.Keeper = k.at
	k.msg.flush()
	k.say(report{Token: t.String()})
	late, free := k.clock.At(k.clock.Now() + k.order.TTL)
	defer free()
	select {
	case <-k.heard:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late:
		return errors.New("the token was not taken before its ttl was over")
	}
	// From here on there is nobody to read a message.
	k.app.log = slog.New(slog.DiscardHandler)
	_ = k.stderr.Close()
	k.say(report{Kept: true})
	return k.line.Close()
}
