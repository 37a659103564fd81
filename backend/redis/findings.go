package redis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/simba-lock/simba/lease"
)

const (
	// oldest is the first version that is taken for good. Before 5 a script may not write
	// after it has asked for the time; what came between is no longer mended.
	oldestMajor, oldestMinor = 6, 2
	// nearlyFull, in percent: of memory and of connections.
	nearlyFull = 90
)

// number is one that the server told; 0 if it did not.
func (s *server) number(key string) int {
	n, err := strconv.Atoi(s.info[key])
	if err != nil {
		n, _ = strconv.Atoi(s.config[key])
	}
	return n
}

// findings are everything that was looked at, in the order in which it matters.
func (s *server) findings() []lease.Finding {
	var all []lease.Finding
	user := s.user
	if user == "" {
		user = "NAME"
	}
	if s.noInfo != nil {
		all = append(all, lease.Finding{Check: "server", Detail: "cannot be asked: " + s.noInfo.Error(),
			Advice: "let the account use INFO (ACL SETUSER " + user + " +info)"})
	} else {
		all = append(all, s.itself())
	}
	if s.noConfig != nil {
		all = append(all, lease.Finding{Check: "settings", Detail: "cannot be asked: " + s.noConfig.Error(),
			Advice: "let the account use CONFIG GET (ACL SETUSER " + user + " +config|get), or look at appendfsync, save " +
				"and min-replicas-to-write yourself"})
	}
	for _, look := range []func() (lease.Finding, bool){s.eviction, s.memory, s.persistence, s.replication, s.cutOff, s.connections} {
		if f, known := look(); known {
			all = append(all, f)
		}
	}
	if s.user != "" {
		all = append(all, lease.Finding{Check: "account", Detail: s.user})
	}
	return all
}

// itself: what answers, and whether it is what the URL wants.
func (s *server) itself() (f lease.Finding) {
	version, name := s.info["redis_version"], "Redis"
	if v := s.info["valkey_version"]; v != "" {
		name = "Valkey " + v + ", as Redis"
	}
	f = lease.Finding{Check: "server", Detail: strings.TrimSpace(name + " " + version)}
	mode, role := s.info["redis_mode"], s.info["role"]
	switch {
	case mode == "sentinel":
		f.Detail += ", a sentinel"
		f.Advice = "it keeps no mutexes: write redis+sentinel://, and the name of its master after the slash"
		return f
	case role == "slave":
		f.Detail += fmt.Sprintf(", a replica of %s:%s", s.info["master_host"], s.info["master_port"])
		f.Advice = "it refuses writes, or forgets them: name its master, or its sentinels (redis+sentinel://)"
		return f
	case s.kind == sentinel:
		f.Detail += ", the master that the sentinels name"
	case s.kind == cluster && mode == "cluster":
		f.Detail += fmt.Sprintf(", one of %d masters of a cluster", s.masters)
	case mode == "cluster":
		f.Detail += ", a node of a cluster"
		f.Advice = "write redis+cluster://, so that the other nodes are known when this one is away"
	case role == "master":
		f.Detail += ", a master"
	}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 &&
		(major < oldestMajor || major == oldestMajor && minor < oldestMinor) {
		f.Advice = fmt.Sprintf("take Redis %d.%d or newer", oldestMajor, oldestMinor)
	}
	return f
}

// setting is from INFO, or else from CONFIG.
func (s *server) setting(info, config string) (string, bool) {
	if v, ok := s.info[info]; ok {
		return v, true
	}
	v, ok := s.config[config]
	return v, ok
}

// eviction: all keys here have an expiry, so the volatile-* policies take them too.
func (s *server) eviction() (f lease.Finding, known bool) {
	policy, known := s.setting("maxmemory_policy", "maxmemory-policy")
	f = lease.Finding{Check: "eviction", Detail: "maxmemory-policy " + policy}
	if n := s.number("evicted_keys"); n > 0 {
		f.Detail += fmt.Sprintf(", %d keys were evicted since it started", n)
	}
	switch {
	case policy == "noeviction":
	case s.number("maxmemory") == 0:
		f.Detail += ", but without a limit (maxmemory) nothing is evicted"
	default:
		f.Advice = "a full server may throw away keys of owners: set maxmemory-policy noeviction, or take a server of its own for mutexes"
	}
	return f, known && policy != ""
}

