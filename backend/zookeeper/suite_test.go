package zookeeper

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// TestMain lets more tests run side by side than there are processors: what they
// do is wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("5")
	}
	os.Exit(m.Run())
}

// mortal has its sessions end as a kill -9 ends them: nobody tells the server.
type mortal struct{ *Backend }

type mortalSession struct{ *session }

func (m mortal) Session(mutex string, c lease.Contender) lease.Session {
	return mortalSession{newSession(m.Backend, mutex, c)}
}

func (m mortalSession) Close() error {
	m.crash()
	return nil
}

// again does what the protocol does about a server that did not answer in time:
// with leases this short and a loaded host, that happens.
func again[T any](ctx context.Context, call func() (T, error)) (v T, err error) {
	for range 4 {
		v, err = call()
		if err == nil || ctx.Err() != nil || lease.IsPermanent(err) ||
			!errors.Is(err, errLost) && !strings.Contains(err.Error(), "no server answers") {
			break
		}
	}
	return v, err
}

func (m mortalSession) Try(ctx context.Context, r lease.TryRequest) (lease.Answer, error) {
	return again(ctx, func() (lease.Answer, error) { return m.session.Try(ctx, r) })
}

func (m mortalSession) Renew(ctx context.Context, r lease.RenewRequest) (lease.Answer, error) {
	return again(ctx, func() (lease.Answer, error) { return m.session.Renew(ctx, r) })
}

func (m mortalSession) Release(ctx context.Context, r lease.ReleaseRequest) error {
	_, err := again(ctx, func() (struct{}, error) { return struct{}{}, m.session.Release(ctx, r) })
	return err
}

// crash ends a session as a kill -9 does.
func (s *session) crash() {
	s.mu.Lock()
	s.closed = true
	cl := s.cl
	s.mu.Unlock()
	if cl != nil {
		s.b.wg.Go(func() { cl.close(false) })
	}
}

// open is a backend that is closed when the test ends.
func open(t *testing.T, url string) *Backend {
	t.Helper()
	b, err := Open(url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// raw is a connection beside those under test.
func raw(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for limit := time.After(10 * time.Second); ; {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return c
			}
		case <-limit:
			t.Fatal("no connection")
		}
	}
}

// dump is all that stands under a node.
func dump(c *zk.Conn, root string) (string, error) {
	data, stat, err := c.Get(root)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	s := fmt.Sprintf("%s %d %d %d %q\n", root, stat.Czxid, stat.Version, stat.Cversion, data)
	names, _, err := c.Children(root)
	slices.Sort(names)
	for _, n := range names {
		below, err := dump(c, path.Join(root, n))
		if err != nil {
			return "", err
		}
		s += below
	}
	return s, err
}

// warm lets a server compile what it needs: its first answers are slow, and with
// short leases it has not the time for that.
func warm(t *testing.T, addr string) {
	t.Helper()
	c := raw(t, addr)
	defer c.Close()
	for range 100 {
		path, err := c.Create("/warm-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := c.ChildrenW("/"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Multi(&zk.CheckVersionRequest{Path: path, Version: -1}); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
}

func serve(t *testing.T, o backendtest.ZooKeeperOptions) *backendtest.ZooKeeper {
	t.Helper()
	z := backendtest.StartZooKeeper(t, o)
	warm(t, z.Addr)
	return z
}

func serveThree(t *testing.T, o backendtest.ZooKeeperOptions) *backendtest.ZooKeeperEnsemble {
	t.Helper()
	e := backendtest.StartZooKeeperEnsemble(t, 3, o)
	for _, m := range e.Members {
		warm(t, m.Addr)
	}
	return e
}

// harness runs the suite against one server, which all clients use.
func harness(addr string, half time.Duration) backendtest.Harness {
	n := 0
	terms, err := lease.NewTerms(half, half, lease.Unset)
	if err != nil {
		panic(err)
	}
	chroots := map[lease.Backend]string{}
	return backendtest.Harness{
		Terms:      terms,
		NoReassert: true,
		Open: func(t *testing.T) lease.Backend {
			n++
			chroot := fmt.Sprintf("/suite/run%d", n)
			b, err := Open("zk://"+addr+chroot, Options{})
			if err != nil {
				t.Fatal(err)
			}
			m := mortal{b}
			chroots[m] = chroot
			return m
		},
		Fingerprint: func(t *testing.T, b lease.Backend) string {
			c := raw(t, addr)
			s, err := dump(c, chroots[b])
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Vanish: func(t *testing.T, b lease.Backend, mutex string) {
			c := raw(t, addr)
			if err := deleteOwner(c, chroots[b]+queues+"/"+mutex); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func deleteOwner(c *zk.Conn, dir string) error {
	names, _, err := c.Children(dir)
	if err != nil {
		return err
	}
	q := newQueue(names)
	if len(q) == 0 {
		return errors.New("nobody is there")
	}
	return c.Delete(dir+"/"+q[0].name, -1)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	z := serve(t, backendtest.ZooKeeperOptions{})
	backendtest.Suite(t, harness(z.Addr, 1500*time.Millisecond))
}

func TestSuiteOnFollower(t *testing.T) {
	t.Parallel()
	e := serveThree(t, backendtest.ZooKeeperOptions{})
	backendtest.Suite(t, harness(e.Members[e.Followers(t)[0]].Addr, 2*time.Second))
}
