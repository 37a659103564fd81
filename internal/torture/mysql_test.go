package torture

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
)

// mysqlRound has a database of its own; the first run reaches it through a relay.
type mysqlRound struct {
	*round
	server   *backendtest.MySQL
	relay    *backendtest.Relay
	database string
	root     *sql.DB // into the database
}

// someoneElse is an owner that nothing is known of, with a lease of four seconds.
const someoneElse = `SET @now = FLOOR(1000 * UNIX_TIMESTAMP(NOW(3)));
	UPDATE simba_mutex SET owner_id = 'someone-else', version = version + 1,
	acquired_at = @now, ttl_at = @now + 4000, transition_at = @now + 4000`

var mysqlFaults = []struct {
	name   string
	own    bool // what is done to the server would hit other rounds
	deaf   bool
	codes  []int
	length string
	do     func(r *mysqlRound)
}{
	{name: "kill simba", codes: []int{killed}, length: "30s", do: func(r *mysqlRound) {
		r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
	}},
	{name: "stop simba past the lease", codes: []int{lost}, length: "30s", do: func(r *mysqlRound) {
		r.kill(r.first.cmd.Process.Pid, syscall.SIGSTOP)
		<-time.After(fullLease + time.Second)
		_ = syscall.Kill(r.first.cmd.Process.Pid, syscall.SIGCONT) // its own alarm may have woken it
	}},
	{name: "owner blackholed", codes: []int{lost}, length: "30s", do: func(r *mysqlRound) {
		r.relay.Set(backendtest.Blackhole)
		r.wait(r.first)
		r.until("the second works", func() bool { return lives(r.t, r.log)["B"].first > 0 })
		r.relay.Set(backendtest.Pass) // what the first sent late takes nothing from the second
	}},
	{name: "deaf job, owner blackholed", deaf: true, codes: []int{lost}, length: "30s", do: func(r *mysqlRound) {
		r.relay.Set(backendtest.Blackhole)
	}},
	{name: "deaf job, TERM, then kill simba", deaf: true, codes: []int{killed}, length: "30s", do: func(r *mysqlRound) {
		r.kill(r.first.cmd.Process.Pid, syscall.SIGTERM)
		<-time.After(200 * time.Millisecond)
		r.kill(r.first.cmd.Process.Pid, syscall.SIGKILL)
	}},
	{name: "everything stopped past the lease", codes: []int{lost}, length: "30s", do: stopAll},
	{name: "server stopped past the lease", own: true, codes: []int{lost}, length: "30s", do: func(r *mysqlRound) {
		r.server.Stop()
		<-time.After(fullLease + time.Second)
		r.server.Cont()
	}},
	{name: "server killed and restarted", own: true, codes: []int{0, lost}, length: "6s", do: func(r *mysqlRound) {
		r.server.Kill()
		r.server.Restart()
	}},
	{name: "row deleted", codes: []int{0}, length: "6s", do: func(r *mysqlRound) {
		r.exec("DELETE FROM simba_mutex")
	}},
	{name: "both rows deleted", codes: []int{0}, length: "6s", do: func(r *mysqlRound) {
		r.exec("DELETE FROM simba_mutex; DELETE FROM simba_lease")
	}},
	{name: "tables dropped", codes: []int{0}, length: "6s", do: func(r *mysqlRound) {
		r.exec("DROP TABLE simba_mutex, simba_lease")
	}},
	{name: "tables restored from before", codes: []int{0}, length: "6s", do: func(r *mysqlRound) {
		r.exec(`UPDATE simba_mutex SET owner_id = '', version = 3, acquired_at = 0, ttl_at = 0, transition_at = 0;
			UPDATE simba_lease SET rev = 7, fence = 1700000000000000, owner_id = 'before', released = 1, end_at = 1,
			waiters = ''`)
	}},
	{name: "row overwritten", codes: []int{lost}, length: "30s", do: func(r *mysqlRound) {
		r.exec(someoneElse)
		at := boot()
		r.wait(r.first)
		// A renewal period and kill-after, and what a loaded machine adds.
		if d := boot() - at; d > 2*time.Second/3+300*time.Millisecond+2*time.Second {
			r.t.Errorf("the first lived %v after its record was given away", d)
		} else {
			r.t.Logf("gone after %v", d)
		}
		if said := r.said(r.first); !strings.Contains(said, "someone-else") {
			r.t.Errorf("the new owner is not named: %s", said)
		}
		var owner string
		if err := r.root.QueryRow("SELECT owner_id FROM simba_mutex").Scan(&owner); err != nil || owner != "someone-else" {
			r.t.Errorf("the first left %q as owner, %v", owner, err)
		}
	}},
	{name: "connections killed every second", codes: []int{0}, length: "8s", do: func(r *mysqlRound) {
		for range 7 {
			if r.server.KillConnections(r.database) == 0 {
				r.t.Error("there was no connection to kill")
			}
			<-time.After(time.Second)
		}
	}},
	{name: "blips", codes: []int{0}, length: "8s", do: func(r *mysqlRound) {
		for range 4 {
			r.relay.Cut()
			<-time.After(300 * time.Millisecond)
			r.relay.Set(backendtest.Refuse)
			<-time.After(500 * time.Millisecond)
			r.relay.Set(backendtest.Pass)
			<-time.After(700 * time.Millisecond)
		}
	}},
}

