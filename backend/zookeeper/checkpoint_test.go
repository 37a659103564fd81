package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

func (x *stand) text(s *session, from, to, want string) {
	x.t.Helper()
	if got, err := s.Checkpoint(x.t.Context(), from, to); err != nil || got != want {
		x.t.Errorf("%s: %q -> %q: %q, %v; want %q", s.c.ID, from, to, got, err, want)
	}
}

func (x *stand) refused(s *session, from, to string) {
	x.t.Helper()
	if got, err := s.Checkpoint(x.t.Context(), from, to); !errors.Is(err, lease.ErrNotOwner) {
		x.t.Errorf("%s: %q -> %q: %q, %v", s.c.ID, from, to, got, err)
	}
}

// A checkpoint does not wait for the calls that renew, nor they for it, and of many that
// count at once each counts what is there.
func checkpointBesideTheOthers(t *testing.T, x *stand) {
	s := x.session("owner")
	x.try(s, time.Minute, lease.Mine)
	s.turn <- struct{}{} // a renewal that hangs
	x.text(s, "", "0", "0")
	<-s.turn
	const writers, each = 8, 5
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				now, err := s.Checkpoint(t.Context(), "", "")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(now)
				if _, err := s.Checkpoint(t.Context(), now, fmt.Sprint(n+1)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			a, err := s.Renew(t.Context(), lease.RenewRequest{Lease: 8 * time.Second, TTL: 4 * time.Second})
			if err != nil || a.State != lease.Mine {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	wg.Wait()
	data, stat, err := x.c.Get(x.b.checkpointPath("m"))
	if err != nil || string(data) != fmt.Sprint(stat.Version) || stat.Version < each || stat.EphemeralOwner != 0 {
		t.Errorf("%s after %d changes, %v", data, stat.Version, err)
	}
}

// The answer is lost: the same call again says that it was done. A request that runs when its
// sender has lost the mutex changes nothing.
func checkpointWithoutAnAnswer(t *testing.T, x *stand) {
	relay := backendtest.StartRelay(t, x.b.set.hosts[0])
	s := x.sessionBy(open(t, "zk://"+relay.Addr+x.b.set.chroot), "owner")
	x.try(s, 0, lease.Mine)
	x.text(s, "", "a", "a")

	send := func(mode backendtest.RelayMode, to string) {
		t.Helper()
		relay.Set(mode)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		own := s.path(s.own.latch)
		_, stat, err := x.c.Get(x.b.checkpointPath("m"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(ctx, s.cl, writes, "write", func(c *zk.Conn) ([]zk.MultiResponse, error) {
			return c.Multi(&zk.CheckVersionRequest{Path: own, Version: -1}, s.changeOfText(x.b.checkpointPath("m"), stat, to))
		}); err == nil {
			t.Error("it is answered")
		}
	}
	send(backendtest.EatReplies, "b")
	relay.Cut()
	relay.Set(backendtest.Pass)
	eventually(t, "it was carried out", func() bool {
		data, _, err := x.c.Get(x.b.checkpointPath("m"))
		return err == nil && string(data) == "b"
	})
	x.text(s, "a", "b", "b")

	send(backendtest.Blackhole, "late")
	if err := deleteOwner(x.c, x.b.queueDir("m")); err != nil {
		t.Fatal(err)
	}
	relay.Set(backendtest.Pass)
	eventually(t, "the late one is answered", func() bool {
		_, err := s.Checkpoint(t.Context(), "b", "c")
		return errors.Is(err, lease.ErrNotOwner)
	})
	x.refused(s, "", "")
	next := x.session("next")
	x.free(next, 0)
	x.text(next, "", "", "b")
	x.text(next, "b", "", "")
	x.release(next)
	if names, _, err := x.c.Children(x.b.set.chroot + states); err != nil || len(names) > 1 { // the claim of the one that lost the mutex
		t.Errorf("left: %v, %v", names, err)
	}
}

// What is no text of ours is reported, and not overwritten.
func unreadableCheckpoint(t *testing.T, x *stand) {
	s := x.session("owner")
	x.try(s, 0, lease.Mine)
	for _, garbage := range []string{"\x00", "a\n", "\xff", string(make([]byte, lease.MaxCheckpoint+1))} {
		if _, err := x.c.Create(x.b.checkpointPath("m"), []byte(garbage), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Checkpoint(t.Context(), "", "x"); !lease.IsPermanent(err) {
			t.Errorf("%q: %q, %v", garbage, got, err)
		}
		if err := x.c.Delete(x.b.checkpointPath("m"), 0); err != nil {
			t.Errorf("%q: %v", garbage, err)
		}
	}
}

// Holds and checkpoints belong to their user, as the other nodes do.
func stateACL(t *testing.T, x *stand) {
	b := open(t, "zk://ops:hunter2@"+x.b.set.hosts[0]+x.b.set.chroot)
	s := x.sessionBy(b, "owner")
	x.try(s, time.Minute, lease.Mine)
	x.text(s, "", "a", "a")
	for _, path := range []string{b.holdPath("m"), b.checkpointPath("m")} {
		if _, _, err := x.c.Get(path); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := s.readClock(t.Context(), s.cl); err != nil {
		t.Error(err)
	}
	x.release(s)
	x.try(x.sessionBy(b, "next"), time.Minute, lease.Cooldown)
}

// Many mutexes, with holds and checkpoints, whose owners end in all ways: what is left is
// what is documented, one small node of a kind a mutex, and the next owners remove the holds.
func leftovers(t *testing.T, x *stand) {
	const mutexes = 120
	left := func() (holds, texts int, others []string) {
		t.Helper()
		names, _, err := x.c.Children(x.b.set.chroot + states)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			switch kind, _, _ := strings.Cut(n, "-"); kind {
			case "hold":
				holds++
			case "checkpoint":
				texts++
			default:
				others = append(others, n)
			}
		}
		return holds, texts, others
	}
	wantHolds, wantTexts := 0, 0
	for i := range mutexes {
		s := newSession(x.b, fmt.Sprintf("many/m%d", i), lease.Contender{ID: fmt.Sprint(i)})
		r := asking(0)
		switch i % 3 {
		case 1:
			r.Hold = time.Millisecond // over at the release, if there is one
		case 2:
			r.Hold = time.Hour
		}
		if a, err := s.Try(t.Context(), r); err != nil || a.State != lease.Mine {
			t.Fatal(a, err)
		}
		if i%2 == 0 {
			x.text(s, "", "tick", "tick")
			wantTexts++
		}
		time.Sleep(2 * time.Millisecond)
		dies := i%5 == 0
		if !dies {
			x.release(s)
		}
		if r.Hold == time.Hour || r.Hold > 0 && dies {
			wantHolds++
		}
		if i%10 == 0 {
			s.crash() // its session ends by itself
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the sessions have ended", func() bool { _, _, others := left(); return len(others) == 0 })
	if holds, texts, _ := left(); holds != wantHolds || texts != wantTexts {
		t.Errorf("%d holds, %d texts; want %d, %d", holds, texts, wantHolds, wantTexts)
	}
	for i := range mutexes {
		if i%3 == 2 {
			// An hour is too long for a test; somebody ends it.
			if err := x.c.Delete(x.b.holdPath(fmt.Sprintf("many/m%d", i)), -1); err != nil {
				t.Error(err)
			}
		}
		s := newSession(x.b, fmt.Sprintf("many/m%d", i), lease.Contender{ID: fmt.Sprint("next ", i)})
		if a, err := s.Try(t.Context(), asking(0)); err != nil || a.State != lease.Mine {
			t.Fatal(i, a, err)
		}
		x.release(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if holds, texts, others := left(); holds != 0 || texts != wantTexts || len(others) != 0 {
		t.Errorf("after the next ones: %d holds, %d texts, %v", holds, texts, others)
	}
}
