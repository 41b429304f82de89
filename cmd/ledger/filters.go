package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/spf13/cobra"
)

// filters are the names of all flags that restrict a list.
var filters = []string{"session", "tool", "kind", "agent", "outcome", "stream", "location", "since", "until", "after"}

// emptyFilter returns a usage error if the user gave a filter flag with an empty value.
// A script gives one if its variable is not set; without the error the command would
// list everything.
func emptyFilter(cmd *cobra.Command) error {
	for _, name := range filters {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
			return fault.Usage("--%s is empty: name what it takes, or leave it out", name)
		}
	}
	return nil
}

// fullFlag adds the flag --full to cmd. The flag sets *full, by which the command shows
// whole inputs.
func fullFlag(cmd *cobra.Command, full *bool) {
	cmd.Flags().BoolVar(full, "full", false, "show the full input of each call")
}
