package redis

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// open is a backend that is closed when the test ends.
func open(t testing.TB, rawURL string) *Backend {
	t.Helper()
	b, err := Open(t.Context(), rawURL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// onEach runs f with a plain client of every server that has keys.
func onEach(t testing.TB, b *Backend, f func(lib *goredis.Client)) {
	t.Helper()
	addrs, err := b.masters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		err := b.once(t.Context(), addr, false, func(lib *goredis.Client) error {
			f(lib)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func fingerprint(t *testing.T, lb lease.Backend) string {
	t.Helper()
	var lines []string
	ctx := t.Context()
	onEach(t, plain(lb), func(lib *goredis.Client) {
		for _, key := range lib.Keys(ctx, "*").Val() {
			content := fmt.Sprint(lib.Get(ctx, key).Val(), lib.HGetAll(ctx, key).Val(), lib.ZRangeWithScores(ctx, key, 0, -1).Val())
			lines = append(lines, fmt.Sprint(key, " ", lib.Do(ctx, "PEXPIRETIME", key).Val(), " ", content))
		}
	})
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func vanish(t *testing.T, lb lease.Backend, mutex string) {
	t.Helper()
	b := plain(lb)
	err := b.on(t.Context(), mutex, func(lib *goredis.Client) error {
		return lib.Del(t.Context(), ownerKey(mutex), queueKey(mutex), leaseKey(mutex)).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// looking is a backend without push whose users look by themselves, as package
// lease does, but more often.
type looking struct{ *Backend }

type lookingSession struct{ lease.Session }

func (b looking) Session(mutex string, c lease.Contender) lease.Session {
	return lookingSession{b.Backend.Session(mutex, c)}
}

func (b looking) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	return look(ctx, b.Backend.Watch(ctx, mutexes, ring), ring)
}

func (s lookingSession) Listen(ctx context.Context, ring func(lease.Ring)) error {
	return look(ctx, s.Session.Listen(ctx, ring), ring)
}

func look(ctx context.Context, err error, ring func(lease.Ring)) error {
	if !errors.Is(err, lease.ErrNoPush) {
		return fmt.Errorf("there is push: %w", err)
	}
	ring(lease.Ready)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			ring(lease.Look)
		}
	}
}

func plain(b lease.Backend) *Backend {
	if l, ok := b.(looking); ok {
		return l.Backend
	}
	return b.(*Backend)
}

// suite runs the conformance suite on one server, or set of servers, which is
// emptied before each test.
func suite(t *testing.T, rawURL string, empty func()) {
	suiteOf(t, rawURL, empty, func(b *Backend) lease.Backend { return b })
}

func suiteOf(t *testing.T, rawURL string, empty func(), as func(*Backend) lease.Backend) {
	backendtest.Suite(t, backendtest.Harness{
		Open: func(t *testing.T) lease.Backend {
			empty()
			b, err := Open(t.Context(), rawURL, Options{})
			if err != nil {
				t.Fatal(err)
			}
			return as(b)
		},
		Fingerprint: fingerprint,
		Vanish:      vanish,
		Terms:       terms(t, 1500*time.Millisecond),
	})
}

func emptying(servers ...*backendtest.Redis) func() {
	return func() {
		for _, r := range servers {
			r.Do("FLUSHALL")
		}
	}
}

func TestSuiteStandalone(t *testing.T) {
	t.Parallel()
	r := backendtest.StartRedis(t, backendtest.RedisOptions{})
	suite(t, "redis://"+r.Addr, emptying(r))
}

func TestSuiteWithoutChannels(t *testing.T) {
	t.Parallel()
	r := backendtest.StartRedis(t, backendtest.RedisOptions{ACL: "user default on nopass ~* &* +@all\n" +
		"user app on >secret ~* resetchannels +@all\n"})
	suiteOf(t, "redis://app:secret@"+r.Addr, emptying(r), func(b *Backend) lease.Backend { return looking{b} })
}

func TestSuiteCluster(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			nodes := backendtest.StartRedisCluster(t, n)
			suite(t, "redis+cluster://"+nodes[0].Addr, emptying(nodes...))
		})
	}
}

func TestSuiteSentinel(t *testing.T) {
	t.Parallel()
	s := backendtest.StartRedisSentinels(t)
	suite(t, "redis+sentinel://"+strings.Join(s.Addrs, ",")+"/main", emptying(s.Master))
}
