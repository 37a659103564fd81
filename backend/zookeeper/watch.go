package zookeeper

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/lease"
)

// Watch rings when a queue has changed, or the claim of the first in it. Its
// connection is its own, so that no watch is left behind when it ends.
func (b *Backend) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return errClosed
	}
	what := lease.Ready
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := b.watch(ctx, mutexes, func() { ring(what); what = lease.Look })
		if !errors.Is(err, errCluttered) {
			return err
		}
	}
}

// errCluttered: so many watches are left behind that a new connection is due.
var errCluttered = errors.New("too many watches are left behind")

// maxLeft is how many watches may be left behind. A claim is watched for before it is
// there, and if its contender never claims the mutex, or did so and left before we
// asked, that watch stays: the library cannot take one back. So another connection is
// made now and then; what changes meanwhile is seen by who looks at the ring after it.
const maxLeft = 100

// watch does so with one connection.
func (b *Backend) watch(ctx context.Context, mutexes []string, ring func()) error {
	w := &watcher{
		b: b, all: len(mutexes) == 0, more: make(chan struct{}, 1),
		fired: map[string]bool{}, dirs: map[string]bool{}, claims: map[string]string{}, first: map[string]string{},
	}
	w.cl = newClient(b.set, b.dialer, readerTimeout, w.event)
	if err := w.cl.start(); err != nil {
		return err
	}
	defer b.retire(w.cl)
	gen, err := w.cl.ready(ctx)
	if err != nil {
		return err
	}
	dirs := []string{b.set.chroot + queues}
	if !w.all {
		dirs = dirs[:0]
		for _, m := range mutexes {
			dirs = append(dirs, b.queueDir(m))
		}
	}
	for _, dir := range dirs {
		if err := w.arm(ctx, dir); err != nil {
			return err
		}
	}
	ring()
	return w.run(ctx, gen, ring)
}

// watcher has each watch armed again after it fired, before it rings: what
// happens then is not missed by who looks at the ring.
type watcher struct {
	b    *Backend
	cl   *client
	all  bool
	more chan struct{}

	mu    sync.Mutex
	fired map[string]bool

	dirs   map[string]bool   // watched
	claims map[string]string // watched, with the directory of the queue
	first  map[string]string // the claim of the first in each queue
}

// event is called by the library and must not block.
func (w *watcher) event(path string) {
	w.mu.Lock()
	w.fired[path] = true
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watcher) run(ctx context.Context, gen int, ring func()) error {
	for {
		if len(w.claims)-len(w.first) > maxLeft {
			return errCluttered
		}
		now, up, changed := w.cl.state()
		if now != gen || !up {
			return errLost
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			continue
		case <-w.more:
		}
		w.mu.Lock()
		fired := w.fired
		w.fired = map[string]bool{}
		w.mu.Unlock()
		dirs := map[string]bool{}
		for path := range fired {
			if dir, ok := w.claims[path]; ok {
				delete(w.claims, path)
				path = dir
			} else {
				delete(w.dirs, path)
			}
			dirs[path] = true
		}
		for dir := range dirs {
			if err := w.arm(ctx, dir); err != nil {
				return err
			}
		}
		ring()
	}
}

// arm watches a queue and the claim of its first, and what is nested in it if
// all are watched.
func (w *watcher) arm(ctx context.Context, dir string) error {
	names, err := w.children(ctx, dir)
	if err != nil {
		return err
	}
	delete(w.first, dir)
	if q := newQueue(names); len(q) > 0 && q[0].guid != "" {
		claim := w.b.claimPath(q[0].guid)
		w.first[dir] = claim
		if _, armed := w.claims[claim]; !armed {
			w.claims[claim] = dir
			_, err := call(ctx, w.cl, reads, "watch "+claim, existsW(claim))
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	}
	if !w.all {
		return nil
	}
	for _, n := range names {
		if _, latch := parseLatch(n); latch || w.dirs[dir+"/"+n] {
			continue
		}
		if err := w.arm(ctx, dir+"/"+n); err != nil {
			return err
		}
	}
	return nil
}

// children lists a directory and watches it, or for it to come. One that is found in
// another need not be watched for: that other one is.
func (w *watcher) children(ctx context.Context, dir string) ([]string, error) {
	watched := w.dirs[dir]
	w.dirs[dir] = true
	for range 10 {
		list := childrenW
		if watched {
			list = children
		}
		names, err := call(ctx, w.cl, reads, "watch "+dir, list(dir))
		if !errors.Is(err, zk.ErrNoNode) {
			return names, err
		}
		if w.all && dir != w.b.set.chroot+queues {
			delete(w.dirs, dir)
			return nil, nil
		}
		_, err = call(ctx, w.cl, reads, "watch "+dir, existsW(dir))
		if err != nil {
			return nil, ignore(err, zk.ErrNoNode)
		}
		watched = false // it came in between
	}
	return nil, errRestless
}
