package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// findings are those about a store, by what was looked at.
func findings(t *testing.T, url string) map[string]lease.Finding {
	t.Helper()
	b := open(t, url)
	found, err := b.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byCheck := map[string]lease.Finding{}
	for _, f := range found {
		if f.Check == "" || f.Detail == "" || byCheck[f.Check].Check != "" {
			t.Errorf("%+v", f)
		}
		byCheck[f.Check] = f
	}
	for _, check := range []string{
		"servers", "version", "ensemble", "session timeout", "tick", "durability", "connections", "rights", "rights of others",
	} {
		if byCheck[check].Check == "" {
			t.Errorf("%s is not looked at", check)
		}
	}
	return byCheck
}

// advised checks which findings say that something is to be done, and what.
func advised(t *testing.T, found map[string]lease.Finding, want map[string]string) {
	t.Helper()
	for check, f := range found {
		part, due := want[check]
		if due != (f.Advice != "") || !strings.Contains(f.Advice, part) {
			t.Errorf("%s: %q, advice %q; want %q", check, f.Detail, f.Advice, part)
		}
	}
}

// An ensemble of which nothing is to be said.
func TestExamineAllRight(t *testing.T) {
	t.Parallel()
	e := serveThree(t, backendtest.ZooKeeperOptions{Durable: true, Config: outspoken})
	var addrs []string
	for _, m := range e.Members {
		addrs = append(addrs, m.Addr)
	}
	url := "zk://ops:hunter2@" + strings.Join(addrs, ",") + "/app"
	advised(t, findings(t, url), nil) // nothing is there yet
	b := open(t, url)
	s := b.Session("m", lease.Contender{ID: "x"})
	defer func() { _ = s.Close() }()
	if a, err := s.Try(t.Context(), asking(0)); err != nil || a.State != lease.Mine {
		t.Fatal(a, err)
	}
	c := raw(t, addrs[0])
	before, _ := dump(c, "/")
	found := findings(t, url)
	advised(t, found, nil)
	if after, _ := dump(c, "/"); after != before {
		t.Errorf("it changed\n%s\nto\n%s", before, after)
	}
	for check, part := range map[string]string{
		"servers": "leader", "version": "3.", "ensemble": "voting members: 3", "session timeout": "16s granted",
		"durability": "waits for its disk", "connections": "no limit", "rights": "/app/simba: read, write, create, delete, admin",
		"rights of others": "/app/simba: none but",
	} {
		if !strings.Contains(found[check].Detail, part) {
			t.Errorf("%s: %q", check, found[check].Detail)
		}
	}
	// Not all of them are named.
	advised(t, findings(t, "zk://ops:hunter2@"+addrs[0]+"/app"), map[string]string{"ensemble": "name all 3"})
	// One of them is away.
	e.Members[0].Kill()
	advised(t, findings(t, url), map[string]string{"servers": "mend " + addrs[0]})
	// Two are: nobody gives a session, and nothing is known.
	e.Members[1].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	began := time.Now()
	if found, err := b.Examine(ctx); err == nil || lease.IsPermanent(err) || !strings.Contains(err.Error(), addrs[0]) {
		t.Errorf("%+v, %v", found, err)
	}
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Single servers, each with its fault.
func TestExamineFaults(t *testing.T) {
	const alone, mute = "run three", "4lw.commands.whitelist=" + words
	for name, c := range map[string]struct {
		options backendtest.ZooKeeperOptions
		advice  map[string]string
	}{
		"says little": {
			backendtest.ZooKeeperOptions{Durable: true},
			map[string]string{"tick": mute, "durability": mute, "connections": mute},
		},
		"forgets": {
			backendtest.ZooKeeperOptions{Config: outspoken},
			map[string]string{"durability": "forceSync=no"},
		},
		"grants less": {
			backendtest.ZooKeeperOptions{Durable: true, Config: outspoken, MaxSession: 5 * time.Second},
			map[string]string{"session timeout": "maxSessionTimeout=16000"},
		},
		"grants more": {
			backendtest.ZooKeeperOptions{Durable: true, Config: outspoken, MinSession: 30 * time.Second},
			map[string]string{"session timeout": "minSessionTimeout=16000"},
		},
		"less than two ticks": {
			backendtest.ZooKeeperOptions{Durable: true, Config: outspoken, MinSession: 100 * time.Millisecond},
			map[string]string{"tick": "minSessionTimeout=200"},
		},
		"full": {
			backendtest.ZooKeeperOptions{Durable: true, Config: append([]string{"maxClientCnxns=6"}, outspoken...)},
			map[string]string{"connections": "raise maxClientCnxns"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := backendtest.StartZooKeeper(t, c.options)
			if name == "full" {
				for range 3 { // with its own session and its question, five
					raw(t, z.Addr)
				}
			}
			c.advice["ensemble"] = alone
			advised(t, findings(t, "zk://"+z.Addr), c.advice)
		})
	}
}

// What the ACLs say of this user and of others.
func TestExamineRights(t *testing.T) {
	t.Parallel()
	z := backendtest.StartZooKeeper(t, backendtest.ZooKeeperOptions{Durable: true, Config: outspoken})
	admin := raw(t, z.Addr)
	ops := func(p int32) []zk.ACL { return zk.DigestACL(p, "ops", "hunter2") }
	with := func(user int32, others int32) []zk.ACL { return append(ops(user), zk.WorldACL(others)...) }
	for dir, acl := range map[string][]zk.ACL{
		"/ours": ops(zk.PermAll), "/readable": with(zk.PermAll, zk.PermRead), "/open": zk.WorldACL(zk.PermAll),
		"/mixed": with(zk.PermAll, zk.PermRead|zk.PermDelete), "/look": with(zk.PermRead, zk.PermRead),
		"/ip": append(ops(zk.PermRead), zk.ACL{Perms: zk.PermAll, Scheme: "ip", ID: "127.0.0.1"}),
	} {
		if _, err := admin.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		for _, tree := range []string{queues, states} {
			if _, err := admin.Create(dir+tree, nil, 0, acl); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := admin.Create("/closed", nil, 0, zk.DigestACL(zk.PermAll, "another", "one")); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Create("/shut", nil, 0, zk.WorldACL(zk.PermRead)); err != nil {
		t.Fatal(err)
	}
	const others = "rights of others"
	for _, c := range []struct {
		user, path string
		advice     map[string]string
	}{
		{"ops:hunter2@", "/ours", nil},
		{"ops:hunter2@", "/readable?acl=read", nil},
		{"ops:hunter2@", "/open?acl=open", nil},
		{"", "/open", nil},
		{"ops:hunter2@", "/open", map[string]string{others: "setAcl /open/simba"}},
		{"ops:hunter2@", "/mixed", map[string]string{others: "setAcl /mixed/simba"}},
		{"ops:hunter2@", "/look", map[string]string{"rights": "give this user read, create, delete"}},
		{"ops:wrong@", "/readable", map[string]string{"rights": "give this user"}},
		{"ops:wrong@", "/ours", map[string]string{"rights": "password"}},
		{"", "/ours", map[string]string{"rights": "password"}},
		{"ops:hunter2@", "/ip", nil},
		{"ops:hunter2@", "/ours/not/yet", nil},
		{"ops:hunter2@", "/closed/x", map[string]string{"rights": "password"}},
		{"ops:hunter2@", "/shut/x", map[string]string{"rights": "setAcl /shut: give this user create"}},
	} {
		found := findings(t, "zk://"+c.user+z.Addr+c.path)
		want := map[string]string{"ensemble": "run three"}
		for k, v := range c.advice {
			want[k] = v
		}
		t.Logf("%s%s: %s; %s", c.user, c.path, found["rights"].Detail, found[others].Detail)
		advised(t, found, want)
	}
}

// What only a larger ensemble shows.
func TestExamineMembers(t *testing.T) {
	t.Parallel()
	voters, observers := membersOf("server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888:observer;2181\nserver.3=c:1:2\nversion=0")
	if voters != 2 || observers != 1 {
		t.Errorf("%d voters, %d observers", voters, observers)
	}
	mode := func(m string) says { return says{fields: map[string]string{"Mode": m}} }
	f := examineServers([]*member{
		{addr: "a:1", cl: &client{}, srvr: mode("leader")}, {addr: "b:1", cl: &client{}, srvr: mode("observer")},
		{addr: "c:1", err: errors.New("no"), srvr: mode("read-only")},
	})
	for _, part := range []string{"leave b:1 out", "c:1 has no majority"} {
		if !strings.Contains(f.Advice, part) {
			t.Errorf("%+v", f)
		}
	}
	old := member{cl: &client{}, srvr: says{fields: map[string]string{"Zookeeper version": "3.4.14-4c25d48, built on 03/06/2019"}}}
	if f := examineVersion([]*member{&old}); f.Detail != "3.4.14" || f.Advice == "" {
		t.Errorf("%+v", f)
	}
	mute := member{cl: &client{}, srvr: says{err: errors.New("srvr is not in the list")}}
	if f := examineVersion([]*member{&mute}); !strings.Contains(f.Advice, words) {
		t.Errorf("%+v", f)
	}
	ask := func(syncs, writes string) says {
		return says{fields: map[string]string{"zk_cnt_fsynctime": syncs, "zk_cnt_sync_processor_queue_flush_time_ms": writes}}
	}
	for want, mntr := range map[string]says{
		"forceSync": ask("0", "7"), "doctor again": ask("0", "0"), "look that": {fields: map[string]string{}}, "let simba": mute.srvr,
	} {
		if f := examineDurability([]*member{{mntr: mntr}}); !strings.Contains(f.Advice, want) {
			t.Errorf("%+v", f)
		}
	}
	lines := says{text: " /10.0.0.1:45378[1](queued=0)\n /10.0.0.10:2[1](x)\n /10.0.0.1:3[0](y)\n /[0:0:0:0:0:0:0:1]:4[1](z)\n"}
	if n := lines.from("10.0.0.1"); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// An observer that is named.
func TestExamineObserver(t *testing.T) {
	t.Parallel()
	e := serveThree(t, backendtest.ZooKeeperOptions{Durable: true, Config: outspoken})
	data, _, err := raw(t, e.Members[e.Leader(t)].Addr).Get(configNode)
	if err != nil {
		t.Fatal(err)
	}
	self := fmt.Sprintf("server.9=127.0.0.1:%d:%d:observer", freePort(t), freePort(t))
	lines := []string{"peerType=observer", self}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "server.") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	o := startMember(t, 9, lines)
	found := findings(t, "zk://"+strings.Join([]string{e.Members[0].Addr, e.Members[1].Addr, e.Members[2].Addr, o}, ","))
	advised(t, found, map[string]string{"servers": "leave " + o + " out of the URL"})
}

// startMember is a further member of an ensemble.
func startMember(t *testing.T, id int, lines []string) (addr string) {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	lines = append(lines, "tickTime=100", "initLimit=50", "syncLimit=20", "maxSessionTimeout=60000", "maxClientCnxns=0", "dataDir="+dir,
		fmt.Sprint("clientPort=", port), "clientPortAddress=127.0.0.1", "admin.enableServer=false", outspoken[0])
	for name, text := range map[string]string{"myid": fmt.Sprint(id), "zoo.cfg": strings.Join(lines, "\n") + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := newDialer(tlsFiles{})
	serves := func() error {
		if s := d.ask(t.Context(), addr, "srvr"); s.fields["Mode"] == "" {
			return fmt.Errorf("%s, %w", s.text, s.err)
		}
		return nil
	}
	backendtest.StartServer(t, "default-jre-headless", serves, "java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Dzookeeper.jmx.log4j.disable=true", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"))
	return addr
}

// freePort is one that neither the kernel nor the servers of other tests are given.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(2000)
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Something that is no ZooKeeper, and nothing at all.
func TestExamineNobody(t *testing.T) {
	t.Parallel()
	silentPort, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silentPort.Close() }()
	for _, addr := range []string{silentPort.Addr().String(), "127.0.0.1:1"} {
		b := open(t, fmt.Sprintf("zk://%s", addr))
		began := time.Now()
		if found, err := b.Examine(t.Context()); err == nil || lease.IsPermanent(err) {
			t.Errorf("%s: %+v, %v", addr, found, err)
		}
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("%s: it took %v", addr, took)
		}
	}
}
