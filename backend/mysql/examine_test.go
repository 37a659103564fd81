package mysql_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/backend/mysql"
	"github.com/simba-lock/simba/lease"
)

// examine asks for the findings and checks which of them give advice: no others than
// those named, and of what they speak.
func examine(t testing.TB, b lease.Backend, advised map[string]string) {
	t.Helper()
	findings, err := b.(lease.Examiner).Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, f := range findings {
		t.Logf("%-16s %s", f.Check, f.Detail)
		if f.Advice != "" {
			t.Logf("%-16s → %s", "", f.Advice)
		}
		if f.Check == "" || f.Detail == "" || seen[f.Check] {
			t.Errorf("%+v", f)
		}
		seen[f.Check] = true
		want, ok := advised[f.Check]
		if ok != (f.Advice != "") || !strings.Contains(f.Detail+"\n"+f.Advice, want) {
			t.Errorf("%+v, want %q", f, want)
		}
	}
	for check := range advised {
		if !seen[check] {
			t.Errorf("nothing was found out about %s", check)
		}
	}
}

type advice = map[string]string

// durable is how a server is that forgets nothing; those of the tests are quicker.
const durable = "--innodb-flush-log-at-trx-commit=1"

func TestExamineServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		args    []string
		set     string
		advised advice
	}{
		{"as it should be", []string{durable}, "", nil},
		{"quick", nil, "", advice{"persistence": "= 2"}},
		{"log", []string{durable, "--log-bin=log", "--server-id=1", "--sync-binlog=0", "--binlog-format=STATEMENT"}, "", advice{
			"persistence": "sync_binlog to 1", "isolation": "ROW or MIXED",
		}},
		{"log that is kept", []string{durable, "--log-bin=log", "--server-id=1", "--sync-binlog=1", "--binlog-format=MIXED"}, "", nil},
		{"read only", []string{durable}, "SET GLOBAL read_only = 1", advice{"writing": "read_only is on"}},
		{"few connections", []string{durable, "--max-connections=10", "--wait-timeout=2"}, "", advice{"connections": "of 10 "}},
		{"recovery", []string{durable, "--innodb-force-recovery=1"}, "", advice{"writing": "innodb_force_recovery"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: c.args})
			name, _ := m.Database(t)
			b := open(t, m.URL(name))
			if c.advised == nil {
				examine(t, b, nil) // no tables yet
				if _, err := tryOnce(t, b, mutex); err != nil {
					t.Fatal(err)
				}
			}
			if c.set != "" {
				m.Exec(t, c.set)
			}
			before := dump(t, m.Into(t, name))
			examine(t, b, c.advised)
			if after := dump(t, m.Into(t, name)); after != before {
				t.Errorf("it wrote: %s\n%s", before, after)
			}
		})
	}
}

// Replicas that a commit does not wait for, and one that it does wait for.
func TestExamineReplicas(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{durable, "--log-bin=log", "--server-id=1", "--sync-binlog=1", "--binlog-format=MIXED"}})
	replica := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{durable, "--server-id=2"}})
	m.Exec(t, "CREATE USER follower IDENTIFIED BY 'pw'; GRANT REPLICATION SLAVE ON *.* TO follower")
	replica.Exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='follower', MASTER_PASSWORD='pw', MASTER_USE_GTID=slave_pos; START SLAVE", m.Port))
	name, _ := m.Database(t)
	until(t, "the replica has followed", func() error { return replica.Into(t, name).Ping() })
	examine(t, open(t, m.URL(name)), advice{"replication": "1 replicas follow, and commits do not wait for them"})
	examine(t, open(t, replica.URL(name)), advice{"replication": "it is itself a replica"})
	m.Exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = 1, GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'")
	replica.Exec(t, "STOP SLAVE; SET GLOBAL rpl_semi_sync_slave_enabled = 1; START SLAVE")
	until(t, "it is waited for", func() error {
		if n := status(t, m.Admin, "Rpl_semi_sync_master_clients"); n != 1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	examine(t, open(t, m.URL(name)), nil)
}

// A member of a Galera cluster, which is one as soon as the provider is loaded.
func TestExamineCluster(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{
		durable, "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
		"--wsrep-on=ON", "--wsrep-provider=/usr/lib/galera/libgalera_smm.so", "--wsrep-cluster-address=gcomm://", "--wsrep-node-address=127.0.0.1",
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d", backendtest.FreePort(t), backendtest.FreePort(t)),
	}})
	name, _ := m.Database(t)
	b := open(t, m.URL(name))
	if a, err := tryOnce(t, b, mutex); err != nil || a.State != lease.Mine {
		t.Errorf("%+v, %v", a, err)
	}
	examine(t, b, advice{"cluster": "Galera, members: 1"})
}

