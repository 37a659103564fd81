package mysql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/simba-lock/simba/backend/mysql"
)

func TestURL(t *testing.T) {
	t.Parallel()
	for raw, name := range map[string]string{
		"mysql://u:pa@Host/db":                               "mysql://u@host:3306/db",
		"MYSQL://u:pa%40s@127.0.0.1:13306/db?doorbell=on":    "mysql://u@127.0.0.1:13306/db",
		"mysql://u@[::1]/db?tls=false":                       "mysql://u@[::1]:3306/db",
		"mysql://u:pa@/db?socket=/run/s":                     "mysql://u@/db?socket=%2Frun%2Fs",
		"mysql:///db?socket=/run/s&doorbell=off":             "mysql:///db?doorbell=off&socket=%2Frun%2Fs",
		"mysql://h/db?tls=true&ca=/c.pem&server_name=a.test": "mysql://h:3306/db?ca=%2Fc.pem&server_name=a.test&tls=true",
	} {
		b, err := mysql.Open(raw, mysql.Options{Password: "pa"})
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if b.Name() != name {
			t.Errorf("%s: %s, not %s", raw, b.Name(), name)
		}
		again, err := mysql.Open(name, mysql.Options{})
		if err != nil || again.Name() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, raw := range []string{
		"", "mysql:", "mysql://", "mysql://u:secret@h", "mysql://u:secret@h/", "mysql://u:sec%zzret@h/db", "mysql://u:secret@h:x/db",
		"mysql://u:secret@h:0/db", "mysql://u:sec#ret@h/db", "mysql://u:sec/ret@h/db", "mysql://u:secret@h/db?tls=maybe",
		"mysql://u:secret@h/db?socket=/s", "mysql://u:secret@/db", "mysql://u:secret@/db?socket=s", "mysql://u:secret@h/db?what=secret",
		"mysql://u:secret@h/db?ca=/x", "mysql://u:secret@h/db?tls=true&cert=/x", "mysql://u:secret@h/a/b", "mysql://u:sec\x00ret@h/db",
		"mysql://u:secret@h/db?doorbell=secret", "redis://u:secret@h/db", "mysql://u:secret@h/db?tls=true&tls=true",
	} {
		b, err := mysql.Open(raw, mysql.Options{})
		if !errors.Is(err, mysql.ErrURL) {
			t.Errorf("%q: %v, %v", raw, b, err)
			continue
		}
		for _, part := range []string{"secret", "sec", "ret@"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%q is told: %v", raw, err)
			}
		}
	}
}
