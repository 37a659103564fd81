package cmd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// examined is a backend that tells about its server.
type examined struct {
	*backendtest.Memory
	findings []lease.Finding
	err      error
}

func (b examined) Examine(context.Context) ([]lease.Finding, error) { return b.findings, b.err }

// What a driver finds counts: with an advice it is doubtful, without one it is as it
// should be, and a server that does not tell is doubtful, not bad.
func TestExamination(t *testing.T) {
	good := lease.Finding{Check: "persistence", Detail: "every write"}
	weak := lease.Finding{Check: "eviction", Detail: "allkeys-lru", Advice: "set noeviction"}
	for _, c := range []struct {
		name     string
		findings []lease.Finding
		err      error
		worst    string
		last     finding
	}{
		{"well", []lease.Finding{good}, nil, fine, finding{"persistence", fine, "every write", ""}},
		{"weak", []lease.Finding{good, weak}, nil, shaky, finding{"eviction", shaky, "allkeys-lru", "set noeviction"}},
		{"silent", nil, errors.New("not permitted"), shaky,
			finding{"server", shaky, "it does not tell about itself: not permitted", "ask again with rights to read its settings"}},
	} {
		e := &examination{backend: examined{backendtest.NewMemory(c.name, nil), c.findings, c.err}, limit: 5 * time.Second}
		e.all(t.Context())
		if e.worst() != c.worst || e.findings[len(e.findings)-1] != c.last {
			t.Errorf("%s: %s, %+v", c.name, e.worst(), e.findings)
		}
	}
}