// stopAll stops simba, guard and job, as a frozen machine does, till another has
// had the time to take the mutex.
func stopAll(r *mysqlRound) {
	second := map[int]bool{r.second.cmd.Process.Pid: true, r.guardOf(r.second): true}
	var all []int
	for _, pid := range append(marked(r.mark), r.guardOf(r.first)) {
		if !second[pid] {
			all = append(all, pid)
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
	}
	<-time.After(fullLease + time.Second)
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGCONT) // an alarm may have woken it, and it is gone
	}
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	shared := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	for _, f := range mysqlFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T) {
				server := shared
				if f.own {
					server = backendtest.StartMySQL(t, backendtest.MySQLOptions{})
				}
				r := newMySQLRound(t, server)
				r.length, r.deaf = f.length, f.deaf
				r.begin()
				f.do(r)
				r.finish(boot(), f.codes...)
				r.clean()
			})
		})
	}
}

func newMySQLRound(t *testing.T, server *backendtest.MySQL) *mysqlRound {
	relay := backendtest.StartRelay(t, server.Addr)
	r := &mysqlRound{round: newRound(t, leaseFlags...), server: server, relay: relay}
	r.database, r.root = server.Database(t)
	direct := server.URL(r.database)
	r.firstFlags = []string{"-b", strings.Replace(direct, server.Addr, relay.Addr, 1)}
	r.flags = append(r.flags, "-b", direct)
	return r
}

func (r *mysqlRound) exec(text string) {
	r.t.Helper()
	if _, err := r.root.Exec(text); err != nil {
		r.t.Fatal(err)
	}
}

// clean: of an ownership no more is left than one free row in each table, and
// no run showed a password or what only the driver speaks of.
func (r *mysqlRound) clean() {
	r.t.Helper()
	var rows, free int
	err := r.root.QueryRow(`SELECT COUNT(*),
		COALESCE(SUM(m.owner_id = '' AND m.transition_at = 0 AND l.released = 1 AND l.waiters = ''), 0)
		FROM simba_mutex AS m LEFT JOIN simba_lease AS l USING (mutex)`).Scan(&rows, &free)
	if err != nil || rows != 1 || free != 1 {
		r.t.Errorf("%d rows, %d of them free, %v", rows, free, err)
	}
	for _, c := range []*run{r.first, r.second} {
		said := r.said(c)
		for _, word := range []string{
			backendtest.MySQLPassword, url.QueryEscape(backendtest.MySQLPassword),
			"invalid connection", "busy buffer", "bad connection", "packets.go",
		} {
			if strings.Contains(said, word) {
				r.t.Errorf("a run said %q: %s", word, said)
			}
		}
	}
}

