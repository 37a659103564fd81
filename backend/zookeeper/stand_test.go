package zookeeper

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// TestHoldsAndCheckpoints has one server for all that is tried step by step.
func TestHoldsAndCheckpoints(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	for _, c := range []struct {
		name string
		run  func(*testing.T, *stand)
	}{
		{"HoldNode", holdNode},
		{"HoldOfADeadOwner", holdOfADeadOwner},
		{"HoldWithoutAnAnswer", holdWithoutAnAnswer},
		{"HoldDeleted", holdDeleted},
		{"HoldNotSeen", holdNotSeen},
		{"HoldBesideTheJVM", holdBesideTheJVM},
		{"HoldOfTheFuture", holdOfTheFuture},
		{"OldReadingOfTheTime", oldReadingOfTheTime},
		{"UnreadableHold", unreadableHold},
		{"CheckpointBesideTheOthers", checkpointBesideTheOthers},
		{"CheckpointWithoutAnAnswer", checkpointWithoutAnAnswer},
		{"UnreadableCheckpoint", unreadableCheckpoint},
		{"StateACL", stateACL},
		{"Leftovers", leftovers},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, &stand{t, open(t, "zk://"+z.Addr+"/"+c.name), raw(t, z.Addr)})
		})
	}
}

// stand is one mutex in a directory of its own, with sessions that a test moves step by
// step.
type stand struct {
	t *testing.T
	b *Backend
	c *zk.Conn // beside
}

func (x *stand) session(id string) *session {
	return x.sessionBy(x.b, id)
}

func (x *stand) sessionBy(b *Backend, id string) *session {
	s := newSession(b, "m", lease.Contender{ID: id})
	x.t.Cleanup(func() { _ = s.Close() })
	return s
}

func asking(hold time.Duration) lease.TryRequest {
	return lease.TryRequest{Lease: 8 * time.Second, TTL: 4 * time.Second, Queue: true, Hold: hold}
}

func (x *stand) try(s *session, hold time.Duration, want lease.State) lease.Answer {
	x.t.Helper()
	a, err := s.Try(x.t.Context(), asking(hold))
	if err != nil || a.State != want {
		x.t.Fatalf("%s: %+v, %v; want state %d", s.c.ID, a, err, want)
	}
	return a
}

func (x *stand) release(s *session) {
	x.t.Helper()
	if err := s.Release(x.t.Context(), lease.ReleaseRequest{}); err != nil {
		x.t.Fatal(err)
	}
}

// holding is what the hold node says; nil if there is none.
func (x *stand) holding() *hold {
	x.t.Helper()
	data, stat, err := x.c.Get(x.b.holdPath("m"))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	h := &hold{}
	if err == nil {
		err = json.Unmarshal(data, h)
	}
	if err != nil || stat.EphemeralOwner != 0 {
		x.t.Fatalf("%s: %v, %+v", data, err, stat)
	}
	h.stat = stat
	return h
}

// acquired is when the owner of a mutex took it, by the servers' clock.
func acquired(t *testing.T, b *Backend) time.Time {
	t.Helper()
	s, err := b.Inspect(t.Context(), "m")
	if err != nil || s.State != lease.Held {
		t.Errorf("%+v, %v", s, err)
	}
	return s.Acquired
}

// free waits until a contender gets the mutex, and tells when.
func (x *stand) free(s *session, hold time.Duration) time.Time {
	x.t.Helper()
	eventually(x.t, s.c.ID+" gets it", func() bool {
		a, err := s.Try(x.t.Context(), asking(hold))
		if err != nil {
			x.t.Fatal(err)
		}
		return a.State == lease.Mine
	})
	return time.Now()
}
