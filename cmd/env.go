package cmd

import (
	"strings"

	"github.com/spf13/pflag"
)

// variable is the environment variable that stands for a flag.
func variable(flag string) string {
	return "SIMBA_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// settle gives the flags named that were not given their values: from their
// variables, or else from the configuration, which may have some for this mutex.
// A variable that is set counts, also an empty one: an empty SIMBA_BACKEND must
// not silently mean the default.
func (a *app) settle(flags *pflag.FlagSet, f *backendFlags, mutex string, names ...string) error {
	return a.settleAll(flags, f, []string{mutex}, names...)
}

// settleAll is settle for a command that asks one backend about several mutexes:
// they must agree on it. Without any, it is that of the head of the configuration.
func (a *app) settleAll(flags *pflag.FlagSet, f *backendFlags, mutexes []string, names ...string) error {
	if err := a.fromEnv(flags, "config"); err != nil {
		return err
	}
	if _, inEnv := a.getenv(variable("config")); f.config == "" && (inEnv || flags.Changed("config")) {
		return usagef("--config names no file; /dev/null stands for no configuration")
	}
	conf, err := a.agreed(flags, f.config, mutexes)
	if err != nil {
		return err
	}
	for name, other := range exclusive {
		if _, given := a.given(flags, name); given {
			delete(conf.values, other)
		}
	}
	for _, name := range names {
		value, set := conf.values[name]
		flag := flags.Lookup(name)
		if !set || flag.Changed {
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			return badValue(conf.from[name]+": "+name, flag, value, err)
		}
	}
	if err := a.fromEnv(flags, names...); err != nil {
		return err
	}
	f.urlFrom = a.origin(flags, conf, backendKey)
	return f.findPassword(a, flags, conf)
}

// given is what a flag says, or else its variable, if there is one of them.
func (a *app) given(flags *pflag.FlagSet, name string) (string, bool) {
	switch flag := flags.Lookup(name); {
	case flag == nil:
		return "", false
	case flag.Changed:
		return flag.Value.String(), true
	}
	return a.getenv(variable(name))
}

// origin names what a value is from, for messages.
func (a *app) origin(flags *pflag.FlagSet, conf *config, name string) string {
	_, inEnv := a.getenv(variable(name))
	_, inConf := conf.values[name]
	switch {
	case flags.Changed(name) || !inEnv && !inConf:
		return "--" + name
	case inEnv:
		return "variable " + variable(name)
	}
	return conf.from[name] + ": " + name
}

// counting is what the configuration says about a mutex, without a password that
// does not count: where one is given otherwise, or where the configuration names a
// backend for it and another one is given.
func (a *app) counting(flags *pflag.FlagSet, file, mutex string) (*config, error) {
	conf, err := readConfig(file, mutex)
	if err != nil {
		return nil, err
	}
	url, given := a.given(flags, backendKey)
	if configured, named := conf.values[backendKey]; given && named && !sameBackend(url, configured) {
		conf.dropPassword()
	}
	_, inFile := a.given(flags, passwordFileKey)
	if _, inEnv := a.getenv(passwordVariable); inFile || inEnv {
		conf.dropPassword()
	}
	return conf, nil
}

// agreed is the configuration that counts for all of the mutexes. What is known
// about one backend would be wrong about a mutex that is kept in another one.
func (a *app) agreed(flags *pflag.FlagSet, file string, mutexes []string) (*config, error) {
	if len(mutexes) == 0 {
		mutexes = []string{""}
	}
	first, err := a.counting(flags, file, mutexes[0])
	if err != nil {
		return nil, err
	}
	_, given := a.given(flags, backendKey)
	for _, mutex := range mutexes[1:] {
		other, err := a.counting(flags, file, mutex)
		if err != nil {
			return nil, err
		}
		differs := func(key string) bool {
			v, set := first.values[key]
			w, also := other.values[key]
			return set != also || v != w
		}
		what := ""
		switch {
		case !given && differs(backendKey):
			what = "on different backends"
		case differs(passwordKey) || differs(passwordFileKey):
			what = "with different passwords of the backend"
		}
		if what != "" {
			return nil, usagef("%q and %q are configured %s: ask for one at a time", mutexes[0], mutex, what)
		}
		// The server is the same, so neither limit is wrong; none of them is for both.
		if differs(connectTimeoutKey) {
			head, err := readConfig(file, "")
			if err != nil {
				return nil, err
			}
			first.take(head, connectTimeoutKey)
		}
	}
	return first, nil
}

func (a *app) fromEnv(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		f := flags.Lookup(name)
		if f.Changed {
			continue
		}
		value, set := a.getenv(variable(name))
		if !set {
			continue
		}
		if err := f.Value.Set(value); err != nil {
			return badValue("variable "+variable(name), f, value, err)
		}
	}
	return nil
}

// findPassword looks for a password beside the URL: in the file that a flag names,
// in its variable, in the file that something else names, in the configuration.
func (f *backendFlags) findPassword(a *app, flags *pflag.FlagSet, conf *config) error {
	byFlag := flags.Changed(passwordFileKey) && f.passwordFile != ""
	if p, set := a.getenv(passwordVariable); set && !byFlag {
		f.password = p
		return nil
	}
	f.password = conf.values[passwordKey]
	if f.passwordFile == "" {
		return nil
	}
	from := a.origin(flags, conf, passwordFileKey)
	text, mode, err := readSmall(f.passwordFile)
	if err != nil {
		return usagef("%s: %w", from, err)
	}
	if mode&0o007 != 0 {
		return usagef("%s: the mode %#o of %s lets others at it: chmod o= %s", from, mode.Perm(), f.passwordFile, f.passwordFile)
	}
	f.password, _, _ = strings.Cut(string(text), "\n")
	f.password = strings.TrimSuffix(f.password, "\r")
	if f.password == "" {
		return usagef("%s: %s is empty", from, f.passwordFile)
	}
	return nil
}
