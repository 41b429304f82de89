package main

import (
	"context"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/indexing"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
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

// noWaitFlag adds the flag --no-wait to cmd and returns cmd.
func (a *app) noWaitFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.noWait, "no-wait", false, "answer from the index as it is, and say how far behind the log it is")
	return cmd
}

// answerer returns an Answerer for the store that the command line names.
func (a *app) answerer() *indexing.Answerer {
	return &indexing.Answerer{Printer: a.Printer, Opener: a.Opener, NoWait: a.noWait}
}

// answer calls use with the store, opened to read it, and a snapshot of its index.
func (a *app) answer(ctx context.Context, use func(*stores.Store, *index.Snapshot) error) error {
	return a.answerer().Read(ctx, use)
}
