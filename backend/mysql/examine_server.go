package mysql

import (
	"fmt"
	"strconv"
	"strings"
)

// server judges what the server is and how it is set.
func (e *exam) server() {
	e.ofVersion()
	e.ofWriting()
	e.ofCrash()
	e.ofReplicas()
	e.ofCluster()
	e.ofSession()
	e.ofIdle()
}

// minimum is the first version of each that is known to do: UPDATE over two tables,
// CAST, GET_LOCK of several locks, and READ COMMITTED with binlog_format=MIXED.
const (
	minMariaDB = "10.6"
	minMySQL   = "8.0"
)

func (e *exam) ofVersion() {
	advice, detail := "", e.version
	maria := strings.Contains(e.version, "MariaDB")
	least, kind := minMySQL, "MySQL"
	if maria {
		least, kind = minMariaDB, "MariaDB"
	} else {
		detail = "MySQL " + detail
	}
	switch {
	case strings.Contains(e.version, "TiDB"):
		advice = "this is no MySQL, and nothing is known of its locks and clocks: use MariaDB or MySQL"
	case older(e.version, least):
		advice = fmt.Sprintf("use %s %s or later: nothing was tried below", kind, least)
	}
	e.find("version", detail, advice)
}

// older compares the first two numbers of a version. A MariaDB may put 5.5.5- in front.
func older(version, least string) bool {
	split := func(v string) (major, minor int) {
		a, rest, _ := strings.Cut(v, ".")
		b, _, _ := strings.Cut(rest, ".")
		major, _ = strconv.Atoi(a)
		minor, _ = strconv.Atoi(b)
		return major, minor
	}
	if strings.Contains(version, "MariaDB") {
		version = strings.TrimPrefix(version, "5.5.5-")
	}
	major, minor := split(version)
	leastMajor, leastMinor := split(least)
	return major < leastMajor || major == leastMajor && minor < leastMinor
}

func (e *exam) ofWriting() {
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "offline_mode"} {
		if e.on(name) {
			e.find("writing", name+" is on", "connect to the server that is written to; this one refuses every run")
			return
		}
	}
	if level := e.global["innodb_force_recovery"]; level != "" && level != "0" {
		e.find("writing", "innodb_force_recovery is "+level, "it is not to be written to until it is started without")
		return
	}
	e.find("writing", "it is written to", "")
}

func (e *exam) ofCrash() {
	const check = "persistence"
	flush, known := e.global["innodb_flush_log_at_trx_commit"]
	sync := e.global["sync_binlog"]
	detail := "innodb_flush_log_at_trx_commit = " + flush
	if e.on("log_bin") {
		detail += ", sync_binlog = " + sync
	}
	switch {
	case !known:
		e.find(check, "cannot be told", "see that innodb_flush_log_at_trx_commit is 1")
	case flush != "1":
		e.find(check, detail, "a crash may forget an acquisition that was acknowledged, and two jobs run until the lease ends: set innodb_flush_log_at_trx_commit to 1")
	case e.on("log_bin") && sync != "1":
		e.find(check, detail, "after a crash the replicas may lack an acquisition that was acknowledged: set sync_binlog to 1")
	default:
		e.find(check, detail, "")
	}
}

// failover is what to do about replicas that do not wait.
const failover = "a fail-over to one of them may forget the latest acquisition, and two jobs run until the lease ends: " +
	"let commits wait for a replica (AFTER_SYNC), or wait out a lease before another server is opened for writing, or let stores check SIMBA_FENCE"

