package lease

import "time"

// EventKind names a change.
type EventKind string

// The first group is what watchers see of a mutex; a contender sees those about itself.
const (
	EventSnapshot   EventKind = "snapshot" // the state when watching began
	EventWaiting    EventKind = "waiting"
	EventLeft       EventKind = "left" // a waiter is gone
	EventAcquired   EventKind = "acquired"
	EventTransition EventKind = "transition" // the ttl ran out without a renewal
	EventRecovered  EventKind = "recovered"  // renewed in the transition, or a vanished record was put back
	EventRevoked    EventKind = "revoked"
	EventReleased   EventKind = "released"
	EventExpired    EventKind = "expired" // the owner is gone without a release

	EventStopping  EventKind = "stopping"   // the work is told to stop
	EventLost      EventKind = "lost"       // somebody else owns it, or the record is gone
	EventGranted   EventKind = "granted"    // the backend gave another lease than asked
	EventClockStep EventKind = "clock-step" // the backend's clock jumped
	EventTrouble   EventKind = "trouble"    // a call to the backend failed
)

// Event is one change, told in order.
type Event struct {
	Time   time.Time
	Mutex  string
	Kind   EventKind
	Before string // a contender's state, or the mutex's as a watcher saw it
	State  string // the same after the change
	Owner  string // whole id of whom it is about: the owner, or the waiter
	Info   Info
	Fence  uint64
	Rank   int           // EventWaiting of a contender: its place in the queue; 0 if it has none
	Err    error         // EventTrouble, EventLost, EventStopping: why
	After  time.Duration // EventClockStep: by how much; EventGranted: the lease; EventTrouble: until the next try
}

// The states of a contender in its events.
const (
	StateWaiting    = "waiting"
	StateHeld       = "held"
	StateTransition = "transition"
	StateStopping   = "stopping"
	StateReleased   = "released"
	StateLost       = "lost"
)
