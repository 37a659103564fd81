package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// maxHops bounds how often a cluster may send a call on: while slots move it is
// twice, and a loop would be a fault of the cluster's.
const maxHops = 5

// routes is what is known of the way to the server that has a mutex. A cluster
// is not asked for its map: any node says who has a key when it is asked for
// that key, and refuses the command, so it is sent on without being sent twice.
type routes struct {
	mu     sync.Mutex
	nodes  []string          // known, the best first
	owners map[string]string // of a mutex
}

func (r *routes) find(mutex string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if addr := r.owners[mutex]; addr != "" {
		return addr
	}
	return r.nodes[0]
}

func (r *routes) learn(mutex, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mutex != "" {
		r.owners[mutex] = addr
	}
	if !slices.Contains(r.nodes, addr) {
		r.nodes = append(r.nodes, addr)
	}
}

// others is how many nodes there are beside one that cannot be reached.
func (r *routes) others(k kind) int {
	if k != cluster {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.nodes) - 1
}

// unreached: there was no connection, so nothing was sent.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// failed puts a node last, so that the next attempt goes to another one.
func (r *routes) failed(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for mutex, owner := range r.owners {
		if owner == addr {
			delete(r.owners, mutex)
		}
	}
	if i := slices.Index(r.nodes, addr); i >= 0 {
		r.nodes = append(slices.Delete(r.nodes, i, i+1), addr)
	}
}

// failed notes that something went wrong with a server, or that it was given up
// waiting for it: the next attempt looks for the right one anew.
func (b *Backend) failed(addr string) {
	b.known.Store(nil)
	b.routes.failed(addr)
}

// connect dials the server at addr. For sentinels that is whoever they say is
// the master, and proves to be it.
func (b *Backend) connect(ctx context.Context, addr string) (*conn, error) {
	if b.set.kind != sentinel {
		return dial(ctx, b.set.network, addr, b.set.tls, b.set.login, b.set.db)
	}
	c, addr, err := b.dialMaster(ctx)
	if err == nil {
		err = b.proveMaster(ctx, c, addr)
	}
	return c, err
}

// connectToHear is connect for a subscription. A server that is only a replica
// passes on what its master is told, and a waiter finds out by its next look.
func (b *Backend) connectToHear(ctx context.Context, addr string) (*conn, error) {
	if b.set.kind == sentinel {
		c, _, err := b.dialMaster(ctx)
		return c, err
	}
	return dial(ctx, b.set.network, addr, b.set.tls, b.set.login, b.set.db)
}

// on makes calls at the server that has the mutex: one attempt. What was sent
// and not refused is never sent again.
func (b *Backend) on(ctx context.Context, mutex string, calls func(*goredis.Client) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return sorted(b.at(ctx, mutex, b.routes.find(mutex), calls))
}

// at goes on to the next node of a cluster if one cannot be reached, and where
// a node sends it.
func (b *Backend) at(ctx context.Context, mutex, addr string, calls func(*goredis.Client) error) error {
	asking := false
	others := b.routes.others(b.set.kind)
	for hop := 0; ; {
		err := b.once(ctx, addr, asking, calls)
		if errors.As(err, new(unreached)) && others > 0 && ctx.Err() == nil {
			others--
			addr, asking = b.routes.find(mutex), false // it was put last
			continue
		}
		to, ask := sentOn(err, addr)
		if to == "" || hop == maxHops {
			return err
		}
		if addr, asking = to, ask; !ask {
			b.routes.learn(mutex, to)
		}
		hop++
	}
}

// once uses an idle connection or a new one.
func (b *Backend) once(ctx context.Context, addr string, asking bool, calls func(*goredis.Client) error) error {
	for {
		c := b.shelf.take(addr)
		kept := c != nil
		if !kept {
			var err error
			if c, err = b.connect(ctx, addr); err != nil {
				b.failed(addr)
				return unreached{err}
			}
		}
		c.asking.Store(asking)
		usable, err := c.use(ctx, calls)
		if usable {
			b.shelf.put(addr, c)
			return err
		}
		c.close()
		if kept && errors.Is(err, errGone) && ctx.Err() == nil {
			continue // nothing was sent
		}
		if deposed(err) {
			b.shelf.drop(addr, false)
		}
		b.failed(addr)
		return err
	}
}

// asker says ASKING before every command of a connection that was named by ASK:
// it is good for one.
type asker struct{ on *atomic.Bool }

func (asker) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (a asker) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if a.on.Load() {
			if err := next(ctx, goredis.NewStatusCmd(ctx, "ASKING")); err != nil {
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (a asker) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if !a.on.Load() {
			return next(ctx, cmds)
		}
		var both []goredis.Cmder
		for _, cmd := range cmds {
			both = append(both, goredis.NewStatusCmd(ctx, "ASKING"), cmd)
		}
		return next(ctx, both)
	}
}

// sentOn reads MOVED and ASK.
func sentOn(err error, from string) (addr string, ask bool) {
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	word := strings.Fields(reply.Error())
	if len(word) != 3 || word[0] != "MOVED" && word[0] != "ASK" {
		return "", false
	}
	host, port, splitErr := net.SplitHostPort(word[2])
	if splitErr != nil {
		return "", false
	}
	if host == "" || host == "?" { // the node does not know its own name
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, port), word[0] == "ASK"
}

// masters lists the servers that have a part of the keys.
func (b *Backend) masters(ctx context.Context) ([]string, error) {
	if b.set.kind != cluster {
		return []string{b.routes.find("")}, nil
	}
	var slots []any
	err := b.on(ctx, "", func(lib *goredis.Client) (err error) {
		slots, err = lib.Do(ctx, "CLUSTER", "SLOTS").Slice()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the nodes of the cluster: %w", err)
	}
	first := b.routes.find("") // the one that answered
	var addrs []string
	for _, s := range slots {
		addr := masterOf(s, first)
		if addr == "" {
			return nil, errNonsense
		}
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
			b.routes.learn("", addr)
		}
	}
	return addrs, nil
}

// masterOf reads one part of CLUSTER SLOTS: begin, end, and the nodes, of which
// the first is the master, as host, port and more.
func masterOf(part any, asked string) string {
	p, _ := part.([]any)
	if len(p) < 3 {
		return ""
	}
	node, _ := p[2].([]any)
	if len(node) < 2 {
		return ""
	}
	host, _ := node[0].(string)
	port, _ := node[1].(int64)
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10))
}
