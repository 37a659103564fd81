package backendtest

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQLOptions are how a private server differs from a plain one.
type MySQLOptions struct {
	TZ   string   // its local time zone, a name or a file
	Args []string // further ones of the command line
}

// MySQL is a private MariaDB, or the MySQL whose mysqld SIMBA_TEST_MYSQLD names.
type MySQL struct {
	*Server
	Addr   string
	Port   int
	Socket string
	Admin  *sql.DB // root's, over the socket
	t      testing.TB
}

// MySQLUser and MySQLPassword are an account that may use and create tables in
// every database, and no more: it is bound by read_only and by init_connect.
const (
	MySQLUser     = "app"
	MySQLPassword = "s3cr%t"
)

const mysqlUsers = `CREATE USER IF NOT EXISTS 'app'@'%' IDENTIFIED BY 's3cr%t';
GRANT SELECT, INSERT, UPDATE, CREATE ON *.* TO 'app'@'%';
`

// StartMySQL starts a server on loopback. It ends with the test.
func StartMySQL(t testing.TB, o MySQLOptions) *MySQL {
	t.Helper()
	program := mysqld(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if out, err := exec.Command("cp", "-a", template(t, program), data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Socket paths are limited to about a hundred bytes.
	short, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	users := filepath.Join(dir, "users.sql")
	if err := os.WriteFile(users, []byte(mysqlUsers), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &MySQL{Port: reservePort(t), Socket: filepath.Join(short, "s"), t: t}
	m.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Port))
	argv := []string{
		program, "--no-defaults", "--datadir=" + data, "--socket=" + m.Socket, "--pid-file=" + filepath.Join(short, "pid"),
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(m.Port), "--skip-name-resolve", "--init-file=" + users,
		"--performance-schema=0", "--innodb-buffer-pool-size=8M", "--innodb-flush-log-at-trx-commit=2",
	}
	// At its start a server clears its temporary tables away, and others' with them.
	argv = append(argv, "--tmpdir="+dir)
	argv = append(argv, asRoot()...)
	argv = append(argv, o.Args...)
	if o.TZ != "" {
		argv = append([]string{"env", "TZ=" + o.TZ}, argv...)
	}
	m.Admin = m.open("root", "", "")
	t.Cleanup(func() { _ = m.Admin.Close() })
	m.Server = StartServer(t, "mariadb-server", m.Admin.Ping, argv...)
	return m
}

func (m *MySQL) open(user, password, database string) *sql.DB {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = user, password, "unix", m.Socket, database
	c.Logger = &mysql.NopLogger{}
	c.MultiStatements = true
	connector, err := mysql.NewConnector(c)
	if err != nil {
		m.t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	// What a test asks for must not go down a connection that it had killed.
	db.SetMaxIdleConns(-1)
	return db
}

// Database makes an empty database for a test and returns root's way into it.
func (m *MySQL) Database(t testing.TB) (name string, root *sql.DB) {
	t.Helper()
	databases.Lock()
	databases.n++
	name = fmt.Sprintf("t%d", databases.n)
	databases.Unlock()
	m.Exec(t, "CREATE DATABASE "+name)
	return name, m.Into(t, name)
}

// Into is root's way into a database.
func (m *MySQL) Into(t testing.TB, database string) *sql.DB {
	root := m.open("root", "", database)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

var databases struct {
	sync.Mutex
	n int
}

// URL is how the application's account reaches a database, the password within.
func (m *MySQL) URL(database string) string {
	return "mysql://" + MySQLUser + ":" + strings.ReplaceAll(MySQLPassword, "%", "%25") + "@" + m.Addr + "/" + database
}

// Exec runs statements as root.
func (m *MySQL) Exec(t testing.TB, text string, values ...any) {
	t.Helper()
	if _, err := m.Admin.Exec(text, values...); err != nil {
		log, _ := os.ReadFile(m.log)
		t.Fatalf("%s: %v\n%s", text, err, log[max(0, len(log)-2000):])
	}
}

// KillClients ends all connections of an account, but not in the middle of an answer.
func (m *MySQL) KillClients(user string) int { return m.killWhere("user", user) }

// KillConnections ends all connections to a database but root's.
func (m *MySQL) KillConnections(database string) int {
	return m.killWhere("user <> 'root' AND db", database)
}

func (m *MySQL) killWhere(column, value string) int {
	rows, err := m.Admin.Query("SELECT id FROM information_schema.processlist WHERE "+column+" = ?", value)
	if err != nil {
		return 0
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for rows.Next() {
		var id int
		if rows.Scan(&id) == nil {
			if _, err := m.Admin.Exec(fmt.Sprintf("KILL %d", id)); err == nil {
				n++
			}
		}
	}
	return n
}

// FallingBack is a time zone, the name of a file, in which clocks go back an hour at that time.
func FallingBack(t testing.TB, at time.Time) string {
	t.Helper()
	u := at.UTC()
	source := fmt.Sprintf("Zone Test 1:00 - AAA %d %s %d %s\n          0:00 - BBB\n",
		u.Year(), u.Month().String()[:3], u.Day(), u.Format("15:04:05")+"u")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "source"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("zic", "-d", dir, filepath.Join(dir, "source")).CombinedOutput(); err != nil {
		t.Fatalf("zic (package libc-bin or tzdata): %v\n%s", err, out)
	}
	return filepath.Join(dir, "Test")
}

func mysqld(t testing.TB) string {
	if p := os.Getenv("SIMBA_TEST_MYSQLD"); p != "" {
		return p
	}
	for _, p := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if found, err := exec.LookPath(p); err == nil {
			return found
		}
	}
	t.Fatal("mariadbd is missing: apt-get install mariadb-server")
	return ""
}

func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// template is a data directory as it is before the first start. Making one takes
// seconds, so it is kept for the next run.
func template(t testing.TB, program string) string {
	t.Helper()
	templates.Lock()
	defer templates.Unlock()
	version, err := exec.Command(program, "--no-defaults", "--version").Output()
	if err != nil {
		t.Fatalf("%s --version: %v", program, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", r) {
			return r
		}
		return '_'
	}, string(version))
	dir := filepath.Join(cache, "simba-test-mysql", name[max(0, len(name)-100):])
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	data := filepath.Join(fresh, "data")
	argv := []string{program, "--no-defaults", "--initialize-insecure", "--datadir=" + data}
	if strings.Contains(string(version), "MariaDB") {
		argv = []string{
			"mariadb-install-db", "--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal",
			"--skip-test-db", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=8M",
		}
	}
	argv = append(argv, asRoot()...)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	if err := os.Rename(data, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // another run was quicker otherwise
			t.Fatal(err)
		}
	}
	return dir
}

var templates sync.Mutex