func TestExamineTables(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{durable}})
	for _, c := range []struct {
		what, setup string
		advised     advice
	}{
		{"of a JVM", "ALTER DATABASE COLLATE utf8mb4_general_ci; " + jvmTable, advice{
			"lengths": "simba_mutex.mutex takes 66 characters", "collation": "simba_mutex.mutex utf8mb4_general_ci, simba_mutex.owner_id utf8mb4_general_ci",
		}},
		{"another collation", mysql.Schema() + "ALTER TABLE simba_lease CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", advice{
			"collation": "simba_lease.mutex utf8mb4_general_ci",
		}},
		{"another engine", mysql.Schema() + "ALTER TABLE simba_lease ENGINE=MyISAM", advice{"engine": "simba_lease: MyISAM"}},
		{"a view", mysql.Schema() + "RENAME TABLE simba_mutex TO other; CREATE VIEW simba_mutex AS SELECT * FROM other", advice{"engine": "simba_mutex: VIEW"}},
		{"an earlier version", mysql.Schema() + "ALTER TABLE simba_lease DROP COLUMN checkpoint", advice{"columns": "ALTER TABLE simba_lease ADD COLUMN checkpoint"}},
		{"another's", "CREATE TABLE simba_mutex (id int)", advice{"columns": "missing: simba_mutex.acquired_at"}},
		{"seconds", strings.Replace(jvmTable, "ttl_at bigint", "ttl_at int", 1), advice{"columns": "simba_mutex.ttl_at is int", "lengths": "66", "collation": "simba_mutex"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			name, root := m.Database(t)
			exec(t, root, c.setup)
			examine(t, open(t, m.URL(name)), c.advised)
		})
	}
	// Folding is refused for what it is, whichever table does it.
	name, root := m.Database(t)
	exec(t, root, mysql.Schema()+"ALTER TABLE simba_lease CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	b := open(t, m.URL(name))
	if a, err := tryOnce(t, b, "Job"); err != nil || a.State != lease.Mine {
		t.Errorf("%+v, %v", a, err)
	}
	for range 2 {
		if a, err := tryOnce(t, b, "job"); !lease.IsPermanent(err) || !strings.Contains(err.Error(), "the collation of simba_lease") {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if s, err := b.Inspect(t.Context(), "job"); !lease.IsPermanent(err) {
		t.Errorf("%+v, %v", s, err)
	}
}

// What an account may, and what is between it and the server.
func TestExamineAccounts(t *testing.T) {
	t.Parallel()
	m := backendtest.StartMySQL(t, backendtest.MySQLOptions{Args: []string{durable}})
	made, root := m.Database(t)
	exec(t, root, mysql.Schema())
	empty, _ := m.Database(t)
	exec(t, root, fmt.Sprintf(`CREATE USER reader IDENTIFIED BY 'pw', writer IDENTIFIED BY 'pw', narrow IDENTIFIED BY 'pw', role IDENTIFIED BY 'pw';
		CREATE USER few IDENTIFIED BY 'pw' WITH MAX_USER_CONNECTIONS 8;
		GRANT SELECT ON %[1]s.* TO reader; GRANT SELECT, INSERT, UPDATE ON *.* TO writer; GRANT ALL ON `+"`t%%`"+`.* TO few;
		GRANT SELECT, INSERT, UPDATE ON %[1]s.simba_mutex TO narrow; GRANT SELECT, INSERT, UPDATE ON %[1]s.simba_lease TO narrow;
		CREATE ROLE jobs; GRANT SELECT, INSERT, UPDATE ON *.* TO jobs; GRANT jobs TO role; GRANT SELECT ON *.* TO role`, made))
	url := func(user, database string) string { return "mysql://" + user + ":pw@" + m.Addr + "/" + database }
	changed := func(from, to string) string {
		return strings.Replace(m.URL(made), m.Addr, between(t, m.Addr, func(_ int64, sent []byte) []byte {
			return []byte(strings.ReplaceAll(string(sent), from, to))
		}), 1)
	}
	for _, c := range []struct {
		what, url string
		advised   advice
	}{
		{"all there", m.URL(made), nil},
		{"reader", url("reader", made), advice{"rights": "no INSERT, UPDATE"}},
		{"no right to create", url("writer", empty), advice{"tables": "may not make them"}},
		{"one table each", url("narrow", made), nil},
		{"a role", url("role", made), advice{"rights": "role"}},
		{"limited", url("few", made), advice{"connections": "of 8 that this account may have"}},
		{"doorbell=off", m.URL(made) + "?doorbell=off", advice{"waking": "doorbell=off"}},
		{"no GET_LOCK", changed("GET_LOCK", "NO_LOCKS"), advice{"waking": "GET_LOCK is refused"}},
		{"other connections", changed("IS_USED_LOCK", "IS_FREE_LOCK"), advice{"waking": "a proxy is in between"}},
		{"settings are lost", changed("autocommit = 1", "autocommit = 0"), advice{"isolation": "autocommit OFF"}},
		{"closes soon", changed("wait_timeout = 300", "wait_timeout = 100"), advice{"idle connections": "after 100 s"}},
		{"says nothing of itself", changed("GLOBAL VARIABLES", "GLOBAL VARIOUSLY"), advice{
			"variables": "cannot be told", "persistence": "cannot be told", "replication": "cannot be told", "connections": "cannot be told",
		}},
		{"says nothing of the account", changed("SHOW GRANTS", "SHOW GRUNTS"), advice{"rights": "cannot be told"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			examine(t, open(t, c.url), c.advised)
		})
	}
	gone := open(t, fmt.Sprintf("mysql://app:pw@127.0.0.1:%d/x", backendtest.FreePort(t)))
	if f, err := gone.(lease.Examiner).Examine(t.Context()); err == nil {
		t.Errorf("no server: %+v", f)
	}
	m.Stop()
	defer m.Cont()
	endsWithItsContext(t, "an examination", func(ctx context.Context) error {
		_, err := open(t, m.URL(made)).(lease.Examiner).Examine(ctx)
		return err
	})
}
