package main

import (
	"context"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/index"
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
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				if err := p.Check(); err != nil {
					return err
				}
				ref, err := a.outputRef(cmd.Context(), s, args[0])
				if err != nil {
					return err
				}
				return views.PrintOutput(cmd.Context(), a.Printer, s, ref, p)
			})
		},
	}
	cmd.Flags().Int64Var(&p.Offset, "offset", 1, "the first line to print")
	cmd.Flags().Int64Var(&p.Limit, "limit", 0, "number of lines to print (0: all)")
	cmd.Flags().BoolVar(&p.Describe, "stat", false, "print size, type and digest of the output instead of its bytes")
	return a.noWaitFlag(cmd)
}

// outputRef returns the reference that a word is, or that of an output of the call that it
// identifies.
func (a *app) outputRef(ctx context.Context, s *stores.Store, word string) (ref domain.Ref, err error) {
	if domain.IsRef(word) {
		return domain.ParseRef(word)
	}
	err = a.answerer().Answer(ctx, s, func(r *index.Snapshot) (err error) {
		ref, err = query.OutputRef(ctx, s, r, word)
		return err
	})
	return ref, err
}
