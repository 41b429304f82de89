package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// turnCommand returns the command group `ledger turn`, whose subcommands are ls and
// show.
func (a *app) turnCommand() *cobra.Command {
	return a.group("turn", "Turns: list turns, show the tools offered to the model", a.noWaitFlag(a.turnList()), a.turnShow())
}

// turnList returns the command `ledger turn ls`.
func (a *app) turnList() *cobra.Command {
	var filter query.Filter
	cmd := &cobra.Command{
		Use: "ls", Short: "List turns, in the order of the log",
		Example: "  ledger turn ls --session @last\n  ledger turn ls --where 'offered = bash and hidden != write'\n  ledger turn ls --outcome stale -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.answer(cmd.Context(), func(_ *stores.Store, r *index.Snapshot) error { return views.ListTurns(a.Printer, r, filter) })
		},
	}
	a.listFlags(cmd, &filter, query.TurnList)
	return cmd
}

// turnShow returns the command `ledger turn show`.
func (a *app) turnShow() *cobra.Command {
	var opts views.ShowOptions
	cmd := &cobra.Command{
		Use: "show [TURN]", Short: "Show the tools that a turn offered, those it hid, and those that are stale by now",
		Example: "  ledger turn show @last\n  ledger turn show trn_…4K2P9Q --schemas\n  ledger turn show 4K2P9Q -o json | jq '.tools[] | select(.stale)'",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.TurnWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.ShowTurn(cmd.Context(), a.Printer, s, r, query.OrLast(args), opts)
			})
		},
	}
	fullFlag(cmd, &opts.FullInputs)
	cmd.Flags().BoolVar(&opts.Schemas, "schemas", false, "show the schema of each tool, and what had changed since the turn before")
	return a.noWaitFlag(cmd)
}
