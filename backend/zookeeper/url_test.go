package zookeeper

import (
	"slices"
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	for _, c := range []struct {
		url, name, chroot, user, password string
		hosts                             []string
	}{
		{"zk://h", "zk://h:2181", "", "", "", []string{"h:2181"}},
		{"zk://A:1,b,[::1]:3,[fe80::1]/", "zk://a:1,b:2181,[::1]:3,[fe80::1]:2181", "", "", "", []string{"a:1", "b:2181", "[::1]:3", "[fe80::1]:2181"}},
		{"zk://h:1/a/b/", "zk://h:1/a/b", "/a/b", "", "", []string{"h:1"}},
		{"zk://u:s%40c@h/x?acl=read", "zk://u@h:2181/x?acl=read", "/x", "u", "s@c", []string{"h:2181"}},
		{"zk://u:a@b@h", "zk://u@h:2181", "", "u", "a@b", []string{"h:2181"}},
		{"zk://u@h?tls=true&server_name=x", "zk://u@h:2181?tls=true&server_name=x", "", "u", "", []string{"h:2181"}},
	} {
		s, err := parseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if s.name != c.name || s.chroot != c.chroot || s.user != c.user || s.password != c.password || !slices.Equal(s.hosts, c.hosts) {
			t.Errorf("%s: %+v", c.url, s)
		}
	}
}

func TestMalformedURLs(t *testing.T) {
	for _, url := range []string{
		"", "zk:", "zk://", "zk:///x", "http://u:hunter2@h", "zk://u:hunter2@", "zk://u:hunter2@h:0", "zk://u:hunter2@h:x",
		"zk://u:hunter2%zz@h", "zk://:hunter2@h", "zk://u:hunter2@h,,i", "zk://u:hunter2@h/a//b", "zk://u:hunter2@h/../b",
		"zk://u:hunter2@::1", "zk://u:hunter2@h/zookeeper", "zk://u:hunter2@h?x=hunter2", "zk://u:hunter2@h?tls=hunter2",
		"zk://u:hunter2@h?acl=hunter2", "zk://u:hunter2@h?ca=/x", "zk://u:hunter2@h?tls=true&cert=/x", "zk://u:hunter2@h#x",
		"zk://u:hunter2@h h", "zk://u:hunter2@h\x00", "zk://u:hunter2@h?tls=true&tls=true", "zk://u:hunter2/x@h", "zk://u%3Av:hunter2@h",
		"zk://h/%zz",
	} {
		b, err := Open(url, Options{})
		if err == nil {
			t.Errorf("%q is taken for %s", url, b.Name())
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	if _, err := Open("zk://h", Options{Password: "hunter2"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password without a user: %v", err)
	}
	b, err := Open("zk://u:other@h", Options{Password: "hunter2"})
	if err != nil || b.set.password != "hunter2" || b.Name() != "zk://u@h:2181" {
		t.Errorf("%+v, %v", b, err)
	}
}
