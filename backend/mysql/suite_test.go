package mysql_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/backend/mysql"
	"github.com/simba-lock/simba/lease"
)

// jvmTable is the table as the JVM library's scripts make it.
const jvmTable = `CREATE TABLE simba_mutex (
	mutex varchar(66) NOT NULL PRIMARY KEY,
	acquired_at bigint unsigned NOT NULL,
	ttl_at bigint unsigned NOT NULL,
	transition_at bigint unsigned NOT NULL,
	owner_id varchar(128) NOT NULL,
	version int unsigned NOT NULL
)`

// stores keeps root's way into the database of each backend of a suite.
type stores struct {
	sync.Mutex
	of map[lease.Backend]*sql.DB
}

func (s *stores) put(b lease.Backend, db *sql.DB) {
	s.Lock()
	defer s.Unlock()
	if s.of == nil {
		s.of = make(map[lease.Backend]*sql.DB)
	}
	s.of[b] = db
}

func (s *stores) get(b lease.Backend) *sql.DB {
	s.Lock()
	defer s.Unlock()
	return s.of[b]
}

type variant struct {
	setup  string                                 // before the first contender
	option string                                 // of the URL
	relay  func(t *testing.T, addr string) string // in between
	wrap   func(lease.Backend) lease.Backend
}

func harness(m *backendtest.MySQL, v variant) backendtest.Harness {
	var s stores
	terms, err := lease.NewTerms(1200*time.Millisecond, 1200*time.Millisecond, 100*time.Millisecond)
	if err != nil {
		panic(err)
	}
	return backendtest.Harness{
		Terms: terms,
		Open: func(t *testing.T) lease.Backend {
			name, root := m.Database(t)
			if v.setup != "" {
				exec(t, root, v.setup)
			}
			raw := m.URL(name) + v.option
			if v.relay != nil {
				raw = strings.Replace(raw, m.Addr, v.relay(t, m.Addr), 1)
			}
			b := open(t, raw)
			if v.wrap != nil {
				b = v.wrap(b)
			}
			s.put(b, root)
			return b
		},
		Fingerprint: func(t *testing.T, b lease.Backend) string { return dump(t, s.get(b)) },
		Vanish: func(t *testing.T, b lease.Backend, mutex string) {
			exec(t, s.get(b), "DELETE FROM simba_mutex; DELETE FROM simba_lease")
		},
	}
}

func open(t testing.TB, raw string) lease.Backend {
	t.Helper()
	b, err := mysql.Open(raw, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func exec(t testing.TB, db *sql.DB, text string, values ...any) {
	t.Helper()
	if _, err := db.Exec(text, values...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// dump is all that is stored.
func dump(t testing.TB, db *sql.DB) string {
	t.Helper()
	var b strings.Builder
	for _, table := range []string{"simba_mutex", "simba_lease"} {
		rows, err := db.Query("SELECT * FROM " + table + " ORDER BY mutex")
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.RawBytes)
		}
		for rows.Next() {
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			for i, v := range values {
				fmt.Fprintf(&b, "%s=%s ", columns[i], *v.(*sql.RawBytes))
			}
			fmt.Fprintln(&b)
		}
		_ = rows.Close()
	}
	return b.String()
}

func TestSuite(t *testing.T) {
	t.Parallel()
	backendtest.Suite(t, harness(server(t), variant{}))
}

// The defaults of a server and what it does at each connection change nothing.
func TestSuiteOddServer(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{
		"--init-connect=SET autocommit=0, sql_mode='NO_BACKSLASH_ESCAPES,ANSI_QUOTES', time_zone='+05:30', NAMES latin1",
		"--collation-server=utf8mb4_general_ci", "--character-set-server=utf8mb4", "--transaction-isolation=SERIALIZABLE",
	}})
	backendtest.Suite(t, harness(m, variant{}))
}

// Without GET_LOCK waiters look by themselves.
func TestSuiteNoDoorbell(t *testing.T) {
	t.Parallel()
	backendtest.Suite(t, harness(server(t), variant{relay: withoutLocks}))
}

// The JVM's own table has short names and folds case; the names here suit it.
func TestSuiteJVMTable(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{
		"--transaction-isolation=REPEATABLE-READ", "--init-connect=SET autocommit=0", "--wait-timeout=2",
		"--collation-server=utf8mb3_general_ci", "--character-set-server=utf8mb3",
	}})
	backendtest.Suite(t, harness(m, variant{
		setup: jvmTable,
		wrap:  func(b lease.Backend) lease.Backend { return &renamed{Backend: b, names: make(map[string]string)} },
	}))
}

// renamed gives mutexes other names in the store.
type renamed struct {
	lease.Backend
	mu    sync.Mutex
	names map[string]string
}

func (r *renamed) name(mutex string) string {
	sum := sha256.Sum256([]byte(mutex))
	short := hex.EncodeToString(sum[:16])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[short] = mutex
	return short
}

func (r *renamed) Session(mutex string, c lease.Contender) lease.Session {
	return r.Backend.Session(r.name(mutex), c)
}

func (r *renamed) Inspect(ctx context.Context, mutex string) (lease.Snapshot, error) {
	s, err := r.Backend.Inspect(ctx, r.name(mutex))
	s.Mutex = mutex
	return s, err
}

func (r *renamed) List(ctx context.Context) ([]string, error) {
	short, err := r.Backend.List(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, s := range short {
		names = append(names, r.names[s])
	}
	return sorted(names), err
}

func (r *renamed) Revoke(ctx context.Context, mutex, owner string) error {
	return r.Backend.Revoke(ctx, r.name(mutex), owner)
}

func (r *renamed) Watch(ctx context.Context, mutexes []string, ring func(lease.Ring)) error {
	var names []string
	for _, m := range mutexes {
		names = append(names, r.name(m))
	}
	return r.Backend.Watch(ctx, names, ring)
}
