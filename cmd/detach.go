package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

// Where a store ties a lease to a process, or somebody has to renew it, acquire starts a
// keeper: the same binary, detached, which contends itself, so that the kernel's locks
// and the session of the store are its own, and keeps the mutex when acquire has ended.
//
//	acquire                                     keeper
//	   | ---- order (what to contend for) ------> |
//	   |                                          | waits in the queue; its messages go
//	   |                                          | to acquire's standard error
//	   | <--- owned: token ---------------------- |
//	   | prints it                                |
//	   | ---- took ------------------------------>|
//	   | <--- kept ------------------------------ | from here on it stays
//	   ends
//
// A line that breaks before "took" means that nobody has the token: the keeper gives the
// mutex back, or leaves the queue. acquire tells success only after "kept".

// order is what the keeper is to do. It goes over a socket, since there may be a
// password in it.
type order struct {
	URL, Password  string
	Mutex          string
	TTL, Rest      time.Duration
	Wait, Hold     time.Duration
	ConnectTimeout time.Duration
	IDForm         lease.IDForm
	BusyCode       exitCodeValue
	Info           lease.Info
	Watch          watched

	Verbose, Quiet, JSONLog bool
}

// report is one message of the keeper's.
type report struct {
	Token string `json:",omitempty"` // owned
	Kept  bool   `json:",omitempty"`
	// Over: it ends, with this status. An error it has not told about itself is Text.
	Over   bool           `json:",omitempty"`
	Status exitCode       `json:",omitempty"`
	Signal syscall.Signal `json:",omitempty"`
	Text   string         `json:",omitempty"`
}

// took is acquire's answer to a token.
type took struct{ Took bool }

const (
	keeperCommand = "hold"
	// The arguments of a keeper are those of a guard, so that the file backend finds it
	// where it looks for those; the last one has room for a tag, see beFound.
	keeperName = "mutex-guard"
	keeperRoom = 64

	lineFD, messagesFD = 3, 4

	// leaveWithin is how long a keeper that is told to give up may take for it.
	leaveWithin = 3 * time.Second
)

// handing passes the token on, unless its context ends before.
type handing func(ctx context.Context, token string) error

var errKeeper = &coded{errors.New("the process that was to keep the lease has died"), exitFault}

// detach has a keeper contend, and returns when it keeps the lease or is gone.
func (a *app) detach(ctx context.Context, o order, hand handing) error {
	line, fd, keeper, err := a.startKeeper()
	if err != nil {
		return &coded{fmt.Errorf("cannot start a process to keep the lease: %w", err), exitFault}
	}
	defer func() { _ = line.Close() }()
	over := make(chan struct{})
	go func() {
		_ = keeper.Wait()
		close(over)
	}()
	// A signal ends the wait; the keeper sees the line break, and leaves the queue.
	stop := context.AfterFunc(ctx, func() {
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		select {
		case <-over:
		case <-time.After(leaveWithin):
			_ = unix.Shutdown(fd, unix.SHUT_RDWR) // it is frozen
		}
	})
	defer stop()
	err = converse(ctx, line, o, hand)
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		timer := time.NewTimer(leaveWithin)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
		}
	}
	return err
}

func converse(ctx context.Context, line *os.File, o order, hand handing) error {
	to, from := json.NewEncoder(line), json.NewDecoder(line)
	if err := to.Encode(o); err != nil {
		return errKeeper
	}
	owned, err := hear(from)
	if err != nil {
		return err
	}
	if err := hand(ctx, owned.Token); err != nil {
		return err
	}
	if err := to.Encode(took{true}); err != nil {
		return errKeeper
	}
	kept, err := hear(from)
	if err == nil && !kept.Kept {
		err = errKeeper
	}
	return err
}

// hear returns the next report, or what the keeper ended with.
func hear(from *json.Decoder) (r report, err error) {
	if err := from.Decode(&r); err != nil {
		return r, errKeeper
	}
	switch {
	case !r.Over:
		return r, nil
	case r.Signal != 0:
		return r, &ended{sig: r.Signal}
	case r.Text == "":
		return r, &ended{code: r.Status}
	}
	return r, &coded{errors.New(r.Text), r.Status}
}

// startKeeper starts the process. It inherits standard error, for as long as it waits,
// and nothing else: a pipe of the caller's that stays open in it would keep the
// caller's $(…), or the step of a pipeline, from coming to an end.
func (a *app) startKeeper() (line *os.File, fd int, keeper *exec.Cmd, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, -1, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range pair {
		unix.CloseOnExec(fd)
	}
	line = os.NewFile(uintptr(pair[0]), "keeper")
	theirs := os.NewFile(uintptr(pair[1]), "keeper")
	defer func() { _ = theirs.Close() }()
	closeOnExec()
	path, err := executable()
	if err == nil {
		keeper = &exec.Cmd{
			Path:        path,
			Args:        []string{keeperName, keeperCommand, strings.Repeat("-", keeperRoom)},
			Env:         keeperEnv(os.Environ()),
			ExtraFiles:  []*os.File{theirs, a.stderr},
			SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		}
		err = keeper.Start()
	}
	if err != nil {
		_ = line.Close()
		return nil, -1, nil, err
	}
	return line, pair[0], keeper, nil
}

// keeperEnv is without what may hold a password: the order has it.
func keeperEnv(env []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == passwordVariable || name == variable("backend") || name == tokenVariable
	})
}

// closeOnExec keeps what this process was started with from its children.
func closeOnExec() {
	const most = 4096 // where the directory is not to be had
	var fds []int
	dir, err := os.Open("/dev/fd")
	if err == nil {
		names, _ := dir.Readdirnames(-1)
		_ = dir.Close()
		for _, name := range names {
			fd := 0
			if _, err := fmt.Sscan(name, &fd); err == nil {
				fds = append(fds, fd)
			}
		}
	}
	if len(fds) <= 3 { // FreeBSD shows the standard ones only, unless fdescfs is mounted
		for fd := range most {
			fds = append(fds, fd)
		}
	}
	for _, fd := range fds {
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
