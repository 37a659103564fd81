package cmd

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// news tells people what happens in a run: all of it with -v, else only what
// they should know.
type news struct {
	log  *slog.Logger
	line *waitingLine
	o    *runOptions
	idle func() bool // there is no job at present; nil: there is

	lost     atomic.Bool
	trouble  time.Time // the first of a row of failures
	last     time.Time // the last of it
	told     bool
	inDanger bool // a transition was told
}

const (
	// worthTelling: an outage shorter than this mends itself before anybody
	// could read about it.
	worthTelling = 3 * time.Second
	// tellAgain keeps a long outage to a few lines an hour.
	tellAgain = 10 * time.Minute
	// sameTrouble: failures closer together than this are one outage. Attempts
	// are never further apart, but for those at a first contact.
	sameTrouble = 30 * time.Second
)

func (n *news) lostTold() bool { return n.lost.Load() }

// begin is called before each contention. An outage may have begun before it.
func (n *news) begin(line *waitingLine) {
	n.line, n.inDanger = line, false
	n.lost.Store(false)
}

// observe is told the events of the lease in order, by one goroutine.
func (n *news) observe(e lease.Event) {
	attrs := []any{keyState, e.State, keyOwner, e.Owner}
	if e.Fence > 0 {
		attrs = append(attrs, keyFence, e.Fence)
	}
	if e.After != 0 {
		attrs = append(attrs, keyAfter, e.After.String())
	}
	if e.Err != nil {
		attrs = append(attrs, keyError, e.Err.Error())
	}
	n.log.Info(string(e.Kind), attrs...)
	switch e.Kind {
	case lease.EventWaiting:
		n.line.show(e)
	case lease.EventAcquired:
		n.last = time.Time{} // what fails from now on is another outage
	case lease.EventTransition:
		n.inDanger = true
		then := "the job is stopped"
		if n.o.standby.on() {
			then = "the command is told to step down"
		}
		n.log.Warn("the lease could not be renewed in time; if that goes on " + then)
	case lease.EventRecovered:
		if n.inDanger {
			n.inDanger = false
			n.log.Warn("the lease is renewed again")
		}
	case lease.EventStopping:
		n.stopping(e.Err)
	case lease.EventGranted:
		n.log.Warn(fmt.Sprintf("the backend grants a lease of %s instead of the %s asked for", e.After, n.o.terms.Lease()))
	case lease.EventClockStep:
		n.log.Warn(fmt.Sprintf("the clock of the backend jumped by %s", e.After))
	case lease.EventTrouble:
		n.failed(e)
	}
}

// stopping tells of a loss at once: the job may take its time to end.
func (n *news) stopping(cause error) {
	if !errors.Is(cause, lease.ErrLost) {
		return
	}
	n.lost.Store(true)
	if n.o.standby.on() {
		n.log.Error(fmt.Sprintf("%v; the command is sent %s and stands by", cause, n.o.standby.lost.String()))
		return
	}
	what := map[guard.OnLost]string{
		guard.LostStop:   fmt.Sprintf("the job is stopped with %s", n.o.signal.String()),
		guard.LostKill:   "the job is killed",
		guard.LostSignal: fmt.Sprintf("the job is sent %s and may go on", n.o.signal.String()),
		guard.LostWarn:   "the job goes on without it",
	}[n.o.onLost]
	if n.idle != nil && n.idle() {
		n.log.Error(cause.Error(), keyStatus, int(exitLost))
		return
	}
	n.log.Error(fmt.Sprintf("%v; %s", cause, what), keyStatus, int(exitLost))
}

// failed tells of an outage that lasts, not of each failure in it.
func (n *news) failed(e lease.Event) {
	if e.After == 0 { // nothing is tried again
		n.log.Warn(fmt.Sprintf("%v; it ends by itself", e.Err))
		return
	}
	if e.Time.Sub(n.last) > max(sameTrouble, n.o.connectTimeout) {
		n.trouble, n.told = e.Time, false
	}
	n.last = e.Time
	lasts := e.Time.Sub(n.trouble)
	if !n.told && lasts >= worthTelling || n.told && lasts >= tellAgain {
		n.told, n.trouble = true, e.Time
		n.log.Warn(fmt.Sprintf("the backend does not answer, trying again: %v", e.Err))
	}
}

// notice tells what the guard has to say about the job.
func (n *news) notice(g guard.Notice) {
	switch g.Kind {
	case guard.Leftovers:
		done := map[guard.Leftover]string{
			guard.LeftoverStop:  "they are stopped",
			guard.LeftoverWait:  "the mutex is held until they have ended",
			guard.LeftoverLeave: "they go on without the mutex",
		}[n.o.leftover]
		n.log.Warn(fmt.Sprintf("the command ended and left processes behind: %s; %s", processes(g), done))
	case guard.Stuck:
		why := "they are still there after KILL"
		if g.Err != nil {
			why = g.Err.Error()
		}
		n.log.Error(fmt.Sprintf("cannot end processes: %s (%s); the mutex is held until they are gone", processes(g), why))
	case guard.GuardDied:
		n.log.Error("the guard process died; ending the job")
	case guard.DeadlineHit:
		n.log.Info("deadline", keyState, "stopping")
	}
}

// processes is "sleep 4242, sh 4243", and not the whole list if that is long.
func processes(n guard.Notice) string {
	const most = 8
	var s []string
	for i, pid := range n.PIDs {
		if i == most {
			s = append(s, fmt.Sprintf("and %d more", len(n.PIDs)-most))
			break
		}
		name := "?"
		if i < len(n.Names) {
			name = escape(n.Names[i])
		}
		s = append(s, fmt.Sprintf("%s %d", name, pid))
	}
	return strings.Join(s, ", ")
}
