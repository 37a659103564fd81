package backendtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ZooKeeperOptions are how a private ZooKeeper differs from a plain one.
type ZooKeeperOptions struct {
	Tick       time.Duration // 100ms if zero; sessions last 2 to 20 ticks by default
	MinSession time.Duration
	MaxSession time.Duration
	Config     []string // further lines of the configuration
	Durable    bool     // it waits for the disk, as a real one does
}

// ZooKeeper is a private server.
type ZooKeeper struct {
	*Server
	Addr string
	data string
}

const zkJar = "/usr/share/java/zookeeper.jar"

// StartZooKeeper starts a server that is alone. It ends with the test; its data
// outlives Kill and Restart.
func StartZooKeeper(t testing.TB, o ZooKeeperOptions) *ZooKeeper {
	t.Helper()
	z := &ZooKeeper{data: t.TempDir()}
	z.start(t, o, z.configure(t, o, nil), func() error {
		_, err := z.Mode()
		return err
	})
	return z
}

// configure writes the configuration of one server.
func (z *ZooKeeper) configure(t testing.TB, o ZooKeeperOptions, members []string) (file string) {
	t.Helper()
	port := reservePort(t)
	z.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if o.Tick == 0 {
		o.Tick = 100 * time.Millisecond
	}
	limit := func(name string, d time.Duration) string {
		return fmt.Sprintf("%s=%d", name, max(2, d/o.Tick))
	}
	lines := []string{
		"tickTime=" + millis(o.Tick), limit("initLimit", 5*time.Second), limit("syncLimit", 2*time.Second), "maxClientCnxns=0",
		"dataDir=" + z.data, "clientPort=" + strconv.Itoa(port), "clientPortAddress=127.0.0.1",
		"admin.enableServer=false", "4lw.commands.whitelist=srvr,ruok",
	}
	if o.MinSession > 0 {
		lines = append(lines, "minSessionTimeout="+millis(o.MinSession))
	}
	// Twenty ticks would be too short for tests on a loaded host.
	if o.MaxSession == 0 {
		o.MaxSession = time.Minute
	}
	lines = append(lines, "maxSessionTimeout="+millis(o.MaxSession))
	lines = append(append(lines, o.Config...), members...)
	file = filepath.Join(z.data, "zoo.cfg")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Ports below those that the kernel gives away by itself (32768 and up on Linux).
const firstPort, lastPort = 12000, 32000

// reservePort is a port for a server that takes its time to listen, and that may
// be away for a while: what [FreePort] finds could be given to any connection
// meanwhile, and a member whose port is taken never joins its ensemble. So it is
// one that the kernel gives to nobody, and an abstract socket of its name, which
// ends with the process, keeps it from other tests.
func reservePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		sign, err := net.Listen("unix", fmt.Sprintf("@backendtest-port-%d", port))
		if err != nil {
			continue
		}
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			_ = sign.Close()
			continue
		}
		_ = ln.Close()
		t.Cleanup(func() { _ = sign.Close() })
		return port
	}
	t.Fatal("no port is free")
	return 0
}

// start runs the server's class itself: the scripts of the package change users
// and log to /var.
func (z *ZooKeeper) start(t testing.TB, o ZooKeeperOptions, config string, ready func() error) {
	t.Helper()
	if _, err := os.Stat(zkJar); err != nil {
		t.Fatalf("%s is missing: apt-get install zookeeper", zkJar)
	}
	argv := []string{
		"java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData",
		"-Dzookeeper.forceSync=" + map[bool]string{true: "yes", false: "no"}[o.Durable],
		"-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.extendedTypesEnabled=false",
		"-cp", zkJar + ":/usr/share/java/slf4j-nop.jar",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
	}
	z.Server = StartServer(t, "default-jre-headless", ready, argv...)
}

// Mode is leader, follower or standalone, as the server says.
func (z *ZooKeeper) Mode() (string, error) {
	text, err := z.ask("srvr")
	if err != nil {
		return "", err
	}
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		if mode, ok := strings.CutPrefix(sc.Text(), "Mode: "); ok {
			return mode, nil
		}
	}
	return "", fmt.Errorf("it serves nobody yet: %q", text)
}

func (z *ZooKeeper) ask(word string) (string, error) {
	c, err := net.DialTimeout("tcp", z.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(c)
	return string(text), err
}

// Wipe empties a server that is not running: it comes back without its data.
func (z *ZooKeeper) Wipe(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(z.data, "version-2")); err != nil {
		t.Fatal(err)
	}
}

// ZooKeeperEnsemble is servers that elect a leader.
type ZooKeeperEnsemble struct {
	Members []*ZooKeeper
	// Links are relays: Links[i][j] carries what member i, as a follower, says to
	// member j, as its leader.
	Links []map[int]*Relay
}

// StartZooKeeperEnsemble starts n servers and waits for their leader.
func StartZooKeeperEnsemble(t testing.TB, n int, o ZooKeeperOptions) *ZooKeeperEnsemble {
	t.Helper()
	e := &ZooKeeperEnsemble{Links: make([]map[int]*Relay, n)}
	quorum, election := make([]int, n), make([]int, n)
	for i := range n {
		quorum[i], election[i] = reservePort(t), reservePort(t)
	}
	type start struct {
		z      *ZooKeeper
		config string
	}
	var starts []start
	for i := range n {
		z := &ZooKeeper{data: t.TempDir()}
		e.Links[i] = map[int]*Relay{}
		var members []string
		for j := range n {
			port := quorum[j]
			if j != i {
				r := StartRelay(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(quorum[j])))
				e.Links[i][j] = r
				_, p, _ := net.SplitHostPort(r.Addr)
				port, _ = strconv.Atoi(p)
			}
			members = append(members, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", j+1, port, election[j]))
		}
		if err := os.WriteFile(filepath.Join(z.data, "myid"), []byte(strconv.Itoa(i+1)), 0o600); err != nil {
			t.Fatal(err)
		}
		starts = append(starts, start{z, z.configure(t, o, members)})
		e.Members = append(e.Members, z)
	}
	for _, s := range starts {
		// None is ready before there is a majority.
		s.z.start(t, o, s.config, func() error { return nil })
	}
	e.Settle(t)
	return e
}

// Settle waits until each running member has its place.
func (e *ZooKeeperEnsemble) Settle(t testing.TB) {
	t.Helper()
	err := Eventually(30*time.Second, func() error {
		leaders := 0
		for _, z := range e.Members {
			if z.Pid() == 0 {
				continue
			}
			mode, err := z.Mode()
			if err != nil {
				return err
			}
			if mode == "leader" {
				leaders++
			}
		}
		if leaders != 1 {
			return errors.New("there is no leader")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Leader is the index of the leader.
func (e *ZooKeeperEnsemble) Leader(t testing.TB) int {
	t.Helper()
	for i, z := range e.Members {
		if mode, err := z.Mode(); err == nil && mode == "leader" {
			return i
		}
	}
	t.Fatal("there is no leader")
	return -1
}

// Followers are the indexes of the others.
func (e *ZooKeeperEnsemble) Followers(t testing.TB) []int {
	t.Helper()
	leader := e.Leader(t)
	var f []int
	for i := range e.Members {
		if i != leader {
			f = append(f, i)
		}
	}
	return f
}
