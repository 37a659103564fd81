package redis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// examined are the findings about a server, each as "check: detail" or "check: detail
// -> advice".
func examined(t *testing.T, rawURL string) []string {
	t.Helper()
	findings, err := open(t, rawURL).Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range findings {
		line := f.Check + ": " + f.Detail
		if f.Advice != "" {
			line += " -> " + f.Advice
		}
		if f.Check == "" || f.Detail == "" || strings.ContainsAny(line, "\r\n") {
			t.Errorf("%+v", f)
		}
		lines = append(lines, line)
	}
	return lines
}

// found wants one finding that has all these parts in order; the last one tells what is
// advised, nothing if it is empty.
func found(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	advice := parts[len(parts)-1]
	for _, line := range lines {
		said, advised, _ := strings.Cut(line, " -> ")
		rest, all := said, true
		for _, part := range parts[:len(parts)-1] {
			var ok bool
			_, rest, ok = strings.Cut(rest, part)
			all = all && ok
		}
		if all && strings.Contains(advised, advice) && (advice != "" || advised == "") {
			return
		}
	}
	t.Errorf("none is %q:\n%s", parts, strings.Join(lines, "\n"))
}

// advised counts the findings with advice.
func advised(lines []string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, " -> ") {
			n++
		}
	}
	return n
}

func TestExamineAllRight(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{AOF: true})
	before := fingerprint(t, w.b)
	lines := examined(t, "redis://"+w.r.Addr)
	if advised(lines) != 0 || fingerprint(t, w.b) != before {
		t.Error(strings.Join(lines, "\n"))
	}
	for _, want := range [][]string{
		{"server: ", "a master", ""},
		{"eviction: ", "noeviction", ""},
		{"memory: ", "no limit", ""},
		{"persistence: ", "append-only file, appendfsync always", ""},
		{"replication: ", "no replicas", ""},
		{"cut-off master: ", ""},
		{"connections: ", ""},
		{"account: default", ""},
	} {
		found(t, lines, want...)
	}
	if len(lines) != 8 {
		t.Errorf("%d findings:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

func TestExamineEviction(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{AOF: true})
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "volatile-lru", "allkeys-random"} {
		w.r.Do("CONFIG", "SET", "maxmemory-policy", policy)
		w.r.Do("CONFIG", "SET", "maxmemory", "0")
		found(t, examined(t, "redis://"+w.r.Addr), "eviction: ", policy, "without a limit", "")
		w.r.Do("CONFIG", "SET", "maxmemory", "1gb")
		lines := examined(t, "redis://"+w.r.Addr)
		found(t, lines, "eviction: ", policy, "noeviction")
		if advised(lines) != 1 {
			t.Error(strings.Join(lines, "\n"))
		}
	}
	w.r.Do("CONFIG", "SET", "maxmemory", "1")
	w.r.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	found(t, examined(t, "redis://"+w.r.Addr), "memory: ", "% of maxmemory are used", "OOM")
	w.r.Do("CONFIG", "SET", "maxmemory", "1gb")
	found(t, examined(t, "redis://"+w.r.Addr), "memory: ", "less than 90 %", "")
}

func TestExamineKeysThatWereEvicted(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{AOF: true, Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	for i := range 50 {
		w.r.Do("SET", fmt.Sprint("k", i), "v")
	}
	w.r.Do("CONFIG", "SET", "maxmemory", "1")
	eventually(t, "nothing is evicted", func() bool { return w.r.Number("DBSIZE") == 0 })
	found(t, examined(t, "redis://"+w.r.Addr), "eviction: ", "allkeys-lru, 50 keys were evicted", "noeviction")
}

func TestExaminePersistence(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	look := func() []string { return examined(t, "redis://"+w.r.Addr) }
	found(t, look(), "persistence: ", "neither", "appendonly yes")
	w.r.Do("CONFIG", "SET", "save", "900 1 300 10")
	found(t, look(), "persistence: ", "snapshots only (save 900 1 300 10)", "appendonly yes")
	w.r.Do("CONFIG", "SET", "appendonly", "yes")
	for fsync, advice := range map[string]string{"everysec": "last second", "no": "30 s", "always": ""} {
		w.r.Do("CONFIG", "SET", "appendfsync", fsync)
		found(t, look(), "persistence: ", "append-only file, appendfsync "+fsync, advice)
	}
}

func TestExamineReplication(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{AOF: true})
	replica := backendtest.StartRedisReplica(t, w.r)
	eventually(t, "it is not online", func() bool { return strings.Contains(w.r.Text("INFO", "replication"), "state=online") })
	url := "redis://" + w.r.Addr
	lines := examined(t, url)
	found(t, lines, "replication: ", "1 replica, wait_replicas=0", "wait_replicas=1")
	found(t, lines, "cut-off master: ", "min-replicas-to-write 0", "min-replicas-to-write 1")
	lines = examined(t, url+"?wait_replicas=1")
	if advised(lines) != 0 {
		t.Error(strings.Join(lines, "\n"))
	}
	found(t, lines, "replication: ", "1 replica, wait_replicas=1", "")
	found(t, examined(t, url+"?wait_replicas=2"), "replication: ", "1 replica, wait_replicas=2", "nothing can be acquired")
	w.r.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	found(t, examined(t, url), "cut-off master: ", "min-replicas-to-write 1, min-replicas-max-lag 10", "")
	w.r.Do("CONFIG", "SET", "min-replicas-to-write", "2")
	found(t, examined(t, url), "cut-off master: ", "min-replicas-to-write 2", "1 replica", "NOREPLICAS")

	lines = examined(t, "redis://"+replica.Addr)
	found(t, lines, "server: ", "a replica of 127.0.0.1:"+fmt.Sprint(w.r.Port), "name its master")
}

