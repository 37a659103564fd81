package backendtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartRedisCluster starts a cluster of n masters that share the slots.
func StartRedisCluster(t testing.TB, n int) []*Redis {
	t.Helper()
	nodes := make([]*Redis, n)
	for i := range nodes {
		nodes[i] = StartRedis(t, RedisOptions{Cluster: true})
	}
	for i, r := range nodes {
		r.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*16384/n), strconv.Itoa((i+1)*16384/n-1))
		r.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i > 0 {
			bus := nodes[0].busPort()
			r.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(nodes[0].Port), bus)
		}
	}
	for _, r := range nodes {
		r.await("the cluster is not ready", func() bool {
			info := r.Text("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d", n)) &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", n))
		})
	}
	return nodes
}

func (r *Redis) busPort() string {
	for i, a := range r.argv {
		if a == "--cluster-port" {
			return r.argv[i+1]
		}
	}
	return ""
}

func (r *Redis) await(what string, ok func() bool) {
	r.t.Helper()
	err := Eventually(30*time.Second, func() error {
		if ok() {
			return nil
		}
		return errors.New(what)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// StartRedisReplica starts a replica and waits until it follows.
func StartRedisReplica(t testing.TB, of *Redis) *Redis {
	t.Helper()
	r := StartRedis(t, RedisOptions{Args: []string{
		"--replicaof", "127.0.0.1", strconv.Itoa(of.Port), "--repl-diskless-sync-delay", "0",
	}})
	r.await("the replica does not follow", func() bool {
		return strings.Contains(r.Text("INFO", "replication"), "master_link_status:up")
	})
	return r
}

// RedisSentinels watch over a master called "main" and its replica.
type RedisSentinels struct {
	Master, Replica *Redis
	Addrs           []string // of the sentinels
	sentinels       []*Redis
}

// StartRedisSentinels starts a master, a replica and three sentinels that agree
// within half a second that a master is down.
func StartRedisSentinels(t testing.TB) *RedisSentinels {
	t.Helper()
	s := &RedisSentinels{Master: StartRedis(t, RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0"}})}
	s.Replica = StartRedisReplica(t, s.Master)
	for range 3 {
		r := &Redis{Port: FreePort(t)}
		r.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port))
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		config := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n"+
			"sentinel monitor main 127.0.0.1 %d 2\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
			r.Port, filepath.Dir(file), s.Master.Port)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		r.Server = StartServer(t, "redis-sentinel", func() error {
			_, err := r.try("PING")
			return err
		}, "redis-sentinel", file)
		s.sentinels = append(s.sentinels, r)
		s.Addrs = append(s.Addrs, r.Addr)
	}
	for _, r := range s.sentinels {
		r.await("the sentinels do not know each other", func() bool {
			info := r.Text("INFO", "sentinel")
			return strings.Contains(info, "slaves=1,sentinels=3") && strings.Contains(info, "status=ok")
		})
	}
	return s
}

// AwaitFailover returns when all sentinels name the replica.
func (s *RedisSentinels) AwaitFailover() {
	for _, r := range s.sentinels {
		r.await("there is no failover", func() bool {
			addr, _ := r.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main").([]any)
			return len(addr) == 2 && addr[1] == strconv.Itoa(s.Replica.Port)
		})
	}
}
