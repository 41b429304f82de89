package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/spf13/cobra"
)

// outputCommand returns the command `ledger output`.
func (a *app) outputCommand() *cobra.Command {
	var p views.OutputPage
	cmd := &cobra.Command{
		Use: "output REF", Short: "Print a stored output, or some lines of it",
		Long: `Print the bytes of a stored output, in any --output format. REF is
output://SETTLEMENT/CHANNEL as previews and ledger call show print it, or a call
with one output. With --stat, print its size, type and digest instead.`,
		Example: "  ledger output output://evt_01JD…/text\n  ledger output @last --offset 2000 --limit 100\n  ledger output toolu_01A --stat -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.Usage("one reference is needed: ledger output REF")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return views.PrintOutput(cmd.Context(), a.Printer, s, args[0], p) })
		},
	}
	cmd.Flags().Int64Var(&p.Offset, "offset", 1, "the first line to print")
	cmd.Flags().Int64Var(&p.Limit, "limit", 0, "number of lines to print (0: all)")
	cmd.Flags().BoolVar(&p.Describe, "stat", false, "print size, type and digest of the output instead of its bytes")
	return cmd
}