func (s *server) memory() (f lease.Finding, known bool) {
	used, limit := s.number("used_memory"), s.number("maxmemory")
	f.Check = "memory"
	switch {
	case s.noInfo != nil || used == 0:
		return f, false
	case limit == 0:
		f.Detail = "no limit"
	case used >= limit/100*nearlyFull:
		f.Detail = fmt.Sprintf("%d %% of maxmemory are used", used*100/limit)
		f.Advice = "a full server refuses acquisitions (OOM): raise maxmemory, or find out what fills it"
	default:
		f.Detail = fmt.Sprintf("less than %d %% of maxmemory are used", nearlyFull)
	}
	return f, true
}

// persistence: what a restart forgets.
func (s *server) persistence() (f lease.Finding, known bool) {
	f.Check = "persistence"
	aof, known := s.setting("aof_enabled", "appendonly")
	if !known {
		return f, false
	}
	save, saveKnown := s.config["save"]
	const always = "set appendonly yes and appendfsync always"
	switch fsync := s.config["appendfsync"]; {
	case aof == "1" || aof == "yes":
		f.Detail = "append-only file, appendfsync " + fsync
		switch {
		case s.info["aof_last_write_status"] == "err":
			f.Detail += "; the last write to it failed"
			f.Advice = "look at the disk and at the server's log: while that lasts, writes are refused"
		case fsync == "everysec":
			f.Advice = "a crash of the machine forgets the last second: set appendfsync always"
		case fsync == "no":
			f.Advice = "a crash of the machine forgets what the kernel had not written yet, some 30 s: set appendfsync always"
		case fsync == "":
			f.Detail = "append-only file" // how often it is synced is among the settings that cannot be asked
		}
	case !saveKnown:
		f.Detail = "no append-only file"
		f.Advice = "a restart forgets the latest minutes, or everything: " + always
	case save == "":
		f.Detail = "neither append-only file nor snapshots"
		f.Advice = "a restart forgets all owners, holds and checkpoints: " + always
	default:
		f.Detail = "snapshots only (save " + save + ")"
		f.Advice = "a crash forgets what came after the last one: " + always
	}
	if s.info["rdb_last_bgsave_status"] == "err" && f.Advice == "" {
		f.Detail += "; the last snapshot failed"
		f.Advice = "look at the disk and at the server's log: writes may be refused (MISCONF)"
	}
	return f, true
}

// online counts the replicas that follow.
func (s *server) online() (n int) {
	for key, value := range s.info {
		if strings.HasPrefix(key, "slave") && strings.Contains(value, "state=online") {
			n++
		}
	}
	return n
}

func replicas(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// replication: what a failover may forget.
func (s *server) replication() (f lease.Finding, known bool) {
	if s.info["role"] != "master" {
		return f, false
	}
	n := s.online()
	f = lease.Finding{Check: "replication", Detail: fmt.Sprintf("%s, wait_replicas=%d", replicas(n), s.waitedFor)}
	switch {
	case s.waitedFor > n:
		f.Advice = "so nothing can be acquired: see to the replicas, or wait for fewer in the URL"
	case n == 0:
		f.Detail = "no replicas, so no failover either"
	case s.waitedFor == 0:
		f.Advice = "a failover may forget an acquisition that was acknowledged: write ?wait_replicas=1 at the end of the URL"
	}
	return f, true
}

// cutOff: a master that is cut off from its replicas together with an owner.
func (s *server) cutOff() (f lease.Finding, known bool) {
	if s.info["role"] != "master" || s.noConfig != nil {
		return f, false
	}
	least, lag := s.number("min-replicas-to-write"), s.number("min-replicas-max-lag")
	f = lease.Finding{Check: "cut-off master", Detail: fmt.Sprintf("min-replicas-to-write %d, min-replicas-max-lag %d", least, lag)}
	switch n := s.online(); {
	case least > 0 && lag > 0 && n < least:
		f.Detail += ", " + replicas(n)
		f.Advice = "writes are refused (NOREPLICAS): see to the replicas"
	case n == 0 || s.waitedFor > 0:
		// Nobody else can be made a master, or its owners cannot renew.
	case least == 0 || lag == 0:
		f.Advice = "its owners go on while a replica is made a master elsewhere: set min-replicas-to-write 1 " +
			"and min-replicas-max-lag, in seconds, to less than a lease"
	}
	return f, true
}

// connections: a waiter has two.
func (s *server) connections() (f lease.Finding, known bool) {
	used, limit := s.number("connected_clients"), s.number("maxclients")
	if used == 0 || limit == 0 {
		return f, false
	}
	f = lease.Finding{Check: "connections", Detail: fmt.Sprintf("less than %d %% of maxclients %d are used", nearlyFull, limit)}
	if used*100 >= limit*nearlyFull {
		f.Detail = fmt.Sprintf("%d of maxclients %d are used", used, limit)
		f.Advice = "when all are, runs cannot begin: raise maxclients, or find out who has so many"
	}
	return f, true
}
