package zookeeper

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
)

const defaultPort = "2181"

// settings is what a URL says. Package url does not take a list of hosts with
// ports, so it is taken apart here; no error quotes any of it, since the part
// that is wrong may be the password.
type settings struct {
	name     string
	hosts    []string // host:port
	chroot   string   // empty or /path
	user     string
	password string
	tls      tlsFiles
	open     bool // nodes are made for everybody, though there is a user
	readable bool // nodes may be read by everybody
}

func parseURL(raw string) (*settings, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme != "zk" {
		return nil, errors.New("it does not begin with zk://")
	}
	if strings.ContainsFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return nil, errors.New("it contains a space or a control character")
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	if fragment != "" {
		return nil, errors.New("write # as %23")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, chroot, _ := strings.Cut(rest, "/")

	s := &settings{}
	steps := []func() error{
		func() error { return s.parseAuthority(authority) },
		func() error { return s.parseChroot(chroot) },
		func() error { return s.parseQuery(query) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	s.name = s.format(query)
	return s, nil
}

// format is the URL without its password. Equal stores have equal names as far
// as their URLs tell.
func (s *settings) format(query string) string {
	name := "zk://"
	if s.user != "" {
		name += url.User(s.user).String() + "@"
	}
	name += strings.Join(s.hosts, ",")
	if s.chroot != "" {
		name += (&url.URL{Path: s.chroot}).EscapedPath()
	}
	if query != "" {
		name += "?" + query
	}
	return name
}

func (s *settings) parseAuthority(a string) error {
	if i := strings.LastIndexByte(a, '@'); i >= 0 {
		user, password, _ := strings.Cut(a[:i], ":")
		var err1, err2 error
		s.user, err1 = url.PathUnescape(user)
		s.password, err2 = url.PathUnescape(password)
		a = a[i+1:]
		switch {
		case err1 != nil || err2 != nil:
			return errors.New("user or password are badly escaped: write a % as %25")
		case s.user == "" || strings.Contains(s.user, ":"):
			return errors.New("the user is empty or contains a colon")
		}
	}
	if a == "" {
		return errors.New("it names no host")
	}
	for _, h := range strings.Split(a, ",") {
		host, err := parseHost(h)
		if err != nil {
			return err
		}
		s.hosts = append(s.hosts, host)
	}
	return nil
}

func parseHost(h string) (string, error) {
	host, port, err := net.SplitHostPort(h)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(h, "["), "]"), defaultPort
		if strings.Contains(host, ":") && !strings.HasPrefix(h, "[") {
			return "", errors.New("a host is not host:port; IPv6 addresses go in brackets")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("a port is not a number from 1 to 65535")
	}
	if host == "" || strings.ContainsAny(host, `[]@"%\`) {
		return "", errors.New("a host name is empty or malformed")
	}
	return net.JoinHostPort(strings.ToLower(host), port), nil
}

func (s *settings) parseChroot(c string) error {
	c, err := url.PathUnescape(c)
	if err != nil {
		return errors.New("the path is badly escaped: write a % as %25")
	}
	if c = strings.Trim(c, "/"); c == "" {
		return nil
	}
	s.chroot = "/" + c
	if path.Clean(s.chroot) != s.chroot || strings.ContainsFunc(c, unicode.IsControl) {
		return errors.New("the path contains empty, . or .. elements or control characters")
	}
	if c == "zookeeper" || strings.HasPrefix(c, "zookeeper/") {
		return errors.New("/zookeeper belongs to the server")
	}
	return nil
}

func (s *settings) parseQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the options after ? are badly escaped")
	}
	for key, v := range values {
		if len(v) != 1 {
			return fmt.Errorf("option %q is given more than once", key)
		}
		if err := s.option(key, v[0]); err != nil {
			return err
		}
	}
	return s.tls.check()
}

func (s *settings) option(key, value string) error {
	switch key {
	case "tls":
		switch value {
		case "true":
			s.tls.on = true
		case "skip-verify":
			s.tls.on, s.tls.skipVerify = true, true
		case "false":
		default:
			return errors.New("tls is true, skip-verify or false")
		}
	case "ca":
		s.tls.ca = value
	case "cert":
		s.tls.cert = value
	case "key":
		s.tls.key = value
	case "server_name":
		s.tls.serverName = value
	case "acl":
		switch value {
		case "open":
			s.open = true
		case "read":
			s.readable = true
		case "creator":
		default:
			return errors.New("acl is creator, read (by everybody) or open")
		}
	default:
		return errors.New("there are the options tls, ca, cert, key, server_name and acl; one given is another")
	}
	return nil
}
