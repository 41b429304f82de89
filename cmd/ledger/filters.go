package main

import (
	"context"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/indexing"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// filters are the names of all flags that restrict a list.
var filters = []string{"session", "tool", "kind", "agent", "outcome", "stream", "location", "since", "until", "after", "path", "by", "text", "where"}

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

// listFlags adds the flags of a list to cmd, with their completions. The flags set the fields
// of f. The help text of cmd ends with the fields of --where.
func (a *app) listFlags(cmd *cobra.Command, f *query.Filter, list query.List) {
	f.AddFlags(cmd, list)
	cmd.Long = strings.TrimLeft(cmd.Long+"\n"+list.FieldsHelp(), "\n")
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.RegisterFlagCompletionFunc("agent", a.complete(query.AgentWords)))
	must(cmd.RegisterFlagCompletionFunc("tool", a.complete(query.ToolWords)))
	must(cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(query.OutcomeWords(), cobra.ShellCompDirectiveNoFileComp)))
	if !list.Sum {
		must(cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"rule", "approval", "user", "headless", "recovery"}, cobra.ShellCompDirectiveNoFileComp)))
	}
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
