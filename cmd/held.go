package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

const (
	backendVariable = "SIMBA_BACKEND"
	mutexVariable   = "SIMBA_MUTEX"
	// ownerVariable carries the owner's id to the job. The next owner finds by it
	// what a dead one left.
	ownerVariable = "SIMBA_OWNER"
	// heldVariable tells a run inside the job what its ancestors hold: for each a
	// backend, a mutex and a guard, three words. A variable alone proves nothing, so
	// the guard is named by its pid and start time.
	heldVariable = "SIMBA_HELD"
)

// heldStamp is all of it but the guard, which adds itself.
func heldStamp(env []string, h *lease.Holder, backend string) string {
	value := valueOf(env, heldVariable)
	if value != "" {
		value += " "
	}
	return heldVariable + "=" + value + backend + " " + h.Mutex() + " "
}

// valueOf is the last value of a variable.
func valueOf(env []string, name string) (value string) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// jobEnv is the environment of the job: simba's own, without the password, with
// the job's lease last so that it wins over what was inherited. What is held is
// added by the guard.
func jobEnv(env []string, h *lease.Holder, backend string) []string {
	return withLease(env, backend, h.Mutex(), h.ID(), h.Fence(), heldVariable)
}

func withLease(env []string, backend, mutex, owner string, fence uint64, without ...string) []string {
	set := []string{
		backendVariable + "=" + backend,
		mutexVariable + "=" + mutex,
		fmt.Sprintf("SIMBA_FENCE=%d", fence),
		ownerVariable + "=" + owner,
	}
	gone := map[string]bool{passwordVariable: true}
	for _, name := range without {
		gone[name] = true
	}
	for _, kv := range set {
		name, _, _ := strings.Cut(kv, "=")
		gone[name] = true
	}
	var out []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !gone[name] {
			out = append(out, kv)
		}
	}
	return append(out, set...)
}

// claim is what the environment says about an ancestor that holds the mutex.
type claim int

const (
	noClaim claim = iota
	doubtful
	proved
)

// heldAbove looks whether this run is part of a job that runs under the same
// mutex. Its guard must be an ancestor: a variable can be copied anywhere.
func heldAbove(env []string, backend, mutex, tag string) claim {
	c := noClaim
	for words := range slices.Chunk(strings.Fields(valueOf(env, heldVariable)), 3) {
		if len(words) < 3 || words[0] != backend || words[1] != mutex {
			continue
		}
		if guard.Above(words[2], tag) {
			return proved
		}
		c = doubtful
	}
	return c
}

// nested runs the command under the lease of an ancestor. That one renews it, and
// ends this run with the rest of its job if it is lost.
func (r *runner) nested(ctx context.Context) error {
	env, err := r.nestedEnv(ctx)
	if err != nil {
		return err
	}
	if r.o.hold > 0 {
		r.log.Warn("--hold-at-least does nothing here: the mutex is that of the job which this run is part of")
	}
	if _, err = r.guard.Start(ctx, guard.Order{Path: r.path, Argv: r.argv, Env: env}); err != nil {
		_ = r.guard.Close()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("cannot start the job: %w", err)
	}
	r.supervise(ctx, nil, nil)
	return nil
}

// nestedEnv is that of this run, which is part of a job; but what it tells may be
// about another mutex that was taken in between.
func (r *runner) nestedEnv(ctx context.Context) ([]string, error) {
	name := r.backend.Name()
	if valueOf(r.env, mutexVariable) == r.o.mutex && valueOf(r.env, backendVariable) == name {
		return r.env, nil
	}
	s, err := inspect(ctx, r.backend, r.o.mutex, r.o.connectTimeout)
	if err != nil {
		return nil, unavailable(err)
	}
	return withLease(r.env, name, r.o.mutex, s.Owner, s.Fence), nil
}

// unproved decides about a run that says it is part of a job under this mutex and
// cannot show it. If that job's owner still holds the mutex, waiting would be
// for one's own ancestor.
func (r *runner) unproved(ctx context.Context) error {
	if valueOf(r.env, mutexVariable) != r.o.mutex || valueOf(r.env, backendVariable) != r.backend.Name() {
		return nil
	}
	s, err := inspect(ctx, r.backend, r.o.mutex, r.o.connectTimeout)
	if err != nil {
		return unavailable(err)
	}
	if s.Owner == "" || s.Owner != valueOf(r.env, ownerVariable) {
		return nil
	}
	return r.busyByAncestor(s.Owner, s.Info)
}

// isAncestor: the backend may go by another name here than where the job was started, but
// an id is not mistaken.
func (r *runner) isAncestor(owner string) bool {
	return owner != "" && owner == valueOf(r.env, ownerVariable) && valueOf(r.env, mutexVariable) == r.o.mutex
}

func (r *runner) busyByAncestor(owner string, info lease.Info) error {
	r.log.Warn(fmt.Sprintf("busy: held by %s, to whose job this run says it belongs (%s); but that cannot be shown (%s)",
		who(owner, info), ownerVariable, heldVariable), keyStatus, int(r.o.busyCode), keyOwner, owner)
	return &ended{code: exitCode(r.o.busyCode)}
}
