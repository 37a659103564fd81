package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ErrURL: the URL does not name a Redis, or a file that it names cannot be used.
// No text of it contains a part of the URL that could hold a password.
var ErrURL = errors.New("not a Redis backend")

// Schemes are those that Open understands. The ones with rediss use TLS.
var Schemes = []string{
	"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "redis+unix",
}

type kind int

const (
	standalone kind = iota
	sentinel
	cluster
)

// settings are what a URL says.
type settings struct {
	name     string // the URL without passwords
	kind     kind
	network  string   // tcp or unix
	hosts    []string // host:port, or the path of the socket
	master   string   // as the sentinels know it
	login    login
	sentinel login
	db       int
	replicas int // wait_replicas
	tls      *tls.Config
}

type login struct{ user, password string }

// options that a URL may have after the question mark.
var options = []string{
	"ca", "cert", "key", "server_name", "wait_replicas", "socket", "sentinel_user", "sentinel_password",
}

// parse takes the hosts out first: package url knows only one.
func parse(raw, password string) (settings, error) {
	s := settings{network: "tcp"}
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || !slices.Contains(Schemes, scheme) {
		return s, fmt.Errorf("%w: it does not begin with one of %s", ErrURL, strings.Join(Schemes, "://, ")+"://")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@')
	u, err := url.Parse(scheme + "://" + authority[:at+1] + "host" + tail)
	if err != nil || u.Fragment != "" {
		return s, fmt.Errorf("%w: it is not a well-formed URL (in a password write @ as %%40, / as %%2F, ? as %%3F, # as %%23, %% as %%25)", ErrURL)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return s, fmt.Errorf("%w: its options are not well-formed", ErrURL)
	}
	for k, v := range q {
		if !slices.Contains(options, k) || len(v) != 1 {
			return s, fmt.Errorf("%w: an option is unknown or given twice; there are: %s", ErrURL, strings.Join(options, ", "))
		}
	}
	if err := s.place(scheme, authority[at+1:], u, q); err != nil {
		return s, err
	}
	if err := s.options(scheme, u, q, password); err != nil {
		return s, err
	}
	s.name = s.withoutPasswords(scheme, authority[at+1:], u, q)
	return s, nil
}

// place finds where the servers are and what is chosen there.
func (s *settings) place(scheme, hosts string, u *url.URL, q url.Values) error {
	port := "6379"
	path := strings.TrimPrefix(u.Path, "/")
	switch {
	case strings.HasSuffix(scheme, "+sentinel"):
		s.kind, port = sentinel, "26379"
		s.master, path, _ = strings.Cut(path, "/")
		if s.master == "" {
			return fmt.Errorf("%w: the name of the master is missing: %s://host1,host2/master", ErrURL, scheme)
		}
	case strings.HasSuffix(scheme, "+cluster"):
		s.kind = cluster
		if path != "" && path != "0" {
			return fmt.Errorf("%w: a cluster has no databases", ErrURL)
		}
	case scheme == "redis+unix":
		if hosts != "" || u.Path == "" {
			return fmt.Errorf("%w: a socket needs an absolute path: redis+unix:///path", ErrURL)
		}
		s.network, s.hosts = "unix", []string{u.Path}
		return nil
	}
	if path != "" {
		db, err := strconv.ParseUint(path, 10, 31)
		if err != nil {
			return fmt.Errorf("%w: the database is a number: %s://host/0", ErrURL, scheme)
		}
		s.db = int(db)
	}
	if socket := q.Get("socket"); socket != "" {
		if s.kind != standalone || hosts != "" || !strings.HasPrefix(socket, "/") {
			return fmt.Errorf("%w: a socket needs an absolute path and no host: %s:///0?socket=/path", ErrURL, scheme)
		}
		s.network, s.hosts = "unix", []string{socket}
		return nil
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := hostPort(host, port)
		if err != nil {
			return err
		}
		s.hosts = append(s.hosts, addr)
	}
	if s.kind == standalone && len(s.hosts) > 1 {
		return fmt.Errorf("%w: several hosts are for redis+sentinel:// and redis+cluster://", ErrURL)
	}
	return nil
}

func hostPort(host, port string) (string, error) {
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = strings.Trim(host, "[]")
	} else if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	} else if strings.Contains(host, ":") {
		host = "" // an IPv6 address without brackets, or worse
	}
	// Not shown: with an @ left out of the URL it may be a password.
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, " []%") {
		return "", fmt.Errorf("%w: a host is missing or not of the form host:port", ErrURL)
	}
	return net.JoinHostPort(strings.ToLower(host), port), nil
}

func (s *settings) options(scheme string, u *url.URL, q url.Values, password string) error {
	s.login.user = u.User.Username()
	s.login.password, _ = u.User.Password()
	if password != "" {
		s.login.password = password
	}
	s.sentinel = login{q.Get("sentinel_user"), q.Get("sentinel_password")}
	if n := q.Get("wait_replicas"); n != "" {
		replicas, err := strconv.ParseUint(n, 10, 8)
		if err != nil {
			return fmt.Errorf("%w: wait_replicas is a small number", ErrURL)
		}
		s.replicas = int(replicas)
	}
	files := q.Get("ca") != "" || q.Get("cert") != "" || q.Get("key") != "" || q.Get("server_name") != ""
	if !strings.HasPrefix(scheme, "rediss") {
		if files {
			return fmt.Errorf("%w: certificates are for rediss://", ErrURL)
		}
		return nil
	}
	var err error
	s.tls, err = tlsConfig(q.Get("ca"), q.Get("cert"), q.Get("key"), q.Get("server_name"))
	return err
}

func (s *settings) withoutPasswords(scheme, hosts string, u *url.URL, q url.Values) string {
	shown := url.URL{Scheme: scheme, Host: "host", Path: u.Path}
	q.Del("sentinel_password")
	shown.RawQuery = q.Encode()
	text := shown.String()
	if user := u.User.Username(); user != "" {
		hosts = url.User(user).String() + "@" + hosts
	}
	return strings.Replace(text, "://host", "://"+hosts, 1)
}
