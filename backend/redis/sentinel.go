package redis

import (
	"context"
	"errors"
	"fmt"
	"net"

	goredis "github.com/redis/go-redis/v9"
)

// errNotMaster: the sentinels named a server that is none, or not yet.
var errNotMaster = errors.New("the server that the sentinels name is not a master (failing over?)")

// dialMaster dials whom the sentinels name. They are asked again when something
// went wrong with that one.
func (b *Backend) dialMaster(ctx context.Context) (*conn, string, error) {
	known := b.known.Load()
	if known == nil {
		addr, err := b.master(ctx)
		if err != nil {
			return nil, "", err
		}
		known = &addr
	}
	c, err := dial(ctx, "tcp", *known, b.set.tls, b.set.login, b.set.db)
	if err != nil {
		b.known.Store(nil)
		b.avoid.Store(known)
		return nil, "", err
	}
	b.known.Store(known)
	return c, *known, nil
}

// proveMaster asks the server itself: right after a failover some sentinels
// still name the old one.
func (b *Backend) proveMaster(ctx context.Context, c *conn, addr string) error {
	usable, err := c.use(ctx, func(lib *goredis.Client) error {
		role, err := lib.Do(ctx, "ROLE").Slice()
		if refused(err) {
			return nil // a server that is no master refuses what matters
		}
		if err == nil && len(role) > 0 && role[0] != "master" {
			err = errNotMaster
		}
		return err
	})
	switch {
	case usable:
		b.avoid.Store(nil)
		return nil
	case err == nil:
		err = context.Cause(ctx)
	default:
		b.avoid.Store(&addr)
	}
	b.known.Store(nil)
	c.close()
	return err
}

// master asks all sentinels at once and takes the first answer, other than one
// that has just proved wrong, unless there is no other.
func (b *Backend) master(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(b.set.hosts))
	for _, host := range b.set.hosts {
		go func() {
			addr, err := b.askSentinel(ctx, host)
			answers <- answer{addr, err}
		}()
	}
	var wrong string
	if a := b.avoid.Load(); a != nil {
		wrong = *a
	}
	var last string
	var lastErr error
	for range b.set.hosts {
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
				lastErr = a.err
			case a.addr != wrong:
				return a.addr, nil
			default:
				last = a.addr
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	if last != "" {
		return last, nil
	}
	return "", lastErr
}

func (b *Backend) askSentinel(ctx context.Context, host string) (string, error) {
	c, err := dial(ctx, "tcp", host, b.set.tls, b.set.sentinel, 0)
	if err != nil {
		return "", err
	}
	defer c.close()
	var addr []string
	_, err = c.use(ctx, func(lib *goredis.Client) (err error) {
		addr, err = lib.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", b.set.master).StringSlice()
		return err
	})
	switch {
	case errors.Is(err, goredis.Nil):
		return "", fmt.Errorf("the sentinel at %s knows no master %q", host, b.set.master)
	case err != nil:
		return "", err
	case len(addr) != 2:
		return "", fmt.Errorf("the sentinel at %s answers nonsense", host)
	}
	return net.JoinHostPort(addr[0], addr[1]), nil
}
