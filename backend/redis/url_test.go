package redis

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/backendtest"
)

func TestURLs(t *testing.T) {
	for raw, want := range map[string]struct {
		name  string
		hosts []string
	}{
		"redis://h":                  {"redis://h", []string{"h:6379"}},
		"REDIS://H:1/3":              {"redis://H:1/3", []string{"h:1"}},
		"redis://user:secret@h/0":    {"redis://user@h/0", []string{"h:6379"}},
		"redis://:secret@h":          {"redis://h", []string{"h:6379"}},
		"redis://:se%40cret@[::1]:7": {"redis://[::1]:7", []string{"[::1]:7"}},
		"redis://[::1]":              {"redis://[::1]", []string{"[::1]:6379"}},
		"redis://h?wait_replicas=2":  {"redis://h?wait_replicas=2", []string{"h:6379"}},
		"redis+sentinel://u:secret@a,b:1,[::1]/main/2?sentinel_password=secret&sentinel_user=x": {
			"redis+sentinel://u@a,b:1,[::1]/main/2?sentinel_user=x", []string{"a:26379", "b:1", "[::1]:26379"}},
		"redis+cluster://:secret@a:1,b": {"redis+cluster://a:1,b", []string{"a:1", "b:6379"}},
		"redis+unix:///run/redis.sock":  {"redis+unix:///run/redis.sock", []string{"/run/redis.sock"}},
		"redis://u:secret@/4?socket=/x": {"redis://u@/4?socket=%2Fx", []string{"/x"}},
		"rediss://h?server_name=other":  {"rediss://h?server_name=other", []string{"h:6379"}},
	} {
		s, err := parse(raw, "")
		if err != nil || s.name != want.name || !slices.Equal(s.hosts, want.hosts) {
			t.Errorf("%s: %q %v %v", raw, s.name, s.hosts, err)
		}
		if strings.Contains(raw, "secret") && !strings.Contains(s.login.password+s.sentinel.password, "secret") && s.login.password != "se@cret" {
			t.Errorf("%s: the password is %q", raw, s.login.password)
		}
		if again, err := parse(s.name, "other"); err != nil || again.name != s.name || again.login.password != "other" {
			t.Errorf("%s: read again: %q %v", raw, again.name, err)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	certs := backendtest.MakeCertificates(t)
	for _, raw := range []string{
		"", "redis:", "redis:h", "secret@h", "secret://h", "redis://", "redis://u:secret@", "redis://u:secret@h:x", "redis://u:secret@h:0",
		"redis://u:secret@h:99999", "redis://u:secret/x@h", "redis://u:se#cret@h", "redis://u:se%zzcret@h", "redis://h/secret", "redis://h/-1",
		"redis://h?secret=1", "redis://h?wait_replicas=secret", "redis://h?wait_replicas=1&wait_replicas=2", "redis://a,b",
		"redis+sentinel://u:secret@a", "redis+cluster://u:secret@a/1", "redis+unix://u:secret@h/x", "redis://u:secret@h?socket=/x",
		"redis://h?ca=/secret", "rediss://u:secret@h?ca=" + none, "rediss://u:secret@h?ca=" + certs.ServerKey,
		"rediss://u:secret@h?cert=" + certs.ClientCert, "rediss://u:secret@h?key=" + certs.ClientKey + "&cert=" + none,
		"redis://u:secret @h", "redis://[::1", "redis://u:secret@h:1:2",
	} {
		_, err := Open(t.Context(), raw, Options{Password: "secret"})
		if !errors.Is(err, ErrURL) {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: the error tells it: %v", raw, err)
		}
	}
}
