package backendtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

func memoryHarness(grant time.Duration) Harness {
	return Harness{
		Open: func(t *testing.T) lease.Backend {
			t.Helper()
			m := NewMemory(t.Name(), nil)
			m.Grant(grant)
			return m
		},
		Fingerprint: func(t *testing.T, b lease.Backend) string { return b.(*Memory).Fingerprint() },
		Vanish:      func(t *testing.T, b lease.Backend, mutex string) { b.(*Memory).Vanish(mutex) },
		Endless:     grant == lease.Forever,
	}
}

func TestMemory(t *testing.T) { Suite(t, memoryHarness(0)) }

// A store may grant another lease than it was asked for.
func TestMemoryOtherLease(t *testing.T) { Suite(t, memoryHarness(1200*time.Millisecond)) }

// deafToRenewals is a backend that says Mine to renewals and does nothing.
type deafToRenewals struct{ lease.Backend }

type deafSession struct{ lease.Session }

func (b deafToRenewals) Session(mutex string, c lease.Contender) lease.Session {
	return &deafSession{Session: b.Backend.Session(mutex, c)}
}

func (s *deafSession) Renew(_ context.Context, r lease.RenewRequest) (lease.Answer, error) {
	return lease.Answer{State: lease.Mine, Fence: r.Fence, Remaining: r.Lease}, nil
}

// The check behind HoldsThroughThreeLeases must notice a lease that nobody
// renews.
func TestHoldingIsChecked(t *testing.T) {
	terms, err := lease.NewTerms(200*time.Millisecond, 300*time.Millisecond, lease.Unset)
	if err != nil {
		t.Fatal(err)
	}
	cfg := lease.Config{Backend: deafToRenewals{NewMemory("", nil)}, Mutex: "m", Terms: terms, Wait: lease.Forever}
	err = holdsThrough(t.Context(), cfg, 3*terms.Lease())
	if err == nil || !strings.Contains(err.Error(), "another got the mutex") {
		t.Fatalf("the error is %v", err)
	}
}
