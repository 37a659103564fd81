package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// tried is the error of the first try at a URL.
func tried(t *testing.T, rawURL string) error {
	t.Helper()
	p := contender(t, open(t, rawURL), "m", "")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := p.Try(ctx, p.request())
	return err
}

func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	r := backendtest.StartRedis(t, backendtest.RedisOptions{ACL: "user default on >right ~* &* +@all\n" +
		"user other on >right ~other* &* +@all\nuser reader on >right ~* &* +@read\nuser idle on nopass ~* &* -@all\n"})
	c := backendtest.StartRedis(t, backendtest.RedisOptions{Cluster: true})
	certs, others := backendtest.MakeCertificates(t), backendtest.MakeCertificates(t)
	s := backendtest.StartRedis(t, backendtest.RedisOptions{TLS: &certs})
	with := func(ca, cert, key string) string {
		return "rediss://" + s.Addr + "?" + url.Values{"ca": {ca}, "cert": {cert}, "key": {key}}.Encode()
	}
	for rawURL, want := range map[string]string{
		"redis://" + r.Addr:                                "NOAUTH",
		"redis://:wrong@" + r.Addr:                         "WRONGPASS",
		"redis://nobody:right@" + r.Addr:                   "WRONGPASS",
		"redis://other:right@" + r.Addr:                    "NOPERM",
		"redis://reader:right@" + r.Addr:                   "NOPERM",
		"redis://idle:x@" + r.Addr:                         "NOPERM",
		"redis://:right@" + r.Addr + "/99":                 "DB index",
		"redis://" + c.Addr + "/1":                         "SELECT is not allowed",
		"rediss://" + s.Addr:                               "TLS",
		"rediss://" + r.Addr:                               "redis:// instead of rediss://",
		with(others.CA, certs.ClientCert, certs.ClientKey): "TLS",
	} {
		err := tried(t, rawURL)
		if !lease.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", rawURL, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "right") || strings.Contains(err.Error(), "wrong@")) {
			t.Errorf("the password is told: %v", err)
		}
	}
	// A certificate that the server refuses is told by an alert or a reset.
	for _, rawURL := range []string{with(certs.CA, "", ""), with(certs.CA, others.ClientCert, others.ClientKey)} {
		if err := tried(t, rawURL); err == nil {
			t.Errorf("%s: no error", rawURL)
		}
	}
	for _, rawURL := range []string{"redis://127.0.0.1:1", "redis://nosuch.invalid", "redis://" + c.Addr, "redis+unix:///nowhere/x",
		"redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", "redis+cluster://127.0.0.1:1,127.0.0.1:2"} {
		if err := tried(t, rawURL); err == nil || lease.IsPermanent(err) {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
	for _, rawURL := range []string{"redis://:right@" + r.Addr, with(certs.CA, certs.ClientCert, certs.ClientKey)} {
		if err := tried(t, rawURL); err != nil {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
}

// A server that has no room says so, and an outage is what it is.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	r := backendtest.StartRedis(t, backendtest.RedisOptions{Args: []string{"--maxclients", "2"}})
	for range 2 { // all there is, once the connection that saw it start has left
		eventually(t, "there is no room", func() bool {
			c, err := net.Dial("tcp", r.Addr)
			if err != nil {
				return false
			}
			t.Cleanup(func() { _ = c.Close() })
			answer := make([]byte, 7)
			_, _ = io.WriteString(c, "PING\r\n")
			_, err = io.ReadFull(c, answer)
			return err == nil && string(answer) == "+PONG\r\n"
		})
	}
	for range 20 {
		err := tried(t, "redis://"+r.Addr)
		if err == nil || lease.IsPermanent(err) || err.Error() != "ERR max number of clients reached" {
			t.Fatal(err)
		}
	}
}

// A socket and TLS carry what a plain connection does.
func TestOtherConnections(t *testing.T) {
	t.Parallel()
	certs := backendtest.MakeCertificates(t)
	q := url.Values{"ca": {certs.CA}, "cert": {certs.ClientCert}, "key": {certs.ClientKey}}.Encode()
	r, s := backendtest.StartRedis(t, backendtest.RedisOptions{}), backendtest.StartRedis(t, backendtest.RedisOptions{TLS: &certs})
	for _, rawURL := range []string{
		"redis+unix://" + r.Socket, "redis:///1?socket=" + r.Socket,
		"rediss://" + s.Addr + "?" + q, "rediss://" + strings.Replace(s.Addr, "127.0.0.1", "localhost", 1) + "/2?" + q,
	} {
		b := open(t, rawURL)
		owner, waiter := contender(t, b, "m", ""), contender(t, b, "m", "")
		owner.own()
		bells := waiter.wait()
		owner.release()
		bells.rings()
		waiter.own()
		if got, err := b.Inspect(t.Context(), "m"); err != nil || got.Owner != waiter.id {
			t.Errorf("%s: %+v, %v", rawURL, got, err)
		}
		bells.end()
		waiter.release()
	}
	for _, x := range []*backendtest.Redis{r, s} {
		// Of each backend one for calls and one that listens; the rest are ours.
		info := x.Text("INFO", "stats")
		if n := count(info, "total_connections_received") - count(x.Text("INFO", "commandstats"), "cmdstat_ping:calls") - 3; n > 4 {
			t.Errorf("%d connections", n)
		}
	}
}

func count(info, field string) int {
	_, rest, _ := strings.Cut(info, field)
	n := 0
	_, _ = fmt.Sscanf(strings.TrimLeft(rest, ":="), "%d", &n)
	return n
}

// replied is an error as the server answers it.
type replied string

func (r replied) Error() string { return string(r) }
func (replied) RedisError()     {}

func TestSortedErrors(t *testing.T) {
	for text, permanent := range map[string]bool{
		"READONLY You can't write against a read only replica. script: abc, on @user_script:5.":  false,
		"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -READONLY You": false,
		"ERR Error running script (call to f_1): @user_script:9: -WRONGTYPE Operation against":   true,
		"OOM command not allowed when used memory > 'maxmemory'.":                                false,
		"LOADING Redis is loading the dataset in memory":                                         false,
		"CLUSTERDOWN Hash slot not served":                                                       false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                false,
		"MISCONF Redis is configured to save RDB snapshots":                                      false,
		"NOREPLICAS Not enough good replicas to write.":                                          false,
		"BUSY Redis is busy running a script.":                                                   false,
		"ERR max number of clients reached":                                                      false,
		"DENIED Redis is running in protected mode":                                              true,
		"ERR Protocol error: unauthenticated multibulk length":                                   true,
		"NOPERM this user has no permissions to run the 'evalsha' command":                       true,
		"ERR unknown command `EVALSHA`, with args beginning with:":                               true,
	} {
		err := sorted(fmt.Errorf("failed: %w", replied(text)))
		if lease.IsPermanent(err) != permanent || strings.Contains(err.Error(), "script") && !strings.Contains(err.Error(), "running a script") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string]bool{"READONLY You": true, "LOADING x": true, "OOM x": false, "NOPERM x": false} {
		if deposed(replied(text)) != want {
			t.Error(text)
		}
	}
	if err := sorted(io.EOF); !errors.Is(err, io.EOF) || lease.IsPermanent(err) {
		t.Error(err)
	}
}

// Whatever right is missing: either it works, or nothing is left half done.
func TestEachMissingRight(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{ACL: "user default on nopass ~* &* +@all\nuser app on >x ~* &* +@all\n"})
	holder := contender(t, w.b, "held", "")
	holder.own()
	for _, command := range []string{"get", "pttl", "hgetall", "zrange", "time", "set", "hset", "hdel", "pexpire", "pexpireat",
		"zadd", "zrem", "publish", "pubsub", "evalsha", "eval", "del"} {
		w.r.Do("ACL", "SETUSER", "app", "+@all", "-"+command)
		w.r.Do("SCRIPT", "FLUSH")
		b := open(t, "redis://app:x@"+w.r.Addr)
		free, queued := contender(t, b, "free", ""), contender(t, b, "held", "")
		before := w.r.Number("ZCARD", queueKey("held"))
		_, err := free.Try(t.Context(), free.request())
		if err != nil {
			if !lease.IsPermanent(err) {
				t.Errorf("without %s: %v", command, err)
			}
			// SET is refused before anything is written; what follows is undone.
			is(t, contender(t, w.b, "free", "").try(), lease.Mine, w.r.Text("GET", ownerKey("free")))
		}
		if _, err := queued.Try(t.Context(), queued.request()); err != nil {
			if n := w.r.Number("ZCARD", queueKey("held")); n != before || w.r.Text("HGET", leaseKey("held"), "w:"+queued.id) != "" {
				t.Errorf("without %s: half a place in the queue", command)
			}
		}
		if err != nil && slicesOf("publish pubsub del zrem hdel", command) {
			t.Errorf("without %s: %v", command, err)
		}
		w.r.Do("DEL", ownerKey("free"), leaseKey("free"), queueKey("free"), queueKey("held"))
	}
}

// Replicas that may not be waited for: the acquisition does not count, and
// nothing of it stays.
func TestWaitRefused(t *testing.T) {
	w := newWorld(t, backendtest.RedisOptions{ACL: "user default on nopass ~* &* +@all\nuser app on >x ~* &* +@all -wait\n"})
	err := tried(t, "redis://app:x@"+w.r.Addr+"?wait_replicas=1")
	if !lease.IsPermanent(err) || !strings.Contains(err.Error(), "'wait'") {
		t.Errorf("%v", err)
	}
	w.contender("next").own()
}

func slicesOf(words, word string) bool { return strings.Contains(" "+words+" ", " "+word+" ") }
