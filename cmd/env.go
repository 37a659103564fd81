package cmd

import (
	"strings"

	"github.com/spf13/pflag"
)

// variable is the environment variable that stands for a flag.
func variable(flag string) string {
	return "SIMBA_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnv sets the flags named, unless they were given, from their variables. A
// variable that is set counts, also an empty one: an empty SIMBA_BACKEND must not
// silently mean the default.
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
