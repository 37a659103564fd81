package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simba-lock/simba/backend"
	"github.com/simba-lock/simba/lease"
)

// examination goes on as long as what comes next can still be tried.
type examination struct {
	backend  lease.Backend
	limit    time.Duration // of one call
	findings []finding
}

func (e *examination) worst() string {
	worst := fine
	for _, f := range e.findings {
		if f.Status == bad || f.Status == shaky && worst == fine {
			worst = f.Status
		}
	}
	return worst
}

func (e *examination) add(status, check, detail, advice string) {
	e.findings = append(e.findings, finding{Check: check, Status: status, Detail: detail, Advice: advice})
}

// advice is what to do about an error; otherwise is for those that may pass.
func advice(err error, otherwise string) string {
	if lease.IsPermanent(err) {
		return "the reason is the backend's own: mend the rights or the configuration that it names"
	}
	return otherwise
}

// call tries one thing; false if it failed, which is noted with what to do.
func (e *examination) call(ctx context.Context, check, otherwise string, call func(context.Context) (string, error)) bool {
	began := time.Now()
	detail, err := within(ctx, e.limit, call)
	took := time.Since(began).Round(10 * time.Microsecond)
	if err != nil {
		e.add(bad, check, err.Error(), advice(err, otherwise))
		return false
	}
	e.add(fine, check, strings.TrimSpace(fmt.Sprintf("%s (%s)", detail, took)), "")
	return true
}

func (e *examination) all(ctx context.Context) {
	const elsewhere = "is the address right, does the server run, does a firewall stand between?"
	if !e.call(ctx, "reachable", elsewhere, func(ctx context.Context) (string, error) {
		names, err := e.backend.List(ctx)
		return fmt.Sprintf("%s, mutexes known: %d", e.backend.Name(), len(names)), err
	}) {
		return
	}
	e.rights(ctx)
	for _, w := range backend.Warnings(ctx, e.backend) {
		e.add(shaky, "warning", w, "")
	}
	e.server(ctx)
}

// server is what only the driver knows to ask about.
func (e *examination) server(ctx context.Context) {
	b, ok := e.backend.(lease.Examiner)
	if !ok {
		return
	}
	findings, err := within(ctx, e.limit, b.Examine)
	if err != nil {
		e.add(shaky, "server", "it does not tell about itself: "+err.Error(), "ask again with rights to read its settings")
	}
	for _, f := range findings {
		status := fine
		if f.Advice != "" {
			status = shaky
		}
		e.add(status, f.Check, f.Detail, f.Advice)
	}
}

var errUnexpected = errors.New("the backend answers what it should not")

func (e *examination) rights(ctx context.Context) {
	terms, err := lease.NewTerms(lease.Unset, lease.Unset, lease.Unset)
	if err != nil {
		e.add(bad, "acquire", err.Error(), "")
		return
	}
	err = lease.Do(ctx, lease.Config{
		Backend: e.backend, Mutex: oneAtATime, Terms: terms, Wait: patienceOfDoctors, ConnectTimeout: e.limit,
		Info: lease.Info{User: userName(), Program: "simba doctor"},
	}, func(ctx context.Context, _ *lease.Holder) error {
		e.trial(ctx, terms)
		return nil
	})
	switch {
	case errors.Is(err, lease.ErrBusy):
		e.add(shaky, "acquire", fmt.Sprintf("not tried: another doctor has kept the mutex %s for %s", oneAtATime, patienceOfDoctors),
			"try again later, or see who it is: simba status "+oneAtATime)
	case err != nil && ctx.Err() == nil:
		e.add(bad, "acquire", err.Error(), advice(err, ""))
	}
}

const (
	// Always the same names: in some stores a trace of each mutex stays. Doctors take turns, for
	// beside another one the queue of the trial would not be what is expected.
	oneAtATime = "simba-doctor"
	trial      = "simba-doctor/trial"
	// patienceOfDoctors is longer than the lease of one that was killed.
	patienceOfDoctors = 30 * time.Second
)

