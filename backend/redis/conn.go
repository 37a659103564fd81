package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialTimeout is divided among the addresses of a name, so that one that does
// not answer leaves time for the others.
const dialTimeout = 4 * time.Second

// maxIdle connections a server are kept for the next call. A contender makes
// one call at a time.
const maxIdle = 4

// errGone: the library found its connection broken before it sent anything.
var errGone = errors.New("the connection was lost")

// conn is one connection with a client of the library around it. The library
// takes a context's deadline into account, but not its end; so the connection
// is closed when that comes. It never dials by itself: what is sent where, and
// how often, is known here.
type conn struct {
	net  net.Conn
	lib  *goredis.Client
	used atomic.Bool // by the library
	// asking: the slots it is used for are being moved there.
	asking atomic.Bool
	// turnedAway is what the server said instead of serving, if it did.
	turnedAway atomic.Pointer[turnedAwayError]
}

// turnedAwayError is said by a server that has no room, or serves its own host only,
// to whoever connects, before it hangs up. The library takes it for an answer
// to HELLO, which older servers do not know, and fails at what it sends next.
type turnedAwayError string

func (t turnedAwayError) Error() string { return string(t) }
func (turnedAwayError) RedisError()     {}

// plainConn is a connection without TLS as the library sees it.
type plainConn struct {
	net.Conn
	raw  syscall.Conn
	c    *conn
	read bool
}

func (p *plainConn) SyscallConn() (syscall.RawConn, error) { return p.raw.SyscallConn() }

func (p *plainConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 && !p.read {
		p.read = true
		line, _, _ := strings.Cut(string(b[:n]), "\r\n")
		if strings.HasPrefix(line, "-ERR max number of clients") || strings.HasPrefix(line, "-DENIED ") {
			said := turnedAwayError(line[1:])
			p.c.turnedAway.Store(&said)
		}
	}
	return n, err
}

var silence = sync.OnceFunc(func() { goredis.SetLogger(quiet{}) })

// quiet is the library's logger: all that goes wrong is returned.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func dial(ctx context.Context, network, addr string, secure *tls.Config, who login, db int) (*conn, error) {
	silence()
	open := func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: dialTimeout}
		return d.DialContext(ctx, network, addr)
	}
	nc, err := open(ctx)
	if err != nil {
		return nil, err
	}
	if secure != nil {
		if secure.ServerName == "" {
			secure = secure.Clone()
			secure.ServerName, _, _ = net.SplitHostPort(addr)
		}
		if nc, err = secured(ctx, nc, secure, open); err != nil {
			return nil, err
		}
	}
	c := &conn{net: nc}
	c.lib = goredis.NewClient(&goredis.Options{
		Addr: addr,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if c.used.Swap(true) {
				return nil, errGone
			}
			if raw, ok := c.net.(syscall.Conn); ok {
				return &plainConn{Conn: c.net, raw: raw, c: c}, nil
			}
			return c.net, nil
		},
		Username: who.user, Password: who.password, DB: db,
		Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1, DialerRetries: 1,
		ReadTimeout: -1, WriteTimeout: -1, // contexts end calls
		// Two, though one is used: from as many failed dials on as there are
		// places the library dials on in the background.
		PoolSize: 2, PipelinePoolSize: -1, ConnMaxIdleTime: -1,
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
	})
	c.lib.AddHook(asker{&c.asking})
	return c, nil
}

// use makes calls that end with the context. The connection is of no use after
// one that did not end by itself.
func (c *conn) use(ctx context.Context, calls func(*goredis.Client) error) (usable bool, err error) {
	stop := context.AfterFunc(ctx, c.kill)
	err = calls(c.lib)
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	err = outOfTime(ctx, err)
	if said := c.turnedAway.Load(); said != nil && err != nil && ctx.Err() == nil {
		return false, *said // nothing was carried out
	}
	var reply goredis.Error
	answered := err == nil || errors.As(err, &reply) || errors.Is(err, errShort)
	return answered && ctx.Err() == nil && !deposed(err), err
}

// outOfTime is the context's own error if the connection ran into its deadline
// a moment before the context did.
func outOfTime(ctx context.Context, err error) error {
	if _, limited := ctx.Deadline(); limited && errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

func (c *conn) kill() { _ = c.net.Close() }

func (c *conn) close() {
	c.kill()
	_ = c.lib.Close()
}

// alive looks for an end or for something unasked-for without reading it.
func (c *conn) alive() bool {
	raw := c.net
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn()
	}
	s, ok := raw.(syscall.Conn)
	if !ok {
		return true
	}
	rc, err := s.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = rc.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	})
	return err == nil && quiet
}

// shelf keeps idle connections by server.
type shelf struct {
	mu     sync.Mutex
	idle   map[string][]*conn
	closed bool
}

func (s *shelf) take(addr string) *conn {
	for {
		s.mu.Lock()
		list := s.idle[addr]
		if len(list) == 0 {
			s.mu.Unlock()
			return nil
		}
		c := list[len(list)-1]
		s.idle[addr] = list[:len(list)-1]
		s.mu.Unlock()
		if c.alive() {
			return c
		}
		c.close()
	}
}

func (s *shelf) put(addr string, c *conn) {
	s.mu.Lock()
	full := s.closed || len(s.idle[addr]) >= maxIdle
	if !full {
		if s.idle == nil {
			s.idle = make(map[string][]*conn)
		}
		s.idle[addr] = append(s.idle[addr], c)
	}
	s.mu.Unlock()
	if full {
		c.close()
	}
}

// drop closes the idle connections to a server, or all for good.
func (s *shelf) drop(addr string, forGood bool) {
	s.mu.Lock()
	var gone []*conn
	for a, list := range s.idle {
		if forGood || a == addr {
			gone = append(gone, list...)
			delete(s.idle, a)
		}
	}
	s.closed = s.closed || forGood
	s.mu.Unlock()
	for _, c := range gone {
		c.close()
	}
}
