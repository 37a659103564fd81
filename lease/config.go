package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DefaultConnectTimeout is how long the first contact with a backend may take.
const DefaultConnectTimeout = 10 * time.Second

// Config says what Do is to contend for, and how.
type Config struct {
	Backend Backend
	Mutex   string
	Terms   Terms // the defaults if zero
	// Wait is how long to wait for the mutex: Forever, or 0 to try once (which
	// still waits out a promise to a waiter, two seconds at most).
	Wait time.Duration
	// Hold keeps the mutex unavailable for so long from the acquisition on, also
	// when the work ends sooner or this process dies.
	Hold time.Duration
	// ConnectTimeout bounds the first contact; zero means the default. Later
	// outages are waited out under Wait.
	ConnectTimeout time.Duration
	IDForm         IDForm
	Info           Info // PID, Host and Since are filled in if empty

	// Observe is told every event, in order. It may be slow: events queue up
	// and the protocol goes on. Do returns after the last one was told.
	Observe func(Event)
	// Measure is told of every call to the backend. It must not block.
	Measure func(Call)
	// Clock is BootClock if nil.
	Clock Clock
}

// Call is one call to the backend that has ended.
type Call struct {
	Op   string // try, renew or release
	Took time.Duration
	Err  error // also if it was given up
}

var (
	// ErrBusy: the mutex did not become free within Wait. Errors are *BusyError.
	ErrBusy = errors.New("busy")
	// ErrUnreachable: the first contact with the backend did not succeed in time.
	ErrUnreachable = errors.New("backend not reachable")
	// ErrLost is the cause of the work's context when ownership was lost, was
	// revoked or could not be renewed in time, and the error of Do then.
	ErrLost = errors.New("ownership was lost")
	// ErrRevoked is the ErrLost of an owner that was told to give up the mutex.
	ErrRevoked = fmt.Errorf("%w: it was revoked", ErrLost)
	// ErrLate is what the work returns if it found out that its lease had run
	// too far before it began anything: Do gives the mutex back and contends anew.
	ErrLate = errors.New("too late to start under this lease")
	// ErrKeep is what the work returns to leave with the mutex held: Do ends without
	// releasing it, and returns nil, if the lease is in order at that moment. Nobody
	// renews it any more; whoever knows the owner's id ([Holder.ID]) may renew or
	// release it through a session of its own until it ends. The release is best told
	// to leave a tombstone, since a call of Do's may have gone unanswered.
	//
	// It is for backends whose leases live in the store alone (Redis, MySQL). Where
	// ownership ends with the session that has it the mutex is free once Do returns;
	// of a lease without an end (files) Do says so, by returning ErrKeep itself.
	ErrKeep = errors.New("this mutex cannot be kept without a process that holds it")
)

// BusyError tells who kept the mutex busy.
type BusyError struct {
	Mutex  string
	Waited time.Duration
	Answer Answer // the last one; what remains of it does so at the time of the error
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s is busy", e.Mutex)
}

func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Work is what is done while the mutex is held. Its context ends, with a cause
// that is ErrLost, when it must stop: all it does has to end before the Kill
// deadline of the holder. The lease goes on being renewed, and is not released,
// until Work returns.
type Work func(ctx context.Context, h *Holder) error
