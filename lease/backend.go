package lease

import (
	"context"
	"errors"
	"os"
	"time"
)

// Backend is one store of mutexes. Its methods are safe for concurrent use.
//
// Every call but Watch is one attempt: it ends when its context does, and it
// neither retries nor sleeps nor logs. An error is either permanent (made by
// [Permanent]: credentials, rights, wrong database, a value of a foreign type)
// or, by default, transient (a connection that broke, a server that restarts).
// Contention is an answer, never an error. What another program wrote and the
// backend cannot read is reported, never overwritten.
type Backend interface {
	// Name is the backend's URL without its password, for people and for the
	// environment of jobs. It also identifies the backend: equal names are one
	// store.
	Name() string

	// Session prepares a contender for one mutex. It does no input or output.
	Session(mutex string, c Contender) Session

	// Inspect reads the state of one mutex. It writes nothing, needs no more
	// than read rights and disturbs no contender. An unknown mutex is free.
	Inspect(ctx context.Context, mutex string) (Snapshot, error)

	// List names the mutexes that the backend knows, in byte order.
	List(ctx context.Context) ([]string, error)

	// Revoke tells an owner, by its whole id, to stop. It returns ErrNotOwner if that
	// contender does not own the mutex, ErrForeign if it would not hear it.
	Revoke(ctx context.Context, mutex, owner string) error

	// Watch calls ring whenever one of the mutexes may have changed; with none
	// named, for every mutex. It blocks until its context ends (and returns
	// its error then) or the connection is lost. It rings Ready once it hears.
	// A ring is a hint: what is true is what Inspect says.
	Watch(ctx context.Context, mutexes []string, ring func(Ring)) error

	// Close frees what the backend holds. Sessions must be closed before.
	Close() error
}

// Session is one contender's dealings with one mutex. Its calls come one at a
// time (an abandoned one, whose context ended, may still be on its way out),
// only Listen and Checkpoint run beside the others.
type Session interface {
	// Try takes the mutex in one atomic step if it is this contender's turn.
	// For the owner itself it answers Mine again: the same lease, the same fence.
	// ErrSpent if the contender has left or was given back.
	Try(ctx context.Context, r TryRequest) (Answer, error)

	// Renew sets the full lease anew if the contender still owns the mutex.
	// It answers Mine, Held (somebody else owns it) or Gone (the record has
	// vanished).
	Renew(ctx context.Context, r RenewRequest) (Answer, error)

	// Release ends all that the contender has, ownership or place in the
	// queue, and wakes the next. It compares by the whole id, so it is safe to
	// call at any time and again. Afterwards the id is spent.
	Release(ctx context.Context, r ReleaseRequest) error

	// Listen is the doorbell: it calls ring when the contender should look
	// again, while it waits and while it owns the mutex. It blocks until its
	// context ends or the connection is lost, and returns ErrNoPush at once
	// where there is no way to be woken. It rings Ready once it hears.
	Listen(ctx context.Context, ring func(Ring)) error

	// Checkpoint keeps a short text with the mutex for the owners to come, such as the
	// last tick of a schedule. It is written by owners only, outlives them, and stays for
	// CheckpointLife at least unless the store itself is emptied. One text is put in
	// the place of another, in one atomic step, if this contender owns the mutex and
	// from is what is there (empty: nothing is). The answer is what is there afterwards,
	// so to says that it was done, by this call or by one before whose answer was lost;
	// with equal texts it only reads. The texts are printable ASCII of MaxCheckpoint bytes
	// at most. ErrNotOwner if the contender does not own the mutex. It may be called beside
	// the other calls.
	Checkpoint(ctx context.Context, from, to string) (string, error)

	// Close frees what the session holds, without leaving the queue.
	Close() error
}

const (
	// CheckpointLife is longer than the longest period of a schedule, a year.
	CheckpointLife = 400 * 24 * time.Hour
	// MaxCheckpoint is the longest text in bytes; it fits into a column and a record.
	MaxCheckpoint = 512
)

// Examiner is a Backend that can tell what about its server weakens the promise.
type Examiner interface {
	Backend
	// Examine asks the server about itself. It writes nothing. What the server does not
	// let be known is a finding too; an error says that it did not answer.
	Examine(ctx context.Context) ([]Finding, error)
}

// Finding is one thing that was looked at, for people.
type Finding struct {
	Check  string // a word or two: "persistence"
	Detail string // what was found
	Advice string // what to do about it; empty if it is as it should be
}

// Anchored is a Session whose ownership lives in open files (kernel locks).
// Whoever runs a process tree for the owner gives them to the process that
// watches over the tree, so that the mutex stays taken while either lives.
type Anchored interface {
	Session
	// Anchors are the files of the present ownership; more may come after a
	// renewal that put back a lock file which somebody removed.
	Anchors() []*os.File
}

// Ring says why a doorbell rang.
type Ring int

const (
	// Ready: from now on nothing is missed. What happened before may have been.
	Ready Ring = iota
	// Look: something changed, or it is this contender's turn.
	Look
)

// Contender is one run that wants a mutex.
type Contender struct {
	ID   string // whole id, see NewID; never reused
	Info Info
}

// Info is what an owner or a waiter tells people about itself. The same JSON
// stands in every backend. Nothing in it decides ownership.
type Info struct {
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	User    string    `json:"user,omitempty"`
	Program string    `json:"program,omitempty"`
	Note    string    `json:"note,omitempty"`
	Since   time.Time `json:"since,omitzero"` // began to contend, by its own host's clock
}

// Forever is the lease of a backend whose ownership has no end.
const Forever time.Duration = 1<<63 - 1

