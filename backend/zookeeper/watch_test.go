package zookeeper

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// outspoken is a server that answers all four-letter words.
var outspoken = []string{"4lw.commands.whitelist=*"}

// word asks a server.
func word(t *testing.T, addr, word string) says {
	t.Helper()
	d := newDialer(tlsFiles{})
	s := d.ask(t.Context(), addr, word)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s
}

// Who watches for long, while contenders come and go, leaves no more and more watches
// behind in the server, and misses nothing.
func TestWatchesDoNotPileUp(t *testing.T) {
	t.Parallel()
	const runs = 600
	z := serve(t, backendtest.ZooKeeperOptions{Config: outspoken})
	b := open(t, "zk://"+z.Addr)
	watch := watchFor(t, open(t, "zk://"+z.Addr), "m")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	everything := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		everything <- open(t, "zk://"+z.Addr).Watch(ctx, nil, func(r lease.Ring) {
			if r == lease.Ready {
				close(ready)
			}
		})
	}()
	await(t, "all are watched", ready)
	most := 0
	for i := range runs {
		mutex := "m"
		if i%2 == 1 {
			mutex = fmt.Sprintf("other/%d", i%20)
		}
		s := b.Session(mutex, lease.Contender{ID: fmt.Sprint(i)})
		if a, err := s.Try(t.Context(), asking(0)); err != nil || a.State != lease.Mine {
			t.Fatal(a, err)
		}
		if err := s.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if i%50 == 49 {
			text := word(t, z.Addr, "wchs").text
			_, total, _ := strings.Cut(text, "Total watches:")
			n, err := strconv.Atoi(strings.TrimSpace(total))
			if err != nil {
				t.Fatal(text)
			}
			t.Logf("after %d runs: %d watches", i+1, n)
			most = max(most, n)
		}
	}
	// Two that watch, each with what it may leave behind and what it watches rightly.
	if limit := 2 * (maxLeft + 30); most > limit {
		t.Errorf("%d watches, more than %d", most, limit)
	}
	owner := b.Session("m", lease.Contender{ID: "the last one"})
	defer func() { _ = owner.Close() }()
	if a, err := owner.Try(t.Context(), asking(0)); err != nil || a.State != lease.Mine {
		t.Fatal(a, err)
	}
	eventually(t, "it is seen", func() bool { return watch.Load().(string) == "the last one" })
}
