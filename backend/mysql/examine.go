package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/simba-lock/simba/lease"
)

// exam is what the server says of itself, as far as it says it to this account.
type exam struct {
	b        *Backend
	l        *line
	findings []lease.Finding

	version string
	global  map[string]string // variables; a name that the server does not know is absent
	session map[string]string // those of our connection
	status  map[string]string // what it counts
	rights  map[string]bool   // of this account in the database; nil if that is not known
	roles   bool              // it has roles, of which nothing is known
	tables  map[string]bool   // those that are there
}

// Examine is [lease.Examiner.Examine]. All that it asks is open to every account, and
// what a server withholds all the same is a finding.
func (b *Backend) Examine(ctx context.Context) ([]lease.Finding, error) {
	e := &exam{b: b}
	err := b.reading(ctx, func(l *line) error {
		e.l = l
		if err := e.read(ctx); err != nil {
			return err
		}
		e.server()
		for _, ask := range []func(context.Context) error{e.layout, e.waking, e.connections} {
			if err := ask(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e.findings, nil
}

func (e *exam) find(check, detail, advice string) {
	e.findings = append(e.findings, lease.Finding{Check: check, Detail: detail, Advice: advice})
}

// withheld notes what the server refuses to say. It returns an error if it did not
// answer at all.
func (e *exam) withheld(check string, err error) error {
	if number(err) == 0 {
		return err
	}
	e.find(check, "cannot be told: "+err.Error(), "let somebody with more rights look")
	return nil
}

// The names that differ between MariaDB and MySQL stand here both ways.
const (
	globalNames = `'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'binlog_format',
		'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled',
		'rpl_semi_sync_master_wait_point', 'rpl_semi_sync_source_wait_point',
		'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode',
		'read_only', 'super_read_only', 'innodb_read_only', 'innodb_force_recovery', 'offline_mode',
		'max_connections', 'max_user_connections', 'wait_timeout', 'transaction_isolation', 'tx_isolation'`
	sessionNames = `'autocommit', 'transaction_isolation', 'tx_isolation', 'time_zone', 'sql_mode',
		'innodb_lock_wait_timeout', 'lock_wait_timeout', 'wait_timeout', 'max_user_connections', 'binlog_format'`
	statusNames = `'Threads_connected', 'Max_used_connections', 'Slaves_connected', 'Slave_running',
		'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients', 'wsrep_cluster_size', 'wsrep_ready'`
)

func (e *exam) read(ctx context.Context) error {
	if err := e.l.one(ctx, "SELECT VERSION()", nil, &e.version); err != nil {
		return err
	}
	for _, list := range []struct {
		what, of, names string
		into            *map[string]string
	}{
		{"variables", "GLOBAL VARIABLES", globalNames, &e.global},
		{"settings", "SESSION VARIABLES", sessionNames, &e.session},
		{"status", "GLOBAL STATUS", statusNames, &e.status},
	} {
		rows, err := e.l.all(ctx, "SHOW "+list.of+" WHERE variable_name IN ("+list.names+")")
		if err != nil {
			if err = e.withheld(list.what, err); err != nil {
				return err
			}
		}
		*list.into = make(map[string]string)
		for _, r := range rows {
			(*list.into)[strings.ToLower(r[0])] = r[1]
		}
	}
	rows, err := e.l.all(ctx, "SHOW GRANTS")
	if err != nil {
		return e.withheld("rights", err)
	}
	e.rights = make(map[string]bool)
	for _, r := range rows {
		e.grant(r[0])
	}
	return nil
}

// grant reads a line like "GRANT SELECT, INSERT ON `jobs`.* TO ...".
func (e *exam) grant(text string) {
	text, ok := strings.CutPrefix(text, "GRANT ")
	if !ok {
		return
	}
	what, where, ok := strings.Cut(text, " ON ")
	if !ok {
		e.roles = e.roles || !strings.HasPrefix(text, "PROXY")
		return
	}
	where, _, _ = strings.Cut(where, " TO ")
	base, object, _ := strings.Cut(strings.ReplaceAll(where, "`", ""), ".")
	if base != "*" && !like(base, e.b.set.database) {
		return
	}
	for right := range strings.SplitSeq(what, ", ") {
		switch {
		case object == "*":
			e.rights[right] = true
		case strings.HasPrefix(object, "simba_"):
			e.rights[right+" "+object] = true
		}
	}
}

// like compares as the server does a database with the pattern of a grant.
func like(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '%':
		return like(pattern[1:], name) || name != "" && like(pattern, name[1:])
	case pattern[0] == '\\' && len(pattern) > 1:
		pattern = pattern[1:]
	case pattern[0] == '_':
		return name != "" && like(pattern[1:], name[1:])
	}
	return name != "" && name[0] == pattern[0] && like(pattern[1:], name[1:])
}

// may tells whether the account has a right to both tables.
func (e *exam) may(right string) bool {
	has := func(r string) bool {
		return e.rights[r] || e.rights[r+" simba_mutex"] && e.rights[r+" simba_lease"]
	}
	return has("ALL PRIVILEGES") || has(right)
}

// on reads a switch, whose words have become more over time.
func (e *exam) on(name string) bool {
	switch strings.ToUpper(e.global[name]) {
	case "", "0", "OFF", "FALSE":
		return false
	}
	return true
}

func (e *exam) counted(name string) (n int, ok bool) {
	n, err := strconv.Atoi(e.status[name])
	return n, err == nil
}

// waking: whether GET_LOCK does what the doorbells need.
func (e *exam) waking(ctx context.Context) error {
	const check = "waking"
	if e.b.set.deaf {
		e.find(check, "doorbell=off: waiters look by themselves, once a second",
			"leave it out if neither a proxy nor a cluster is in between; a hand-over takes milliseconds then")
		return nil
	}
	name := "simba:probe:" + token()
	var first, second uint64
	var got *int
	err := e.l.one(ctx, "SELECT CONNECTION_ID(), GET_LOCK(?, 0)", []any{name}, &first, &got)
	var holder *uint64
	if err == nil {
		err = e.l.one(ctx, "SELECT CONNECTION_ID(), IS_USED_LOCK(?)", []any{name}, &second, &holder)
		_, _ = e.l.conn.ExecContext(ctx, "DO RELEASE_LOCK(?)", name)
	}
	const polls = "waiters look by themselves, once a second, which is chosen by itself; nothing else depends on it"
	switch {
	case err != nil && number(err) == 0:
		return err
	case err != nil:
		e.find(check, "GET_LOCK is refused: "+err.Error(), polls)
	case got == nil || *got != 1:
		e.find(check, "GET_LOCK gives no lock", polls)
	case first != second, holder == nil || *holder != second:
		e.find(check, "two statements of one connection are answered by different ones of the server: a proxy is in between",
			"connect to the server itself, or let all contenders use doorbell=off")
	default:
		e.find(check, "GET_LOCK is there", "")
	}
	return nil
}

// scarce is how many connections to spare are few: five waiters, in the moment of a look.
const scarce = 10

func (e *exam) connections(ctx context.Context) error {
	const check = "connections"
	used, ok := e.counted("threads_connected")
	limit, _ := strconv.Atoi(e.global["max_connections"])
	if !ok || limit == 0 {
		e.find(check, "cannot be told", "see that max_connections leaves room for two a waiter and one an owner")
		return nil
	}
	detail := fmt.Sprintf("%d of %d are in use", used, limit)
	advice := ""
	if limit-used < max(scarce, limit/20) {
		advice = "a waiter needs one and at times two, and without one it is woken late: raise max_connections"
	}
	if most, err := strconv.Atoi(e.session["max_user_connections"]); err == nil && most > 0 {
		var mine int
		// Its own connections are shown to every account.
		err := e.l.one(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1)", nil, &mine)
		if err != nil {
			if err = e.withheld(check, err); err != nil {
				return err
			}
		}
		detail += fmt.Sprintf("; %d of %d that this account may have", mine, most)
		if most-mine < scarce {
			advice = "a waiter needs one and at times two, and without one it is woken late: raise MAX_USER_CONNECTIONS"
		}
	}
	e.find(check, detail, advice)
	return nil
}

// all reads rows of texts; what is NULL is empty.
func (l *line) all(ctx context.Context, text string) ([][]string, error) {
	rows, err := l.conn.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var all [][]string
	for rows.Next() {
		row := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		texts := make([]string, len(names))
		for i := range row {
			texts[i] = row[i].String
		}
		all = append(all, texts)
	}
	return all, rows.Err()
}
