package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// callCommand returns the command group `ledger call`, whose subcommands are ls and
// show.
func (a *app) callCommand() *cobra.Command {
	return a.group("call", "Calls: list calls, show one", a.noWaitFlag(a.callList()), a.noWaitFlag(a.callShow()))
}

// callList returns the command `ledger call ls`.
func (a *app) callList() *cobra.Command {
	var filter views.CallFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List calls with their outcomes, in the order of the log",
		Example: "  ledger call ls --session @last\n  ledger call ls --outcome denied,stale --since 2d\n  ledger call ls --open -o json\n  ledger call ls --path src/main.go --where 'took > 1.5s or outcome != succeeded'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.ListCalls(cmd.Context(), a.Printer, s, r, filter)
			})
		},
	}
	a.listFlags(cmd, &filter.Filter, query.CallList)
	cmd.Flags().BoolVar(&filter.Open, "open", false, "only calls without an end")
	fullFlag(cmd, &filter.FullInputs)
	return cmd
}

// callShow returns the command `ledger call show`.
func (a *app) callShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [CALL]", Short: "Show a call: input, offer, permission, result and each of its events",
		Long: `Show everything that the log has about a call. CALL is the provider's ID of the
call, MESSAGE/CALL if several messages use that ID, or the event of its settlement;
shortened or not.`,
		Example: "  ledger call show @last\n  ledger call show toolu_01A\n  ledger call show msg_…4K2P9Q/call_1 -o json",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.CallWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.ShowCall(cmd.Context(), a.Printer, s, r, query.OrLast(args))
			})
		},
	}
}