func (e *exam) ofReplicas() {
	const check = "replication"
	either := func(master, source string) string { return e.global[master] + e.global[source] }
	sync := strings.EqualFold(either("rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"), "ON")
	point := either("rpl_semi_sync_master_wait_point", "rpl_semi_sync_source_wait_point")
	waiting, _ := strconv.Atoi(e.status["rpl_semi_sync_master_clients"] + e.status["rpl_semi_sync_source_clients"])
	replicas, known := e.counted("slaves_connected")
	switch {
	case strings.EqualFold(e.status["slave_running"], "ON"):
		e.find(check, "it is itself a replica", "connect to the server that is written to")
	case e.global["log_bin"] == "":
		e.find(check, "cannot be told", failover)
	case !e.on("log_bin"):
		e.find(check, "there is no binary log, so no replica follows", "")
	case sync && strings.EqualFold(point, "AFTER_SYNC") && waiting > 0:
		e.find(check, fmt.Sprintf("commits wait for one of %d replicas", waiting), "")
	case known && replicas == 0:
		e.find(check, "no replica is connected", "")
	case known:
		e.find(check, fmt.Sprintf("%d replicas follow, and commits do not wait for them", replicas), failover)
	default:
		e.find(check, "there is a binary log; whether replicas follow is not shown", "if one may take over: "+failover)
	}
}

func (e *exam) ofCluster() {
	const check = "cluster"
	const one = "let all contenders connect to one and the same member, and to another one only after this one has gone"
	switch {
	case e.on("wsrep_on"):
		detail := "Galera"
		if n := e.status["wsrep_cluster_size"]; n != "" {
			detail += ", members: " + n
		}
		if ready := e.status["wsrep_ready"]; ready != "" && !strings.EqualFold(ready, "ON") {
			detail += ", not ready"
		}
		e.find(check, detail, "members that are written to at the same time do not exclude each other in time, and the locks that wake waiters are a member's own: "+one)
	case e.global["group_replication_group_name"] != "" && !e.on("group_replication_single_primary_mode"):
		e.find(check, "Group Replication with several primaries", "use the single-primary mode, or "+one)
	case e.global["group_replication_group_name"] != "":
		e.find(check, "Group Replication with one primary", "")
	default:
		e.find(check, "it is in none", "")
	}
}

// ofSession looks whether a connection is as it was set up: a proxy may have swallowed
// that, or answer from another connection of its own.
func (e *exam) ofSession() {
	const check = "isolation"
	level := e.session["transaction_isolation"]
	if level == "" {
		level = e.session["tx_isolation"]
	}
	want := []struct {
		what string
		ok   bool
	}{
		{"isolation level " + level, level == "READ-COMMITTED"},
		{"autocommit " + e.session["autocommit"], strings.EqualFold(e.session["autocommit"], "ON")},
		{"time_zone " + e.session["time_zone"], e.session["time_zone"] == "+00:00"},
		{"sql_mode " + e.session["sql_mode"], strings.Contains(e.session["sql_mode"], "STRICT_TRANS_TABLES")},
		{"innodb_lock_wait_timeout " + e.session["innodb_lock_wait_timeout"], e.session["innodb_lock_wait_timeout"] == "1"},
		{"lock_wait_timeout " + e.session["lock_wait_timeout"], e.session["lock_wait_timeout"] == "1"},
	}
	var wrong []string
	for _, w := range want {
		if !w.ok {
			wrong = append(wrong, w.what)
		}
	}
	switch {
	case len(e.session) == 0: // the reason was told
	case len(wrong) > 0:
		e.find(check, "a connection does not keep what it sets: "+strings.Join(wrong, ", "),
			"a proxy is in between: connect to the server itself")
	case e.on("log_bin") && strings.EqualFold(e.session["binlog_format"], "STATEMENT"):
		e.find(check, "binlog_format is STATEMENT", "the server refuses to write under READ COMMITTED with it: set it to ROW or MIXED")
	default:
		e.find(check, "READ COMMITTED and autocommit, as each connection sets them", "")
	}
}

func (e *exam) ofIdle() {
	const check = "idle connections"
	set, err := strconv.Atoi(e.session["wait_timeout"])
	switch {
	case err != nil: // the reason was told
	case set < ownerIdle:
		e.find(check, fmt.Sprintf("the server closes ours after %d s", set),
			fmt.Sprintf("it does not keep the wait_timeout of %d that each connection sets: connect to the server itself, not a proxy", ownerIdle))
	default:
		e.find(check, fmt.Sprintf("closed after %d s, as each connection sets it (the server's own: %s s)", set, e.global["wait_timeout"]), "")
	}
}