func TestExamineConnections(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{AOF: true})
	for range 10 {
		contender(t, w.b, "m", "").hear()
	}
	w.r.Do("CONFIG", "SET", "maxclients", "12")
	found(t, examined(t, "redis://"+w.r.Addr), "connections: ", "of maxclients 12", "raise maxclients")
}

func TestExamineSentinels(t *testing.T) {
	t.Parallel()
	s := backendtest.StartRedisSentinels(t)
	lines := examined(t, "redis+sentinel://"+strings.Join(s.Addrs, ",")+"/main")
	found(t, lines, "server: ", "the master that the sentinels name", "")
	found(t, lines, "replication: ", "1 replica", "wait_replicas=1")
	found(t, examined(t, "redis://"+s.Addrs[0]), "server: ", "a sentinel", "redis+sentinel://")
}

func TestExamineClusters(t *testing.T) {
	t.Parallel()
	nodes := backendtest.StartRedisCluster(t, 3)
	nodes[1].Do("CONFIG", "SET", "appendonly", "yes")
	url := "redis+cluster://" + nodes[2].Addr
	lines := examined(t, url)
	found(t, lines, "server: all 3 masters: ", "one of 3 masters of a cluster", "")
	found(t, lines, "persistence: "+nodes[1].Addr+": append-only", "last second")
	found(t, lines, "persistence: ", nodes[0].Addr, nodes[2].Addr+": neither", "appendonly yes")
	found(t, examined(t, "redis://"+nodes[0].Addr), "server: ", "a node of a cluster", "redis+cluster://")

	alone := backendtest.StartRedis(t, backendtest.RedisOptions{AOF: true})
	lines = examined(t, "redis+cluster://"+alone.Addr)
	found(t, lines, "cluster: ", "belongs to none", "redis://")
	found(t, lines, "persistence: ", "always", "")
}

// An account that may not ask is told so, and gets answers to the rest.
func TestExamineRights(t *testing.T) {
	t.Parallel()
	r := backendtest.StartRedis(t, backendtest.RedisOptions{AOF: true, ACL: "user default on nopass ~* &* +@all\n" +
		"user app on nopass resetchannels ~simba:* -@all\n" +
		"user infos on nopass ~simba:* -@all +info +acl|whoami\n" +
		"user configs on nopass ~simba:* -@all +config|get +acl|whoami\n"})
	lines := examined(t, "redis://app:x@"+r.Addr)
	found(t, lines, "server: ", "cannot be asked: NOPERM", "ACL SETUSER NAME +info")
	found(t, lines, "settings: ", "cannot be asked: NOPERM", "ACL SETUSER NAME +config|get")
	if len(lines) != 2 {
		t.Error(strings.Join(lines, "\n"))
	}
	lines = examined(t, "redis://infos:x@"+r.Addr)
	found(t, lines, "settings: ", "cannot be asked: NOPERM", "ACL SETUSER infos +config|get")
	found(t, lines, "eviction: ", "noeviction", "")
	found(t, lines, "persistence: ", "append-only file", "")
	found(t, lines, "account: infos", "")
	lines = examined(t, "redis://configs:x@"+r.Addr)
	found(t, lines, "server: ", "cannot be asked: NOPERM", "ACL SETUSER configs +info")
	found(t, lines, "eviction: ", "noeviction", "")
	found(t, lines, "persistence: ", "append-only file, appendfsync always", "")

	cluster := backendtest.StartRedis(t, backendtest.RedisOptions{Cluster: true, ACL: "user default on nopass ~* &* +@all\n" +
		"user app on nopass ~simba:* -@all +info\n"})
	found(t, examined(t, "redis+cluster://app:x@"+cluster.Addr), "cluster: ", "NOPERM", "+cluster|slots")

	// Providers take commands away by another name.
	renamed := backendtest.StartRedis(t, backendtest.RedisOptions{AOF: true, Args: []string{"--rename-command", "CONFIG", ""}})
	lines = examined(t, "redis://"+renamed.Addr)
	found(t, lines, "settings: ", "cannot be asked: ERR unknown command", "CONFIG GET")
	found(t, lines, "persistence: ", "append-only file", "")
}

func TestExamineVersions(t *testing.T) {
	t.Parallel()
	for version, advice := range map[string]string{
		"4.0.14": "6.2 or newer", "6.0.20": "6.2 or newer", "6.2.0": "", "7.0.15": "", "10.1.0": "", "unknown": "",
	} {
		s := server{info: map[string]string{"redis_version": version, "role": "master"}}
		if f := s.itself(); !strings.Contains(f.Detail, version) || f.Advice != advice && !strings.Contains(f.Advice, advice) || (advice == "") != (f.Advice == "") {
			t.Errorf("%+v", f)
		}
	}
	s := server{info: map[string]string{"redis_version": "7.2.4", "valkey_version": "8.0.1", "role": "master"}}
	if f := s.itself(); f.Detail != "Valkey 8.0.1, as Redis 7.2.4, a master" || f.Advice != "" {
		t.Errorf("%+v", f)
	}
}

// A server that does not answer is an error.
func TestExamineNobody(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{})
	w.r.Kill()
	if f, err := w.b.Examine(t.Context()); err == nil || f != nil {
		t.Errorf("%+v, %v", f, err)
	}
	r := backendtest.StartRedis(t, backendtest.RedisOptions{ACL: "user default on >right ~* &* +@all\n"})
	if f, err := open(t, "redis://:wrong@"+r.Addr).Examine(t.Context()); !lease.IsPermanent(err) || f != nil {
		t.Errorf("%+v, %v", f, err)
	}
}
