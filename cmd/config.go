package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/pelletier/go-toml/v2"

	"github.com/simba-lock/simba/lease"
)

// systemConfig is read first; the user's own file comes after it and wins.
const systemConfig = "/etc/simba/config.toml"

// configKeys are what a configuration file may set, in its head for all mutexes
// or in a section [mutex."NAME"].
var configKeys = slices.Concat([]string{passwordKey}, runVariables, ofSchedule)

const (
	backendKey        = "backend"
	connectTimeoutKey = "connect-timeout"
	passwordKey       = "password"
	passwordFileKey   = "password-file"
	mutexSections     = "mutex"
)

// config is what the files say about one mutex, as text by the name of a flag.
type config struct {
	values map[string]string
	from   map[string]string // the file, and the section in it, for messages
}

// readConfig reads the file named (/dev/null for none), or else those of the system and of the user,
// as far as they exist. A file that is there and cannot be read is an error:
// without it simba might use another backend than it should.
func readConfig(named, mutex string) (*config, error) {
	c := &config{values: map[string]string{}, from: map[string]string{}}
	if named != "" {
		return c, c.read(named, mutex)
	}
	paths := []string{systemConfig}
	// By the user database, as it says for cron jobs too.
	if u, err := user.Current(); err == nil && filepath.IsAbs(u.HomeDir) {
		paths = append(paths, filepath.Join(u.HomeDir, ".config/simba/config.toml"))
	}
	return c, c.readAll(paths, mutex)
}

func (c *config) readAll(paths []string, mutex string) error {
	for _, path := range paths {
		err := c.read(path, mutex)
		if errors.Is(err, fs.ErrNotExist) {
			err = absent(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// absent makes sure that a file is not there. A symbolic link on the way to it that
// leads nowhere says that somebody wanted one to be, perhaps on a disk that is not
// mounted.
func absent(path string) error {
	for ; ; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path):
			continue
		case err != nil:
			return usagef("configuration: %w", err)
		case info.Mode()&fs.ModeSymlink == 0:
			return nil
		}
		if _, err = os.Stat(path); err != nil {
			return usagef("configuration: the symbolic link %s leads nowhere: %w", path, err)
		}
		return nil
	}
}

func (c *config) read(path, mutex string) error {
	if path == os.DevNull {
		return nil
	}
	text, mode, err := readSmall(path)
	if err != nil {
		return &usageError{err: fmt.Errorf("configuration: %w", err)}
	}
	if mode&0o002 != 0 {
		return usagef("configuration %s: its mode %#o lets anybody change it: chmod o-w %s", path, mode.Perm(), path)
	}
	if err := c.parse(path, text, mode, mutex); err != nil {
		return usagef("configuration %s: %w", path, err)
	}
	return nil
}

func (c *config) parse(path string, text []byte, mode fs.FileMode, mutex string) error {
	var head map[string]any
	if err := toml.Unmarshal(text, &head); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, _ := at.Position()
			return fmt.Errorf("line %d: %w", row, err)
		}
		return err
	}
	sections := head[mutexSections]
	delete(head, mutexSections)
	from := "configuration " + path
	secret, err := c.layer(from, head, true)
	if err != nil {
		return err
	}
	byName, ok := sections.(map[string]any)
	if sections != nil && !ok {
		return fmt.Errorf("%s is a table of sections, as in [%s.\"nightly-job\"]", mutexSections, mutexSections)
	}
	for name, section := range byName {
		if err := lease.CheckName(name); err != nil {
			return err
		}
		values, ok := section.(map[string]any)
		if !ok {
			return fmt.Errorf("%s.%s is no section, as in [%s.%q]", mutexSections, name, mutexSections, name)
		}
		title := fmt.Sprintf("[%s.%q]", mutexSections, name)
		s, err := c.layer(from+": "+title, values, name == mutex)
		if err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
		secret = secret || s
	}
	if secret && mode&0o007 != 0 {
		return fmt.Errorf("it holds a password, and its mode %#o lets others at it: chmod o= %s", mode.Perm(), path)
	}
	return nil
}

// layer checks the settings of a section and, if it counts, puts them over what
// was there. It tells whether there is a password among them.
func (c *config) layer(from string, values map[string]any, counts bool) (secret bool, err error) {
	if values["wait"] != nil && values["no-wait"] == true {
		return false, errors.New("wait and no-wait exclude each other")
	}
	if counts {
		c.override(values)
	}
	for key, value := range values {
		if !slices.Contains(configKeys, key) {
			return false, fmt.Errorf("unknown key %q", key)
		}
		text, err := configText(value)
		if err != nil {
			return false, fmt.Errorf("%s: %w", key, err)
		}
		secret = secret || key == passwordKey || key == backendKey && hasPassword(text)
		if counts {
			c.values[key], c.from[key] = text, from
		}
	}
	return secret, nil
}

// override drops what does not outlive a layer that comes over it: the other name
// of a setting that it has, and the password if it names a backend or a password
// itself. A password must not reach a server that it was not written for.
func (c *config) override(values map[string]any) {
	for key := range values {
		if other, ok := exclusive[key]; ok {
			delete(c.values, other)
		}
		if key == backendKey || key == passwordKey || key == passwordFileKey {
			c.dropPassword()
		}
	}
}

// take makes a setting what it is in another configuration.
func (c *config) take(other *config, key string) {
	delete(c.values, key)
	if value, set := other.values[key]; set {
		c.values[key], c.from[key] = value, other.from[key]
	}
}

func (c *config) dropPassword() {
	delete(c.values, passwordKey)
	delete(c.values, passwordFileKey)
}

// exclusive are two names of one setting: the later one replaces the other.
var exclusive = map[string]string{"wait": "no-wait", "no-wait": "wait", "every": "cron", "cron": "every"}

func configText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	return "", errors.New("a text, a number or true or false is allowed")
}
