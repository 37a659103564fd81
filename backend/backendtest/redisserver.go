package backendtest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisOptions are how a private Redis differs from a plain one.
type RedisOptions struct {
	ACL     string        // lines of an ACL file
	TLS     *Certificates // it asks clients for certificates, too
	Cluster bool          // one that knows no others yet
	AOF     bool          // it survives a crash; else it comes back empty
	Args    []string      // further ones of the command line
}

// Redis is a private Redis. Its methods ask it as the user "default".
type Redis struct {
	*Server
	Addr   string
	Port   int
	Socket string // a unix socket
	tls    *tls.Config
}

// StartRedis starts a Redis on loopback. It ends with the test.
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	dir := t.TempDir()
	// Socket paths are limited to about a hundred bytes.
	short, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	r := &Redis{Port: FreePort(t), Socket: filepath.Join(short, "s")}
	r.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port))
	port := strconv.Itoa(r.Port)
	argv := []string{"redis-server", "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--unixsocket", r.Socket, "--daemonize", "no"}
	if o.TLS != nil {
		argv = append(argv, "--port", "0", "--tls-port", port, "--tls-cert-file", o.TLS.ServerCert,
			"--tls-key-file", o.TLS.ServerKey, "--tls-ca-cert-file", o.TLS.CA)
		r.tls = o.TLS.client(t)
	} else {
		argv = append(argv, "--port", port)
	}
	if o.ACL != "" {
		file := filepath.Join(dir, "users.acl")
		if err := os.WriteFile(file, []byte(o.ACL), 0o600); err != nil {
			t.Fatal(err)
		}
		argv = append(argv, "--aclfile", file)
	}
	if o.Cluster {
		argv = append(argv, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			"--cluster-port", strconv.Itoa(FreePort(t)), "--cluster-config-file", filepath.Join(dir, "nodes.conf"))
	}
	if o.AOF {
		argv = append(argv, "--appendonly", "yes", "--appendfsync", "always")
	}
	r.Server = StartServer(t, "redis-server", func() error {
		_, err := r.try("PING")
		var refused redisError
		if errors.As(err, &refused) && !strings.HasPrefix(string(refused), "LOADING") {
			return nil // it answers, if only that it wants a password
		}
		return err
	}, append(argv, o.Args...)...)
	return r
}

func (c Certificates) client(t testing.TB) *tls.Config {
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}
}

// Do asks the server one thing, over a connection of its own. The test fails if
// the server answers with an error or not at all.
func (r *Redis) Do(args ...string) any {
	r.t.Helper()
	v, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return v
}

// Text is Do for replies that are text; none is "".
func (r *Redis) Text(args ...string) string {
	r.t.Helper()
	s, _ := r.Do(args...).(string)
	return s
}

// Number is Do for replies that are numbers.
func (r *Redis) Number(args ...string) int64 {
	r.t.Helper()
	n, _ := r.Do(args...).(int64)
	return n
}

func (r *Redis) try(args ...string) (any, error) {
	d := net.Dialer{Timeout: time.Second}
	var c net.Conn
	var err error
	if r.tls != nil {
		c, err = tls.DialWithDialer(&d, "tcp", r.Addr, r.tls)
	} else {
		c, err = d.Dial("tcp", r.Addr)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(c))
}

// redisError is what the server answers.
type redisError string

func (e redisError) Error() string { return string(e) }

// readReply reads one value of the protocol: string, int64, nil or []any.
func readReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, redisError(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || kind == ':' {
		return n, err
	}
	if n < 0 {
		return nil, nil
	}
	if kind == '$' {
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = readReply(in); err != nil {
			return nil, err
		}
	}
	return list, nil
}
