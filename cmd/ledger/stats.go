package main

import (
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/statistics"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// statsCommand returns the command `ledger stats`.
func (a *app) statsCommand() *cobra.Command {
	var opts statistics.Options
	list := query.CallList
	list.Sum = true
	cmd := &cobra.Command{
		Use: "stats", Short: "Sum calls up by tool, agent, model, session or day",
		Long: `Sum the selected calls up: outcomes, rates of stale and denied calls, run times and
waits, bytes, tokens, and which tools were offered and never called. A percentile is by
nearest rank. A rate is a part of the settled calls. A token belongs to a reply, so
--by tool has none; --by all is one row.
--prices FILE adds costs. FILE is TOML: currency = "USD", and for each model a table
[models."NAME"] with the prices input and output of a million tokens, and cache_read and
cache_write (default: that of input); a NAME may end with *. Costs are exact, and a
table shows four digits.`,
		Example: "  ledger stats\n  ledger stats --by model --since 7d --prices prices.toml\n  ledger stats --by session --tool bash -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.answer(cmd.Context(), func(_ *stores.Store, r *index.Snapshot) error { return statistics.Print(a.Printer, r, opts) })
		},
	}
	a.listFlags(cmd, &opts.Filter, list)
	cmd.Flags().StringVar(&opts.By, "by", "tool", "one row for each "+strings.Join(statistics.Kinds, ", "))
	must(cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(statistics.Kinds, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringVar(&opts.Prices, "prices", "", "a TOML file of prices for a million tokens")
	return a.noWaitFlag(cmd)
}
