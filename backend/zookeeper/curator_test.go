package zookeeper

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// curator contends as Curator's LeaderLatch does, to the letter: it sorts all
// children by what follows "latch-", watches the one in front with a data
// watch, and wakes at its deletion only.
type curator struct {
	c       *zk.Conn
	dir, id string
	node    string
	leads   atomic.Bool
	errs    chan error
}

func startCurator(t *testing.T, addr, dir, id string) *curator {
	t.Helper()
	l := &curator{c: raw(t, addr), dir: dir, id: id, errs: make(chan error, 1)}
	name := dir + "/_c_" + newGUID() + "-latch-"
	var path string
	for {
		var err error
		path, err = l.c.Create(name, []byte(id), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err == nil {
			break
		}
		if !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
		for i := range dir { // creatingParentContainersIfNeeded
			if i > 0 && dir[i] == '/' {
				_, _ = l.c.CreateContainer(dir[:i], nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			}
		}
		_, _ = l.c.CreateContainer(dir, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
	}
	l.node = path[len(dir)+1:]
	if err := l.look(); err != nil {
		t.Fatal(err)
	}
	return l
}

func fixForSorting(name string) string {
	if i := strings.LastIndex(name, "latch-"); i >= 0 {
		return name[i+len("latch-"):]
	}
	return name
}

func (l *curator) look() error {
	names, _, err := l.c.Children(l.dir)
	if err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(fixForSorting(a), fixForSorting(b)) })
	i := slices.Index(names, l.node)
	if i < 0 {
		return errors.New("can't find our node")
	}
	if i == 0 {
		l.leads.Store(true)
		return nil
	}
	_, _, watch, err := l.c.GetW(l.dir + "/" + names[i-1])
	if errors.Is(err, zk.ErrNoNode) {
		return l.look()
	}
	if err != nil {
		return err
	}
	go func() {
		if e := <-watch; e.Type == zk.EventNodeDeleted {
			if err := l.look(); err != nil {
				l.errs <- err
			}
		}
	}()
	return nil
}

func (l *curator) stop(t *testing.T) {
	t.Helper()
	l.leads.Store(false)
	if err := l.c.Delete(l.dir+"/"+l.node, -1); err != nil {
		t.Fatal(err)
	}
}

func (l *curator) getsIt(t *testing.T) {
	t.Helper()
	eventually(t, l.id+" leads", l.leads.Load)
}

// Ours and theirs exclude each other, in the order in which they came, whoever
// is in front of whom.
func TestMixedQueue(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	b := open(t, "zk://"+z.Addr)
	a := &arena{t: t, mutex: "mixed/Queue", terms: terms(t, 2*time.Second, 2*time.Second)}
	dir := b.queueDir(a.mutex)

	jvm1 := startCurator(t, z.Addr, dir, "0:1@jvm")
	jvm1.getsIt(t)
	ours1 := a.run(b, "ours 1")
	ours1.waits()
	jvm2 := startCurator(t, z.Addr, dir, "1:1@jvm")
	jvm3 := startCurator(t, z.Addr, dir, "2:1@jvm")
	ours2 := a.run(b, "ours 2")
	ours2.waits()
	jvm4 := startCurator(t, z.Addr, dir, "3:1@jvm")

	s, err := b.Inspect(t.Context(), a.mutex)
	if err != nil || s.State != lease.Held || s.Owner != "0:1@jvm" || s.Fence != 0 || s.Lease != lease.Forever || len(s.Waiters) != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := b.Revoke(t.Context(), a.mutex, "0:1@jvm"); !errors.Is(err, lease.ErrForeign) {
		t.Errorf("a JVM owner hears no revocation: %v", err)
	}
	if e, _ := ours1.event(lease.EventWaiting); e.Owner != "0:1@jvm" {
		t.Errorf("waits for %q", e.Owner)
	}
	select {
	case <-ours1.started:
		t.Fatal("ours did not wait")
	default:
	}

	jvm1.stop(t)
	ours1.owns()
	// Through renewals and heartbeats: none may wake, and so lose, the JVM's watch.
	ours1.keeps(5 * time.Second)
	for _, l := range []*curator{jvm2, jvm3, jvm4} {
		if l.leads.Load() {
			t.Fatalf("%s leads beside ours", l.id)
		}
	}
	ours1.ends()
	jvm2.getsIt(t)
	jvm2.stop(t)
	jvm3.getsIt(t)
	select {
	case <-ours2.started:
		t.Fatal("ours overtook")
	default:
	}
	jvm3.stop(t)
	// An owner of ours that is revoked leaves, and the JVM behind it goes on.
	h := ours2.owns()
	if jvm4.leads.Load() {
		t.Fatal("the JVM overtook")
	}
	if err := b.Revoke(t.Context(), a.mutex, h.ID()); err != nil {
		t.Fatal(err)
	}
	await(t, "the revoked one ends", ours2.done)
	if !errors.Is(ours2.err, lease.ErrRevoked) {
		t.Error(ours2.err)
	}
	jvm4.getsIt(t)
	for _, l := range []*curator{jvm1, jvm2, jvm3, jvm4} {
		select {
		case err := <-l.errs:
			t.Error(err)
		default:
		}
	}
}
