package mysql_test

import (
	"bytes"
	"flag"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/simba-lock/simba/backend/backendtest"
)

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// shared is the plain server of most tests; each has a database of its own.
var shared struct {
	sync.Once
	holder *holder
	server *backendtest.MySQL
}

// holder keeps a server for all tests of the package.
type holder struct {
	testing.TB
	dirs     []string
	cleanups []func()
}

func (h *holder) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }
func (h *holder) Helper()          {}

func (h *holder) TempDir() string {
	dir, err := os.MkdirTemp("", "simba-mysql")
	if err != nil {
		h.TB.Fatal(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func server(t *testing.T) *backendtest.MySQL {
	t.Helper()
	shared.Do(func() {
		shared.holder = &holder{TB: t}
		shared.server = backendtest.StartMySQL(shared.holder, backendtest.MySQLOptions{})
	})
	if shared.server == nil {
		t.Fatal("there is no server")
	}
	return shared.server
}

func TestMain(m *testing.M) {
	if url := os.Getenv(waiterEnv); url != "" {
		os.Exit(asWaiter(url))
	}
	flag.Parse()
	// They wait more than they work.
	_ = flag.Set("test.parallel", "4")
	code := m.Run()
	if shared.holder != nil {
		for _, f := range slices.Backward(shared.holder.cleanups) {
			f()
		}
	}
	os.Exit(code)
}

// withoutLocks relays to a server as one that has no GET_LOCK.
func withoutLocks(t *testing.T, addr string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			go pump(client, server, func(b []byte) []byte {
				return bytes.ReplaceAll(b, []byte("GET_LOCK"), []byte("NO_LOCKS"))
			})
			go pump(server, client, func(b []byte) []byte { return b })
		}
	}()
	return ln.Addr().String()
}

func pump(from io.ReadCloser, to io.WriteCloser, change func([]byte) []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := to.Write(change(buf[:n])); werr != nil {
				err = werr
			}
		}
		if err != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

func zic(t testing.TB, source string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/source", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := osexec.Command("zic", "-d", dir, dir+"/source").CombinedOutput(); err != nil {
		t.Fatalf("zic (package libc-bin or tzdata): %v\n%s", err, out)
	}
	return dir + "/Test"
}