// trial is all that a run asks of a backend.
func (e *examination) trial(ctx context.Context, terms lease.Terms) {
	session := func(note string) (lease.Session, string) {
		c := lease.Contender{ID: lease.NewID(lease.IDHost), Info: lease.Info{Host: lease.Host(), Note: note}}
		return e.backend.Session(trial, c), c.ID
	}
	owner, ownerID := session("doctor, owner")
	waiter, _ := session("doctor, waiter")
	defer func() {
		for _, s := range []lease.Session{waiter, owner} {
			_, _ = within(context.WithoutCancel(ctx), e.limit, func(ctx context.Context) (int, error) {
				return 0, s.Release(ctx, lease.ReleaseRequest{})
			})
			_ = s.Close()
		}
	}()
	request := lease.TryRequest{Lease: terms.Lease(), TTL: terms.TTL, Queue: true}
	var mine lease.Answer
	var began, ended time.Time
	ok := e.call(ctx, "acquire", "", func(ctx context.Context) (string, error) {
		var err error
		began = time.Now()
		mine, err = owner.Try(ctx, request)
		ended = time.Now()
		return fmt.Sprintf("fence %d", mine.Fence), expect(err, mine.State, lease.Mine)
	})
	if !ok {
		return
	}
	e.granted(mine, terms)
	ok = e.call(ctx, "renew", "", func(ctx context.Context) (string, error) {
		a, err := owner.Renew(ctx, lease.RenewRequest{Lease: terms.Lease(), TTL: terms.TTL, Fence: mine.Fence})
		return "", expect(err, a.State, lease.Mine)
	})
	ok = ok && e.call(ctx, "wait", "", func(ctx context.Context) (string, error) {
		a, err := waiter.Try(ctx, request)
		return "", expect(err, a.State, lease.Held)
	})
	var acquired time.Time
	ok = ok && e.call(ctx, "inspect", "", func(ctx context.Context) (string, error) {
		s, err := e.backend.Inspect(ctx, trial)
		acquired = s.Acquired
		if err == nil && (s.Owner != ownerID || len(s.Waiters) != 1) {
			err = errUnexpected
		}
		return "", err
	})
	e.clock(acquired, began, ended)
	ok = ok && e.call(ctx, "revoke", "", func(ctx context.Context) (string, error) {
		return "", e.backend.Revoke(ctx, trial, ownerID)
	})
	if ok {
		e.handOver(ctx, owner, waiter, request)
	}
}

// handOver releases under a waiter that listens.
func (e *examination) handOver(ctx context.Context, owner, waiter lease.Session, request lease.TryRequest) {
	listening, stop := context.WithCancel(ctx)
	type end struct{ why error }
	ready, rung, ended := make(chan struct{}, 1), make(chan struct{}, 1), make(chan end, 1)
	go func() {
		ended <- end{waiter.Listen(listening, func(r lease.Ring) {
			to := rung
			if r == lease.Ready {
				to = ready
			}
			select {
			case to <- struct{}{}:
			default:
			}
		})}
	}()
	defer func() {
		stop()
		<-ended
	}()
	push := false
	timer := time.NewTimer(e.limit)
	defer timer.Stop()
	select {
	case <-ready:
		push = true
	case err := <-ended:
		ended <- err
		if !errors.Is(err.why, lease.ErrNoPush) {
			e.add(bad, "wake-up", err.why.Error(), "")
			return
		}
	case <-timer.C:
		e.add(bad, "wake-up", "no answer in time", "")
		return
	}
	if _, err := within(ctx, e.limit, func(ctx context.Context) (lease.Answer, error) {
		return waiter.Try(ctx, request) // as every waiter does once it hears
	}); err != nil {
		e.add(bad, "wait", err.Error(), advice(err, ""))
		return
	}
	if !push {
		e.add(shaky, "wake-up", "there is no way to wake a waiter here, so each looks once a second",
			"allow what a doorbell needs: channels in Redis, GET_LOCK in a database")
	}
	ok := e.call(ctx, "release", "", func(ctx context.Context) (string, error) {
		return "", owner.Release(ctx, lease.ReleaseRequest{})
	})
	if ok && push {
		ok = e.call(ctx, "wake-up", "", func(ctx context.Context) (string, error) {
			select {
			case <-rung:
				return "", nil
			case <-ctx.Done():
				return "", errors.New("the waiter was not told of the release")
			}
		})
	}
	if ok {
		e.call(ctx, "hand-over", "", func(ctx context.Context) (string, error) {
			a, err := waiter.Try(ctx, request)
			return "", expect(err, a.State, lease.Mine)
		})
	}
}

func expect(err error, got, want lease.State) error {
	if err == nil && got != want {
		return errUnexpected
	}
	return err
}

func (e *examination) granted(a lease.Answer, terms lease.Terms) {
	switch a.Granted {
	case 0, terms.Lease():
		e.add(fine, "lease", shortDuration(terms.Lease())+", as asked for", "")
	case lease.Forever:
		e.add(fine, "lease", "without an end: kernel locks decide", "")
	default:
		e.add(shaky, "lease", fmt.Sprintf("%s instead of the %s asked for", a.Granted, shortDuration(terms.Lease())),
			"ask for what the server grants with --ttl and --transition, or change its limits (ZooKeeper: minSessionTimeout, maxSessionTimeout)")
	}
}

// clock compares with the backend's, which wrote down when the mutex was acquired. No
// lease depends on it, but fences and times that people read do.
func (e *examination) clock(acquired, began, ended time.Time) {
	const doubt = 5 * time.Second
	const first = 2000 // a year before that is another way to count
	if acquired.Year() < first || strings.HasPrefix(e.backend.Name(), "file:") {
		return
	}
	diff := max(began.Sub(acquired), acquired.Sub(ended), 0).Round(time.Millisecond)
	if diff < doubt {
		e.add(fine, "clock", "differs by "+diff.String(), "")
		return
	}
	e.add(shaky, "clock", fmt.Sprintf("the backend's is %s away from this host's", diff),
		"set both clocks (NTP): leases do not depend on it, but the times that people see do")
}
