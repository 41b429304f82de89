package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version returns the version of the program that the build knows.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel" + revision(info)
	}
	return info.Main.Version
}

// revision returns the commit that the program was built from, if it is known.
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

// A versionRow says which program this is.
type versionRow struct {
	Version       string `json:"version"`
	SchemaVersion int    `json:"schema_version"` // of the keys in all results
	Go            string `json:"go"`
	Platform      string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which program this is, and the version of its JSON",
		Example: "  ledger version\n  ledger version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			row := versionRow{version(), schemaVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.Object(row, func() {
				a.Line("ledger %s (schema %d, %s, %s)", row.Version, row.SchemaVersion, row.Go, row.Platform)
			})
		},
	}
}
