package zookeeper

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// Nodes belong to the user who made them. Who is not that user is told so at
// once, and the user is known again after the server was restarted.
func TestAuth(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	admin := raw(t, z.Addr)
	if _, err := admin.Create("/app", nil, zk.FlagPersistent, zk.DigestACL(zk.PermAll, "ops", "hunter2")); err != nil {
		t.Fatal(err)
	}
	a := &arena{t: t, mutex: "m", terms: terms(t, 10*time.Second, 6*time.Second)}
	b := open(t, "zk://ops:hunter2@"+z.Addr+"/app/locks")
	owner := a.run(b, "owner")
	h := owner.owns()
	waiter := a.run(open(t, "zk://ops:hunter2@"+z.Addr+"/app/locks"), "waiter")
	waiter.waits()

	for name, url := range map[string]string{
		"nobody": "zk://" + z.Addr + "/app/locks", "another": "zk://ops:wrong1@" + z.Addr + "/app/locks",
		"nobody, in a chroot to be made": "zk://" + z.Addr + "/app/other",
	} {
		other := open(t, url)
		s := other.Session("m", lease.Contender{ID: "x"})
		_, err := s.Try(t.Context(), lease.TryRequest{Lease: a.terms.Lease(), TTL: a.terms.TTL, Queue: true})
		if !lease.IsPermanent(err) || !strings.Contains(err.Error(), "NoAuth") || strings.Contains(err.Error(), "wrong1") {
			t.Errorf("%s: %v", name, err)
		}
		_ = s.Close()
		if _, err := other.Inspect(t.Context(), "m"); !strings.Contains(name, "chroot") && !lease.IsPermanent(err) {
			t.Errorf("%s inspects: %v", name, err)
		}
	}

	z.Restart()
	renewed(t, h)
	renewed(t, h)
	if err := b.Revoke(t.Context(), "m", h.ID()); err != nil {
		t.Error(err)
	}
	owner.lost()
	waiter.ends()
	if s, err := b.Inspect(t.Context(), "m"); err != nil || s.State != lease.Free {
		t.Errorf("%+v, %v", s, err)
	}
}

// acl=read lets everybody look, and nobody else contend.
func TestReadableACL(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	a := &arena{t: t, mutex: "a/b", terms: terms(t, 4*time.Second, 4*time.Second)}
	owner := a.run(open(t, "zk://ops:hunter2@"+z.Addr+"/x?acl=read"), "owner")
	h := owner.owns()
	reader := open(t, "zk://"+z.Addr+"/x")
	s, err := reader.Inspect(t.Context(), a.mutex)
	if err != nil || s.Owner != h.ID() || s.Fence != h.Fence() {
		t.Errorf("%+v, %v", s, err)
	}
	if l, err := reader.List(t.Context()); err != nil || len(l) != 1 || l[0] != a.mutex {
		t.Errorf("%v, %v", l, err)
	}
	if err := reader.Revoke(t.Context(), a.mutex, h.ID()); !lease.IsPermanent(err) {
		t.Errorf("revoked by a reader: %v", err)
	}
	owner.ends()
}

// A ttl below half of the lease cannot work here, and is refused.
func TestShortTTL(t *testing.T) {
	t.Parallel()
	b := open(t, "zk://127.0.0.1:1")
	s := b.Session("m", lease.Contender{ID: "x"})
	_, err := s.Try(t.Context(), lease.TryRequest{Lease: 10 * time.Second, TTL: 4 * time.Second})
	if !lease.IsPermanent(err) || !errors.Is(err, lease.ErrTerms) || !strings.Contains(err.Error(), "transition of at most 4s") {
		t.Error(err)
	}
}
