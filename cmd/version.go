package cmd

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return a.version() },
	}
}

func (a *app) version() error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary carries no build information")
	}
	_, err := fmt.Fprint(a.stdout, versionText(info))
	return err
}

// versionText is one "key value" a line, so that scripts can read it.
func versionText(info *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	revision := set["vcs.revision"]
	if revision != "" && set["vcs.modified"] == "true" {
		revision += " (modified)"
	}
	s := "simba " + info.Main.Version + "\n"
	for _, kv := range [][2]string{
		{"revision", revision},
		{"time", set["vcs.time"]},
		{"go", info.GoVersion},
		{"platform", set["GOOS"] + "/" + set["GOARCH"]},
	} {
		if kv[1] != "" {
			s += kv[0] + " " + kv[1] + "\n"
		}
	}
	return s
}
