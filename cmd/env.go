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
	if err := a.fromEnv(flags, "config"); err != nil {
		return err
	}
	if _, inEnv := a.getenv(variable("config")); f.config == "" && (inEnv || flags.Changed("config")) {
		return usagef("--config names no file; /dev/null stands for no configuration")
	}
	conf, err := readConfig(f.config, mutex)
	if err != nil {
		return err
	}
	for name, other := range exclusive {
		_, inEnv := a.getenv(variable(name))
		if given := flags.Lookup(name); given != nil && (given.Changed || inEnv) {
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
			return badValue("configuration "+conf.from[name]+": "+name, flag, value, err)
		}
	}
	if err := a.fromEnv(flags, names...); err != nil {
		return err
	}
	return f.findPassword(a, conf)
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

// findPassword looks for a password beside the URL: in its variable, in the file
// named, in the configuration.
func (f *backendFlags) findPassword(a *app, conf *config) error {
	if p, set := a.getenv(passwordVariable); set {
		f.password = p
		return nil
	}
	f.password = conf.values[passwordKey]
	if f.passwordFile == "" {
		return nil
	}
	text, mode, err := readSmall(f.passwordFile)
	if err != nil {
		return usagef("--password-file: %w", err)
	}
	if mode&0o007 != 0 {
		return usagef("--password-file: the mode %#o of %s lets others at it: chmod o= %s", mode.Perm(), f.passwordFile, f.passwordFile)
	}
	f.password, _, _ = strings.Cut(string(text), "\n")
	f.password = strings.TrimSuffix(f.password, "\r")
	if f.password == "" {
		return usagef("--password-file: %s is empty", f.passwordFile)
	}
	return nil
}