// TryRequest asks for the mutex.
type TryRequest struct {
	Lease time.Duration // L asked for
	TTL   time.Duration // the part of L that is the ttl, for those who read the record
	// Hold: for so long from the acquisition on nobody else may own the mutex,
	// whatever becomes of the owner. After a release, or the end of the
	// lease, the answer to others is Cooldown until then.
	Hold  time.Duration
	Queue bool // if it is not free, join the queue (or stay in it)
	// StartOver: the contender was frozen for longer than a place in the queue
	// lives; it goes to the end instead of claiming its old place.
	StartOver bool
	Seen      Seen
}

// Seen is what a waiter knows of the last owner it saw. If the store's birth
// stamp is another one or its fence is lower, the store was emptied while that
// owner may still be at work: the same atomic step then writes down that nobody
// may own the mutex for one Lease from now, and answers Held by that owner.
type Seen struct {
	Owner string        // empty: no owner was seen
	Fence uint64        // of that owner; the highest seen
	Birth string        // the store's birth stamp at that time; empty if it has none
	Lease time.Duration // L of that owner
}

// RenewRequest asks to keep the mutex.
type RenewRequest struct {
	Lease time.Duration // always the full L
	TTL   time.Duration
	Fence uint64
	Hold  time.Duration // what is left of it, for a record that is written again
	// Reassert: the record had vanished; write it again with the same fence,
	// in one atomic step that answers Mine only if nobody owned the mutex since.
	// Backends that cannot know answer Gone.
	Reassert bool
	// Dying: the work is being stopped, the lease is wanted only until then.
	// A revoked lease is extended only with it.
	Dying bool
}

// ReleaseRequest says how a contender leaves.
type ReleaseRequest struct {
	// Tombstone: a call of this contender went unanswered. Keep its id as spent
	// for TombstoneLife, so that a request that runs late takes nothing.
	Tombstone bool
	// Unused: nothing ran under the ownership, if there was one: the answer was lost, or
	// came too late to begin anything. Its hold ends with it, since nothing was done
	// that others would be kept from, and the next attempt of the same run is one of them.
	Unused bool
}

// TombstoneLife is how long a departed contender's id stays spent: longer than
// any proxy or kernel keeps a written request back before it is dropped.
const TombstoneLife = 10 * time.Minute

// PromiseLife is for how long a woken waiter has the mutex promised. Taking it
// needs one round trip; a second covers a loaded host and a slow network, and
// is what each dead waiter in front costs the ones behind.
const PromiseLife = time.Second

// State is what a backend says of a mutex.
type State int

const (
	Free     State = iota
	Mine           // the asking contender owns it
	Held           // somebody else owns it
	Promised       // free, but promised to a waiter that was woken
	Cooldown       // nobody owns it, and nobody may yet
	Gone           // (Renew) the record of the ownership has vanished
)

// Answer is what the backend knew in the atomic step. Times are remaining
// times by the backend's own clock.
type Answer struct {
	State State
	Owner string // whole id; empty if nobody's
	Info  Info   // of the owner
	Fence uint64 // of the owner; 0 if it has none (a JVM owner)
	Birth string // the store's birth stamp, if it has one

	// Remaining: until the lease (Held, Mine), the promise or the cooldown ends.
	// Forever if it has no end, 0 if unknown.
	Remaining time.Duration
	// Lease is the owner's L, 0 if unknown.
	Lease time.Duration
	// Granted is the L that this contender got if the backend gives another one
	// than asked; Forever if it never ends; 0 if as asked.
	Granted time.Duration
	// Proof, if not zero, is an earlier instant than the request's sending from
	// which the holder must count (a session kept alive by another member).
	Proof Instant
	// Clock is the backend's clock as far from its own zero; 0 if not told.
	Clock time.Duration

	Rank    int           // place in the queue from 1 on; 0: not in it
	LookBy  time.Duration // look again at the latest after this; 0: no word
	Revoked bool          // the owner (the asker) is told to stop
	// Unreleased are the ids of previous owners, the latest first, that never
	// released and nothing but whose disappearance freed the mutex (file backend:
	// both supervisors died). What they started is to be ended first. It is more
	// than one if an owner died before it had ended what the one before left.
	Unreleased []string
}

// Snapshot is what Inspect tells of a mutex.
type Snapshot struct {
	Mutex    string
	State    State // Free, Held, Promised or Cooldown
	Owner    string
	Info     Info
	Fence    uint64        // 0: the owner has none
	TTL      time.Duration // remaining; 0 in the transition; Forever without an end
	Lease    time.Duration // remaining until anybody may take it; Forever without an end
	Acquired time.Time     // by the backend's clock; zero if unknown
	Revoked  bool          // the owner was told to stop
	Last     string        // the last owner, if nobody is now and the backend knows
	Released bool          // the last owner released it itself
	Waiters  []Waiter      // in the order of the queue
	Detail   string        // what is unusual, for people: "no expiry"
}

// Waiter is a contender in the queue.
type Waiter struct {
	ID   string
	Info Info
}

var (
	// ErrSpent: the id has left or was given back; it can own nothing any more.
	ErrSpent = errors.New("this contender has left")
	// ErrNoPush: there is no way to be woken; the waiter has to look by itself.
	ErrNoPush = errors.New("waking is not available")
	// ErrNotOwner (Revoke, Checkpoint): the contender named does not own the mutex.
	ErrNotOwner = errors.New("not the owner")
	// ErrForeign (Revoke): the owner is of a kind that would not hear it.
	ErrForeign = errors.New("the owner does not understand revocation")
)

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error that trying again cannot mend.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent tells whether trying again cannot mend err.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}
