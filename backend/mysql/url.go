package mysql

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// ErrURL: the URL does not name a database. No text of it contains a part of the
// URL that could hold a password.
var ErrURL = errors.New("not a MySQL backend")

const defaultPort = "3306"

// settings are what a URL says.
type settings struct {
	name           string // the URL without its password
	user, password string
	network, addr  string
	database       string
	tls            string // empty, true, preferred or skip-verify
	ca, cert, key  string // files
	serverName     string
	deaf           bool // doorbell=off
}

var options = []string{"ca", "cert", "doorbell", "key", "server_name", "socket", "tls"}

func parse(raw string) (settings, error) {
	var s settings
	fail := func(format string, v ...any) (settings, error) {
		return settings{}, fmt.Errorf("%w: "+format, append([]any{ErrURL}, v...)...)
	}
	if !strings.HasPrefix(strings.ToLower(raw), "mysql://") {
		return fail("it does not begin with mysql://")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Fragment != "" || u.Opaque != "" {
		return fail("it is not a well-formed URL (in a password write @ as %%40, / as %%2F, ? as %%3F, # as %%23, %% as %%25)")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fail("its options are not well-formed")
	}
	for k, v := range q {
		if !slices.Contains(options, k) || len(v) != 1 {
			return fail("an option is unknown or given twice; there are: %s", strings.Join(options, ", "))
		}
	}
	s.user = u.User.Username()
	s.password, _ = u.User.Password()
	s.database = strings.TrimPrefix(u.Path, "/")
	if s.database == "" || len(s.database) > 64 || strings.ContainsAny(s.database, "/\\") || strings.ContainsFunc(s.database, unicode.IsControl) {
		return fail("it needs the name of one database: mysql://user@host/database")
	}
	if err := s.place(u, q.Get("socket")); err != nil {
		return settings{}, err
	}
	if err := s.encryption(q); err != nil {
		return settings{}, err
	}
	switch q.Get("doorbell") {
	case "", "on":
	case "off":
		s.deaf = true
	default:
		return fail("doorbell is on or off")
	}
	s.name = s.format(q)
	return s, nil
}

func (s *settings) place(u *url.URL, socket string) error {
	if socket != "" {
		if u.Host != "" || !strings.HasPrefix(socket, "/") {
			return fmt.Errorf("%w: a socket is an absolute path and goes without a host: mysql://user@/database?socket=/path", ErrURL)
		}
		s.network, s.addr = "unix", socket
		return nil
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if host == "" {
		return fmt.Errorf("%w: it has neither a host nor a socket", ErrURL)
	}
	if port == "" {
		port = defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%w: the port is a number from 1 to 65535", ErrURL)
	}
	s.network, s.addr = "tcp", net.JoinHostPort(host, port)
	return nil
}

func (s *settings) encryption(q url.Values) error {
	s.ca, s.cert, s.key, s.serverName = q.Get("ca"), q.Get("cert"), q.Get("key"), q.Get("server_name")
	s.tls = q.Get("tls")
	more := s.ca != "" || s.cert != "" || s.key != "" || s.serverName != ""
	switch s.tls {
	case "", "false":
		s.tls = ""
		if more {
			return fmt.Errorf("%w: ca, cert, key and server_name need tls=true", ErrURL)
		}
	case "true", "skip-verify", "preferred":
	default:
		return fmt.Errorf("%w: tls is true, skip-verify, preferred or false", ErrURL)
	}
	if (s.cert == "") != (s.key == "") {
		return fmt.Errorf("%w: cert and key go together", ErrURL)
	}
	return nil
}

// format makes equal URLs of equal places as far as can be told from them.
func (s *settings) format(q url.Values) string {
	u := url.URL{Scheme: "mysql", Path: "/" + s.database}
	if s.network == "tcp" {
		u.Host = s.addr
	}
	if s.user != "" {
		u.User = url.User(s.user)
	}
	for k, v := range q {
		if v[0] == "" || k == "doorbell" && !s.deaf || k == "tls" && s.tls == "" {
			q.Del(k)
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}
