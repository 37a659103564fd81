package mysql_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/backend/mysql"
	"github.com/simba-lock/simba/lease"
)

func tryOnce(t testing.TB, b lease.Backend, name string) (lease.Answer, error) {
	t.Helper()
	s := b.Session(name, lease.Contender{ID: lease.NewID(lease.IDHost)})
	defer func() { _ = s.Close() }()
	return s.Try(t.Context(), lease.TryRequest{Lease: 10 * time.Second, TTL: 5 * time.Second})
}

// What trying again cannot mend is said at once, in the server's own words, and
// never with a password.
func TestRefusals(t *testing.T) {
	t.Parallel()
	m, made, empty, url := accounts(t)
	foreign, root := m.Database(t)
	exec(t, root, "CREATE TABLE simba_mutex (id int, mutex varchar(20)); CREATE TABLE simba_lease (mutex varchar(20))")
	for _, c := range []struct {
		what, url, want string
	}{
		{"wrong password", strings.Replace(url("reader", made), "pass-reader", "pass-wrong", 1), "1045"},
		{"no such user", url("ghost", made), "1045"},
		{"no such database", m.URL("nowhere"), "1049"},
		{"no right to the database", url("nobody", made), "1044"},
		{"only SELECT", url("reader", made), "UPDATE command denied"},
		{"no table and no CREATE", url("writer", empty), "CREATE TABLE IF NOT EXISTS simba_mutex"},
		{"no table and no CREATE, both", url("writer", empty), "COLLATE=utf8mb4_bin;\nCREATE TABLE IF NOT EXISTS simba_lease"},
		{"no table and no CREATE, the reason", url("writer", empty), "CREATE command denied"},
		{"another's table", m.URL(foreign), "has no column"},
	} {
		_, err := tryOnce(t, open(t, c.url), mutex)
		if !lease.IsPermanent(err) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "pass-") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// accounts makes a database with a mutex that is held, an empty one, and three
// users: one may read, one write, one nothing.
func accounts(t *testing.T) (m *backendtest.MySQL, made, empty string, url func(user, database string) string) {
	t.Helper()
	m = server(t)
	made, root := m.Database(t)
	if _, err := tryOnce(t, open(t, m.URL(made)), mutex); err != nil {
		t.Fatal(err)
	}
	empty, _ = m.Database(t)
	exec(t, root, fmt.Sprintf(`CREATE USER reader%[1]s IDENTIFIED BY 'pass-reader', writer%[1]s IDENTIFIED BY 'pass-writer',
		nobody%[1]s IDENTIFIED BY 'pass-nobody';
		GRANT SELECT ON *.* TO reader%[1]s; GRANT SELECT, INSERT, UPDATE ON *.* TO writer%[1]s`, made))
	t.Cleanup(func() { m.Exec(t, fmt.Sprintf("DROP USER reader%[1]s, writer%[1]s, nobody%[1]s", made)) })
	return m, made, empty, func(user, database string) string {
		return "mysql://" + user + made + ":pass-" + user + "@" + m.Addr + "/" + database
	}
}

func TestRightsThatSuffice(t *testing.T) {
	t.Parallel()
	_, made, empty, url := accounts(t)
	reader := open(t, url("reader", made))
	if s, err := reader.Inspect(t.Context(), mutex); err != nil || s.State != lease.Held {
		t.Errorf("%+v, %v", s, err)
	}
	if names, err := reader.List(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	if s, err := open(t, url("reader", empty)).Inspect(t.Context(), mutex); err != nil || s.State != lease.Free {
		t.Errorf("no table: %+v, %v", s, err)
	}
	// No rights to create are needed where the tables are there.
	if a, err := tryOnce(t, open(t, url("writer", made)), "another"); err != nil || a.State != lease.Mine {
		t.Errorf("%+v, %v", a, err)
	}
	// A server that is not there may come.
	gone := open(t, fmt.Sprintf("mysql://app:pass-app@127.0.0.1:%d/x", backendtest.FreePort(t)))
	if _, err := tryOnce(t, gone, mutex); err == nil || lease.IsPermanent(err) || strings.Contains(err.Error(), "pass-") {
		t.Errorf("no server: %v", err)
	}
	if _, err := gone.Inspect(t.Context(), mutex); err == nil {
		t.Error("status of no server")
	}
}

func TestSchemaIsWhatIsMade(t *testing.T) {
	t.Parallel()
	m := server(t)
	made, _ := m.Database(t)
	printed, root := m.Database(t)
	exec(t, root, mysql.Schema())
	b := open(t, m.URL(printed))
	if _, err := tryOnce(t, b, mutex); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOnce(t, open(t, m.URL(made)), mutex); err != nil {
		t.Fatal(err)
	}
	var differ int
	if err := root.QueryRow(`SELECT COUNT(*) FROM (
		SELECT table_name, column_name, column_type, collation_name, column_default, is_nullable, COUNT(*) AS n
		FROM information_schema.columns WHERE table_schema IN (?, ?) GROUP BY 1, 2, 3, 4, 5, 6) AS c WHERE n <> 2`,
		made, printed).Scan(&differ); err != nil || differ != 0 {
		t.Errorf("%d columns differ: %v", differ, err)
	}
}

// A name or an id that the JVM's table would cut or fold.
func TestNamesThatDoNotFit(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	exec(t, root, "ALTER DATABASE COLLATE utf8mb4_general_ci; "+jvmTable)
	b := open(t, m.URL(name))
	if a, err := tryOnce(t, b, strings.Repeat("a", 66)); err != nil || a.State != lease.Mine {
		t.Errorf("66: %+v, %v", a, err)
	}
	if _, err := tryOnce(t, b, strings.Repeat("a", 67)); !lease.IsPermanent(err) || !strings.Contains(err.Error(), "66") {
		t.Errorf("67: %v", err)
	}
	if a, err := tryOnce(t, b, "job"); err != nil || a.State != lease.Mine {
		t.Errorf("job: %+v, %v", a, err)
	}
	for range 2 {
		if _, err := tryOnce(t, b, "Job"); !lease.IsPermanent(err) || !strings.Contains(err.Error(), `"Job" and "job"`) {
			t.Errorf("Job: %v", err)
		}
	}
	if _, err := b.Inspect(t.Context(), "JOB"); !lease.IsPermanent(err) {
		t.Errorf("JOB: %v", err)
	}
	if names, err := b.List(t.Context()); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
	exec(t, root, "DELETE FROM simba_mutex; ALTER TABLE simba_mutex MODIFY owner_id varchar(20)")
	if _, err := tryOnce(t, open(t, m.URL(name)), "other"); !lease.IsPermanent(err) || !strings.Contains(err.Error(), "20") {
		t.Errorf("a short owner_id: %v", err)
	}
}

// What others wrote is reported and left as it is.
func TestForeignRows(t *testing.T) {
	t.Parallel()
	m := server(t)
	for _, c := range []struct {
		what, write string
		permanent   bool
	}{
		{"no end", "UPDATE simba_mutex SET owner_id = 'x\x1b[2J', acquired_at = 1, ttl_at = ~0, transition_at = ~0", false},
		{"far away", "UPDATE simba_mutex SET owner_id = 'x', transition_at = 99999999999999999", false},
		{"NULL", "ALTER TABLE simba_mutex MODIFY owner_id varchar(128) NULL; UPDATE simba_mutex SET owner_id = NULL", true},
		{"text for a time", "ALTER TABLE simba_mutex MODIFY transition_at varchar(20); UPDATE simba_mutex SET transition_at = 'soon'", true},
		{"a negative time", "ALTER TABLE simba_mutex MODIFY transition_at bigint; UPDATE simba_mutex SET transition_at = -5", true},
		{"a high fence", "UPDATE simba_lease SET fence = ~0", true},
		{"a cut queue", "UPDATE simba_lease SET waiters = 'abc'", true},
		{"a queue of nonsense", "UPDATE simba_lease SET waiters = 'abc\n\n\t\t\n', info = 'no JSON'", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			name, root := m.Database(t)
			b := open(t, m.URL(name))
			s := b.Session(mutex, lease.Contender{ID: lease.NewID(lease.IDUUID)})
			if _, err := s.Try(t.Context(), lease.TryRequest{Lease: time.Minute, TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if err := s.Release(t.Context(), lease.ReleaseRequest{}); err != nil {
				t.Fatal(err)
			}
			exec(t, root, c.write)
			before := dump(t, root)
			a, err := tryOnce(t, b, mutex)
			snap, ierr := b.Inspect(t.Context(), mutex)
			switch {
			case c.permanent:
				if !lease.IsPermanent(err) || !lease.IsPermanent(ierr) {
					t.Errorf("%+v, %v\n%+v, %v", a, err, snap, ierr)
				} else if strings.Contains(ierr.Error(), "driver") {
					t.Errorf("it speaks of the driver: %v", ierr)
				}
			case err != nil || ierr != nil:
				t.Errorf("%v, %v", err, ierr)
			case strings.Contains(c.write, "owner_id = 'x"):
				if a.State != lease.Held || a.Remaining != lease.Forever || snap.Detail != "no expiry" || snap.Lease != lease.Forever {
					t.Errorf("%+v\n%+v", a, snap)
				}
			case a.State == lease.Mine:
				t.Errorf("it overtook what may be a waiter: %+v", a)
			}
			if after := dump(t, root); after != before && !strings.Contains(c.write, "nonsense") {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

// The socket of a local server, and connections that are encrypted and checked.
func TestSocketAndTLS(t *testing.T) {
	t.Parallel()
	certs := backendtest.MakeCertificates(t)
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{
		"--ssl-ca=" + certs.CA, "--ssl-cert=" + certs.ServerCert, "--ssl-key=" + certs.ServerKey,
	}})
	name, root := m.Database(t)
	exec(t, root, "CREATE USER strict IDENTIFIED BY 'pw' REQUIRE X509; GRANT SELECT, INSERT, UPDATE, CREATE ON *.* TO strict")
	socket := "mysql://app:s3cr%25t@/" + name + "?socket=" + m.Socket
	if a, err := tryOnce(t, open(t, socket), "by/socket"); err != nil || a.State != lease.Mine {
		t.Errorf("socket: %+v, %v", a, err)
	}
	plain := m.URL(name)
	strict := strings.Replace(plain, "app:s3cr%25t", "strict:pw", 1)
	client := "&cert=" + certs.ClientCert + "&key=" + certs.ClientKey
	for _, c := range []struct {
		what, url string
		ok        bool
	}{
		{"ca", plain + "?tls=true&ca=" + certs.CA, true},
		{"client", strict + "?tls=true&ca=" + certs.CA + client, true},
		{"skip-verify", plain + "?tls=skip-verify", true},
		{"preferred", plain + "?tls=preferred", true},
		{"unknown ca", plain + "?tls=true", false},
		{"other name", plain + "?tls=true&server_name=elsewhere.test&ca=" + certs.CA, false},
		{"no client certificate", strict + "?tls=true&ca=" + certs.CA, false},
		{"no such file", plain + "?tls=true&ca=" + filepath.Join(t.TempDir(), "x"), false},
	} {
		_, err := tryOnce(t, open(t, c.url), "by/"+strings.ReplaceAll(c.what, " ", "-"))
		if (err == nil) != c.ok || err != nil && !lease.IsPermanent(err) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	m.Exec(t, "SET GLOBAL require_secure_transport = 1")
	if _, err := tryOnce(t, open(t, plain), mutex); !lease.IsPermanent(err) {
		t.Errorf("a server that insists on TLS: %v", err)
	}
	none := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{
		"--skip-ssl", "--log-bin", "--binlog-format=STATEMENT",
	}})
	other, _ := none.Database(t)
	if _, err := tryOnce(t, open(t, none.URL(other)+"?tls=true"), mutex); !lease.IsPermanent(err) {
		t.Errorf("a server without TLS: %v", err)
	}
	// It got through, to be told what this server cannot do.
	_, err := tryOnce(t, open(t, none.URL(other)+"?tls=preferred"), mutex)
	if !lease.IsPermanent(err) || !strings.Contains(err.Error(), "1665") {
		t.Errorf("a log of statements: %v", err)
	}
	none.Exec(t, "SET GLOBAL binlog_format = ROW")
	if _, err := tryOnce(t, open(t, none.URL(other)+"?tls=preferred"), mutex); err != nil {
		t.Errorf("a server without TLS, preferred: %v", err)
	}
}

// A status that hangs ends with its context, and says nothing.
func TestStatusOfAHangingServer(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, _ := m.Database(t)
	relay := backendtest.StartRelay(t, m.Addr)
	b := open(t, strings.Replace(m.URL(name), m.Addr, relay.Addr, 1))
	if _, err := b.Inspect(t.Context(), mutex); err != nil {
		t.Fatal(err)
	}
	relay.Set(backendtest.Blackhole)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		if s, err := b.Inspect(ctx, mutex); err == nil || lease.IsPermanent(err) {
			t.Errorf("%+v, %v", s, err)
		}
		cancel()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	}
	relay.Set(backendtest.Reset)
	if _, err := b.Inspect(t.Context(), mutex); err == nil {
		t.Error("a status by a connection that was reset")
	}
	relay.Set(backendtest.Pass)
	if _, err := b.Inspect(t.Context(), mutex); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// The documentation shows the statements that are run.
func TestSchemaIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/mysql.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```sql\n"+strings.TrimSpace(mysql.Schema())+"\n```") {
		t.Error("docs/mysql.md shows other statements than mysql.Schema()")
	}
}
