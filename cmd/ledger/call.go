package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/receipts"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// callCommand returns the command group `ledger call`, whose subcommands are ls, show and
// prove.
func (a *app) callCommand() *cobra.Command {
	return a.group("call", "Calls: list calls, show one, make a receipt", a.noWaitFlag(a.callList()), a.noWaitFlag(a.callShow()), a.noWaitFlag(a.callProve()))
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

// callProve returns the command `ledger call prove`.
func (a *app) callProve() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "prove CALL", Short: "Write a receipt of a call: its events, their places in the log, the digests of its outputs",
		Long: `Write a receipt of a call as one JSON document, on the standard output or to a
file: the events of the session that concern the call (the offer, the request,
permissions and questions, the start, the end, late results) byte for byte as
recorded, with their places in the log, and the digests of the outputs that were kept.
ledger verify --receipt FILE checks it against the store or a copy of it. A receipt is
not signed: it shows that the store has not changed since, to those who trust the file.`,
		Example: "  ledger call prove @last\n  ledger call prove toolu_01A --to receipt.json\n  ledger verify --receipt receipt.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.Usage("one call is needed: ledger call prove CALL")
			}
			return nil
		},
		ValidArgsFunction: a.complete(query.CallWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				c, err := query.Call(r, args[0])
				if err != nil {
					return err
				}
				return receipts.Write(cmd.Context(), a.Printer, s, c.Key(), to, version())
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "write the receipt to this file, which it replaces in one step")
	return cmd
}
