package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/lease"
)

// The events that have hooks.
const (
	hookAcquired = "acquired"
	hookReleased = "released"
	hookLost     = "lost"
	hookBusy     = "busy"
)

var hookEvents = []string{hookAcquired, hookReleased, hookLost, hookBusy}

// hookFlag is the name of an event's flag. --on-lost was taken.
func hookFlag(event string) string { return "hook-" + event }

// hookLimit is how long a hook may run; then it is killed with all that it started
// in its process group.
const hookLimit = 30 * time.Second

// hookFlags are the commands, as they were given.
type hookFlags struct {
	given map[string]*string
	words map[string][]string
}

func (h *hookFlags) add(flags *pflag.FlagSet) {
	h.given = map[string]*string{}
	for event, when := range map[string]string{
		hookAcquired: "when the mutex is acquired",
		hookReleased: "when it is released",
		hookLost:     "when ownership is lost",
		hookBusy:     "when the mutex stayed busy",
	} {
		h.given[event] = flags.String(hookFlag(event), "", "`command` to run "+when+", beside the job; split into words, no shell")
	}
}

func (h *hookFlags) complete() error {
	h.words = map[string][]string{}
	for _, event := range hookEvents {
		if *h.given[event] == "" {
			continue
		}
		words, err := splitWords(*h.given[event])
		if err != nil {
			return usagef("--%s %q: %w", hookFlag(event), *h.given[event], err)
		}
		h.words[event] = words
	}
	return nil
}

// hooks runs them one after the other, in the order of the events, and never lets
// anybody wait but the exit.
type hooks struct {
	words map[string][]string
	env   []string
	log   *slog.Logger
	out   *messages

	mu      sync.Mutex
	running sync.WaitGroup
	last    chan struct{} // closed when the latest one has ended
}

// fire runs the hook of an event, if there is one.
func (h *hooks) fire(event string, e lease.Event) {
	words := h.words[event]
	if len(words) == 0 {
		return
	}
	env := append(slices.Clone(h.env), "SIMBA_EVENT="+event)
	if e.Owner != "" {
		env = append(env, ownerVariable+"="+e.Owner)
	}
	if e.Fence > 0 {
		env = append(env, fmt.Sprintf("SIMBA_FENCE=%d", e.Fence))
	}
	h.mu.Lock()
	before, mine := h.last, make(chan struct{})
	h.last = mine
	h.mu.Unlock()
	h.running.Go(func() {
		defer close(mine)
		if before != nil {
			<-before
		}
		if err := h.run(words, env); err != nil {
			h.log.Warn(fmt.Sprintf("the hook for %q failed: %v", event, err))
		}
	})
}

func (h *hooks) run(words, env []string) error {
	c := exec.Command(words[0], words[1:]...)
	c.Env = env
	c.Stdout, c.Stderr = h.out, h.out // simba's own output is the job's
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = time.Second // for a descendant that keeps the pipe open
	if err := c.Start(); err != nil {
		return err
	}
	timer := time.AfterFunc(hookLimit, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	switch {
	case !timer.Stop():
		return fmt.Errorf("it was killed after %s", hookLimit)
	case errors.Is(err, exec.ErrWaitDelay):
		return nil
	}
	return err
}

// wait returns when all have ended.
func (h *hooks) wait() { h.running.Wait() }

// newHooks prepares them with what the environment of the job has, but for what is
// known only when the mutex is held.
func newHooks(r *runner) *hooks {
	h := &hooks{words: r.o.hooks.words, log: r.log, out: r.msg}
	if len(h.words) == 0 {
		return h
	}
	for _, kv := range r.env {
		if name, _, _ := strings.Cut(kv, "="); name != passwordVariable {
			h.env = append(h.env, kv)
		}
	}
	h.env = append(h.env, mutexVariable+"="+r.o.mutex, backendVariable+"="+r.backend.Name())
	return h
}

// observe fires the hooks of the events of a lease.
func (h *hooks) observe(e lease.Event) {
	switch {
	case e.Kind == lease.EventAcquired:
		h.fire(hookAcquired, e)
	case e.Kind == lease.EventReleased:
		h.fire(hookReleased, e)
	case e.Kind == lease.EventStopping && errors.Is(e.Err, lease.ErrLost):
		h.fire(hookLost, e)
	}
}
