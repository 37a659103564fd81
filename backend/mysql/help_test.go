package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// listening waits until so many contenders are where the server wakes them: in
// GET_LOCK, which only waiters with somebody in front are.
func listening(t testing.TB, m *backendtest.MySQL, database string, n int) {
	t.Helper()
	until(t, "waiters in GET_LOCK", func() error { return countBells(m, database, n) })
}

func countBells(m *backendtest.MySQL, database string, want int) error {
	var n int
	err := m.Admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND state = 'User lock'", database).Scan(&n)
	if err == nil && n != want {
		err = fmt.Errorf("%d of %d", n, want)
	}
	return err
}

// asked is a pool or one connection.
type asked interface {
	QueryRowContext(ctx context.Context, text string, values ...any) *sql.Row
}

// status is a number that the server counts.
func status(t testing.TB, db asked, what string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE '"+what+"'").Scan(new(string), &n); err != nil {
		t.Error(err)
	}
	return n
}

// settled waits until those who have just come have looked, each in its turn.
func settled(t testing.TB, m *backendtest.MySQL) {
	t.Helper()
	until(t, "the first looks are over", func() error {
		const moment = 500 * time.Millisecond
		before := status(t, m.Admin, "Questions")
		time.Sleep(moment)
		if n := status(t, m.Admin, "Questions") - before - 2; n > 5 {
			return fmt.Errorf("%d statements in %v", n, moment)
		}
		return nil
	})
}

func TestMain(m *testing.M) {
	if url := os.Getenv(waiterEnv); url != "" {
		os.Exit(asWaiter(url))
	}
	flag.Parse()
	// They wait more than they work.
	_ = flag.Set("test.parallel", "6")
	code := m.Run()
	if shared.holder != nil {
		for _, f := range slices.Backward(shared.holder.cleanups) {
			f()
		}
	}
	os.Exit(code)
}

// between relays to a server. What clients send on the n-th connection passes
// through change.
func between(t *testing.T, addr string, change func(n int64, sent []byte) []byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for n := int64(1); ; n++ {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			go pump(client, server, func(sent []byte) []byte { return change(n, sent) })
			go pump(server, client, func(b []byte) []byte { return b })
		}
	}()
	return ln.Addr().String()
}

// withoutLocks relays to a server as one that has no GET_LOCK.
func withoutLocks(t *testing.T, addr string) string {
	return between(t, addr, func(_ int64, sent []byte) []byte {
		return bytes.ReplaceAll(sent, []byte("GET_LOCK"), []byte("NO_LOCKS"))
	})
}

// freezer relays to a server; freeze makes the connections there are swallow
// all that is sent from now on.
func freezer(t *testing.T, addr string) (freeze func(), relay string) {
	var last, frozen atomic.Int64
	relay = between(t, addr, func(n int64, sent []byte) []byte {
		last.Store(max(last.Load(), n))
		if n <= frozen.Load() {
			return nil
		}
		return sent
	})
	return func() { frozen.Store(last.Load()) }, relay
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
