package cmd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPasswordStaysWithItsBackend(t *testing.T) {
	dir := t.TempDir()
	head := writeFile(t, dir, "head.toml", `
backend = "redis://me@h"
password = "head"
[mutex.else]
backend = "redis://elsewhere"
[mutex.own]
backend = "redis://elsewhere"
password = "own"
[mutex.other]
password-file = "`+writeFile(t, dir, "other", "other\n")+`"
`)
	none := writeFile(t, dir, "none.toml", `password = "any"`)
	inFile := writeFile(t, dir, "infile.toml", `
backend = "redis://me@h"
password-file = "`+writeFile(t, dir, "pw", "filed\n")+`"
[mutex.plain]
password = "plain"
`)
	flagged := writeFile(t, dir, "flagged", "flagged\r\nmore")
	for _, test := range []struct {
		file, mutex string
		env         string // NAME=value …
		args        string
		want        string
	}{
		{head, "x", "", "", "head"},
		{head, "else", "", "", ""},
		{head, "own", "", "", "own"},
		{head, "other", "", "", "other"},
		{head, "x", "", "-b redis://me@elsewhere", ""},
		{head, "x", "", "-b redis://you@h", ""},
		{head, "x", "", "-b file:///x", ""},
		{head, "x", "", "-b redis://me:mine@h", ""},
		{head, "x", "", "-b nonsense", ""},
		{head, "x", "SIMBA_BACKEND=redis://elsewhere", "", ""},
		{head, "own", "SIMBA_BACKEND=redis://me@h", "", ""},
		// As it is given to a job: the same backend, in full.
		{head, "x", "SIMBA_BACKEND=" + backendName("redis://me@h"), "", "head"},
		{head, "x", "SIMBA_BACKEND=redis://elsewhere", "-b redis://me@h", "head"},
		{none, "x", "", "-b redis://h", "any"},
		{none, "x", "SIMBA_BACKEND=redis://h", "", "any"},
		{none, "x", "", "", "any"},
		{inFile, "x", "", "", "filed"},
		{inFile, "plain", "", "", "plain"},
		{inFile, "x", "SIMBA_BACKEND=redis://elsewhere", "", ""},
		{inFile, "x", "SIMBA_BACKEND_PASSWORD=env", "", "env"},
		{inFile, "x", "SIMBA_PASSWORD_FILE=" + flagged, "", "flagged"},
		{inFile, "x", "SIMBA_BACKEND_PASSWORD=env SIMBA_PASSWORD_FILE=" + flagged, "", "env"},
		{inFile, "x", "SIMBA_BACKEND_PASSWORD=env", "--password-file " + flagged, "flagged"},
		{head, "x", "SIMBA_BACKEND_PASSWORD=env SIMBA_PASSWORD_FILE=none", "-b redis://elsewhere --password-file " + flagged, "flagged"},
		{head, "x", "SIMBA_BACKEND_PASSWORD=env", "-b redis://elsewhere", "env"},
	} {
		env := map[string]string{"SIMBA_CONFIG": test.file}
		for _, kv := range strings.Fields(test.env) {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		a := &app{getenv: func(k string) (string, bool) { v, ok := env[k]; return v, ok }}
		var f backendFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(strings.Fields(test.args)); err != nil {
			t.Fatal(err)
		}
		name := strings.Join([]string{filepath.Base(test.file), test.mutex, test.env, test.args}, "; ")
		if err := a.settle(flags, &f, test.mutex, backendFlagNames...); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if f.password != test.want {
			t.Errorf("%s: password %q, not %q", name, f.password, test.want)
		}
	}
}

func TestPasswordStaysInItsFile(t *testing.T) {
	dir := t.TempDir()
	system := writeFile(t, dir, "system.toml", "backend = \"redis://h\"\npassword = \"system\"")
	for _, test := range []struct{ user, want string }{
		{`ttl = "20s"`, "system"},
		{`backend = "redis://elsewhere"`, ""},
		{"[mutex.x]\nbackend = \"redis://elsewhere\"", ""},
		{"[mutex.y]\nbackend = \"redis://elsewhere\"", "system"},
		{"backend = \"redis://elsewhere\"\npassword = \"user\"", "user"},
		{`password = "user"`, "user"},
	} {
		c := &config{values: map[string]string{}, from: map[string]string{}}
		if err := c.readAll([]string{system, writeFile(t, dir, "user.toml", test.user)}, "x"); err != nil {
			t.Fatal(err)
		}
		if got := c.values[passwordKey]; got != test.want {
			t.Errorf("%s: password %q, not %q", test.user, got, test.want)
		}
	}
}

// One layer may say both names of a setting, one of them as the opposite.
func TestLayerKeepsWhatItSays(t *testing.T) {
	path := writeFile(t, t.TempDir(), "c.toml", "no-wait = true\n[mutex.x]\nwait = \"5s\"\nno-wait = false")
	for range 20 { // the order of a map is another one each time
		c, err := readConfig(path, "x")
		if err != nil {
			t.Fatal(err)
		}
		if c.values["wait"] != "5s" || c.values["no-wait"] != "false" {
			t.Fatal(c.values)
		}
	}
}

func TestConfigurationThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for link, target := range map[string]string{
		"file/simba/config.toml": "none", "dir/simba": at("none"), "above": "none", "there/simba": at("whole"), "loop/simba": "simba",
	} {
		err := errors.Join(os.MkdirAll(filepath.Dir(at(link)), 0o700), os.Symlink(target, at(link)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("whole"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string]string{ // what is named; nothing: it is passed over
		"no/simba/config.toml":    "",
		"whole/config.toml":       "",
		"there/simba/config.toml": "", // through a link to a directory
		"file/simba/config.toml":  "file/simba/config.toml",
		"dir/simba/config.toml":   "dir/simba",
		"above/simba/config.toml": "above",
		"loop/simba/config.toml":  "loop/simba/config.toml",
	} {
		err := (&config{}).readAll([]string{at(name)}, "x")
		switch {
		case link == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case link != "" && (statusOf(err) != exitUsage || !strings.Contains(err.Error(), at(link))):
			t.Errorf("%s: %v, which is not about %s", name, err, link)
		}
	}
}

func TestHasPassword(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://me:pw@h":                                true,
		"redis://a@b:pw@h":                               true,
		"redis://:pw@h/0":                                true,
		"redis+sentinel://h/m?sentinel_password=pw":      true,
		"redis+sentinel://h/m?ca=x&sentinel%5Fpassword=": true,
		"redis+sentinel://h/m?sentinel_PASSWORD=pw#x":    true,
		"mysql://me@h/db?password=pw":                    true,
		"redis+sentinel://me@h:1/m?sentinel_user=me":     false,
		"redis://me@h:6379/0":                            false,
		"file:///a?b":                                    false,
		"file:///a:b@c":                                  false,
		"5":                                              false,
	} {
		if got := hasPassword(url); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}
