package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// turnCommand returns the command group `ledger turn`, whose subcommand is show.
func (a *app) turnCommand() *cobra.Command {
	return a.group("turn", "Turns: the tools offered to the model", a.turnShow())
}

// turnShow returns the command `ledger turn show`.
func (a *app) turnShow() *cobra.Command {
	var opts views.ShowOptions
	cmd := &cobra.Command{
		Use: "show [TURN]", Short: "Show the tools that a turn offered, those it hid, and those that are stale by now",
		Example: "  ledger turn show @last\n  ledger turn show trn_…4K2P9Q\n  ledger turn show 4K2P9Q -o json | jq '.tools[] | select(.stale)'",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.TurnWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.ShowTurn(cmd.Context(), a.Printer, s, r, query.OrLast(args), opts)
			})
		},
	}
	fullFlag(cmd, &opts.FullInputs)
	return a.noWaitFlag(cmd)
}