// TestMySQLFailover: the server turns read-only, and a moment later another one,
// which has all that was acknowledged, answers at the same address.
func TestMySQLFailover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T) {
		old := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
		next := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
		r := newMySQLRound(t, old)
		r.flags = append(r.flags[:len(r.flags)-1], r.firstFlags[1]) // the second goes by the relay too
		r.length = "6s"
		r.begin()
		old.Exec(t, "SET GLOBAL read_only = 1")
		next.Exec(t, "CREATE DATABASE "+r.database)
		for _, table := range []string{"simba_mutex", "simba_lease"} {
			copyTable(t, r.root, next, r.database, table)
		}
		<-time.After(time.Second)
		r.relay.Retarget(next.Addr)
		r.finish(boot(), 0)
		err := r.root.QueryRow("SELECT 1 FROM simba_lease WHERE released").Scan(new(int))
		if !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("the old server was written to: %v", err)
		}
		r.root = next.Into(t, r.database)
		r.clean()
	})
}

func copyTable(t *testing.T, from *sql.DB, to *backendtest.MySQL, database, table string) {
	t.Helper()
	var create string
	if err := from.QueryRow("SHOW CREATE TABLE "+table).Scan(new(string), &create); err != nil {
		t.Fatal(err)
	}
	root := to.Into(t, database)
	if _, err := root.Exec(create); err != nil {
		t.Fatal(err)
	}
	rows, err := from.Query("SELECT * FROM " + table)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		insert := "INSERT INTO " + table + " VALUES (?" + strings.Repeat(", ?", len(columns)-1) + ")"
		if _, err := root.Exec(insert, values...); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestMySQLLocalTime: the server's local time falls back an hour. An owner goes
// on, and one that died just before is followed when its lease has ended: not at
// once, and not an hour later.
func TestMySQLLocalTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T) {
		var at time.Time
		var server *backendtest.MySQL
		for early := 6 * time.Second; time.Until(at) < 4*time.Second; early *= 2 {
			at = time.Now().Add(early)
			server = backendtest.StartMySQL(t, backendtest.MySQLOptions{TZ: backendtest.FallingBack(t, at)})
		}
		lives, dies := newMySQLRound(t, server), newMySQLRound(t, server)
		lives.length, dies.length = "9s", "30s"
		lives.begin()
		dies.begin()
		<-time.After(time.Until(at) - fullLease/2)
		died := boot()
		dies.kill(dies.first.cmd.Process.Pid, syscall.SIGKILL)
		// It was renewed a third of ttl before at the latest.
		least, most := fullLease-2*time.Second/3-300*time.Millisecond, fullLease+2*time.Second
		if gap := dies.finish(died, killed); gap < least || gap > most {
			t.Errorf("the second job began %v after the first was killed", gap)
		}
		lives.finish(died, 0)
		var hours int
		err := server.Admin.QueryRow("SELECT TIMESTAMPDIFF(HOUR, UTC_TIMESTAMP(), NOW())").Scan(&hours)
		if err != nil || hours != 0 || time.Now().Before(at) {
			t.Errorf("the clocks did not go back: %d hours, %v", hours, err)
		}
	})
}

// TestMySQLStampede: many at once on a database without the tables. All are
// served, and none has anything to say.
func TestMySQLStampede(t *testing.T) {
	t.Parallel()
	server := backendtest.StartMySQL(t, backendtest.MySQLOptions{})
	each(t, func(t *testing.T) {
		database, _ := server.Database(t)
		r := newRound(t, "-b", server.URL(database))
		counter := filepath.Join(r.dir, "counter")
		if err := os.WriteFile(counter, []byte("0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		const contenders = 30
		var runs []*run
		for range contenders {
			runs = append(runs, r.start(`read n <"`+counter+`"; sleep 0.01; echo $((n + 1)) >"`+counter+`"`))
		}
		for _, c := range runs {
			if code := r.wait(c); code != 0 || c.stderr.String() != "" {
				t.Errorf("one ended with %d: %s", code, c.stderr)
			}
		}
		if got, err := os.ReadFile(counter); err != nil || string(got) != fmt.Sprintln(contenders) {
			t.Errorf("counted %q, %v", got, err)
		}
	})
}
