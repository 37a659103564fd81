package backendtest

import (
	"context"
	"slices"
	"time"
)

// Op is a kind of call to a backend.
type Op string

// The calls that can be made to go wrong.
const (
	OpTry        Op = "try"
	OpRenew      Op = "renew"
	OpRelease    Op = "release"
	OpListen     Op = "listen"
	OpInspect    Op = "inspect"
	OpList       Op = "list"
	OpRevoke     Op = "revoke"
	OpCheckpoint Op = "checkpoint"
	OpWatch      Op = "watch"
	OpRing       Op = "ring" // not a call: a ring of a doorbell, which any fault swallows
)

// Action is what goes wrong with a call.
type Action int

const (
	// Fail returns Fault.Err; nothing is executed.
	Fail Action = iota
	// Hang blocks until the call's context ends; nothing is executed.
	Hang
	// HangDone executes, then blocks until the call's context ends.
	HangDone
	// HangLate blocks until the call's context ends, and executes Delay after that.
	HangLate
	// LoseReply executes, and returns a transient error.
	LoseReply
	// DelayReply executes, and answers after Delay.
	DelayReply
	// DelayRequest executes after Delay.
	DelayRequest
)

// Fault says which calls go wrong, and how.
type Fault struct {
	Op    Op     // empty: each
	Mutex string // empty: each
	ID    string // of the contender (for Revoke, of the owner); empty: each
	Do    Action
	Err   error // Fail; a transient one if nil
	Delay time.Duration
	Times int // how many calls; 0: until it is removed
}

type fault struct {
	Fault
	left int
}

// Inject switches a fault on and returns what switches it off. If more than one
// fits a call, the first one injected is taken.
func (m *Memory) Inject(f Fault) (remove func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in := &fault{Fault: f, left: f.Times}
	m.faults = append(m.faults, in)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.drop(in)
	}
}

func (m *Memory) drop(in *fault) {
	m.faults = slices.DeleteFunc(m.faults, func(f *fault) bool { return f == in })
}

// matching finds the fault of a call and counts it. m.mu is held.
func (m *Memory) matching(op Op, mutex, id string) *fault {
	for _, f := range m.faults {
		if f.Op != "" && f.Op != op || f.Op == "" && op == OpRing ||
			f.Mutex != "" && f.Mutex != mutex || f.ID != "" && f.ID != id {
			continue
		}
		if f.Times > 0 {
			if f.left--; f.left == 0 {
				m.drop(f)
			}
		}
		return f
	}
	return nil
}

// call executes one step at the store's present time, or what a fault makes of it.
func (m *Memory) call(ctx context.Context, op Op, mutex, id string, step func(now time.Duration) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	run := func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		return step(m.clock.Now() + m.step)
	}
	m.mu.Lock()
	m.calls[op]++
	f := m.matching(op, mutex, id)
	m.mu.Unlock()
	if f == nil {
		return run()
	}
	switch f.Do {
	case Hang:
		<-ctx.Done()
		return ctx.Err()
	case HangDone:
		_ = run()
		<-ctx.Done()
		return ctx.Err()
	case HangLate:
		<-ctx.Done()
		reached, stop := m.clock.At(m.clock.Now() + f.Delay)
		go func() {
			<-reached
			stop()
			_ = run()
		}()
		return ctx.Err()
	case LoseReply:
		_ = run()
		return errBroken
	case DelayReply:
		err := run()
		return first(m.wait(ctx, f.Delay), err)
	case DelayRequest:
		if err := m.wait(ctx, f.Delay); err != nil {
			return err
		}
		return run()
	default: // Fail
		return first(f.Err, errBroken)
	}
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (m *Memory) wait(ctx context.Context, d time.Duration) error {
	reached, stop := m.clock.At(m.clock.Now() + d)
	defer stop()
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
