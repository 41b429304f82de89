package main

import (
	"runtime"
	"runtime/debug"

	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/spf13/cobra"
)

// version returns the module version of this build, or devel with the commit for a
// build from a working tree.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel" + revision(info)
	}
	return info.Main.Version
}

// revision returns a dash and the first twelve characters of the commit that the
// build recorded, or "".
func revision(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "-" + s.Value[:12]
		}
	}
	return ""
}

// A versionRow is the JSON result of ledger version.
type versionRow struct {
	Version       string `json:"version"`
	SchemaVersion int    `json:"schema_version"` // of the JSON keys of all results
	Go            string `json:"go"`
	Platform      string `json:"platform"` // GOOS/GOARCH
}

// versionCommand returns the command `ledger version`.
func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the program and of its JSON",
		Example: "  ledger version\n  ledger version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			row := versionRow{version(), views.SchemaVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.Object(row, func() {
				a.Line("ledger %s (schema %d, %s, %s)", row.Version, row.SchemaVersion, row.Go, row.Platform)
			})
		},
	}
}
