package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/indexing"
	"github.com/settlement-ledger/ledger/cmd/ledger/receipts"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/verify"
	"github.com/spf13/cobra"
)

// verifyCommand returns the command `ledger verify`.
func (a *app) verifyCommand() *cobra.Command {
	var opts verify.Options
	var noIndex bool
	var receipt string
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the laws of the ledger over the whole log; exit 3 if any is broken",
		Long: `Read the whole log from its beginning, without any checkpoint, and check it:
every record decodes; streams have no gaps, and in a database no record is hidden or
deleted by $maxCount, $maxAge, $tb, a deletion or a tombstone; every call begins at
most once and ends once, under a registration that its turn offered and that was in
effect, neither closed nor hidden by another; every result has a call; every reference
to an output resolves to the bytes of its digest, or an event records its pruning. An
index that exists is compared with the log, row by row; the check of the log itself does
not read it. The memory does not grow with the log: what does not fit is in a temporary
folder ($TMPDIR).

Each exception is listed. Open calls and permission requests without a decision are
counted; they are exceptions if their process is on record as stopped, and never in
an imported session. Events of unknown kinds are counted and are no exceptions.

With --receipt, check the receipt of a call instead, which ledger call prove made: each
of its events is at its place in the session with the same bytes, the session has no
other event of the call up to the head of the receipt, and the kept outputs have their
digests. Each difference is listed with its place. A copy of the store has other
positions, which are notes; later events and pruned outputs are notes too. Exit 3 if
there is a difference, 2 if the file is no receipt, 4 if the store is another one.`,
		Example: "  ledger verify\n  ledger verify --receipt receipt.json\n  ledger verify --outputs=false --no-index\n  ledger verify -o json | jq '.exceptions | group_by(.law)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if receipt != "" {
				return a.Read(cmd.Context(), func(s *stores.Store) error {
					return receipts.CheckFile(cmd.Context(), a.Printer, s, receipt, receipts.Options{Bytes: opts.Digests})
				})
			}
			if !noIndex {
				at, err := a.Where()
				if err != nil {
					return err
				}
				if opts.Indexes, err = indexing.Indexes(a.Opener, at); err != nil {
					return err
				}
			}
			return a.Read(cmd.Context(), func(s *stores.Store) error { return verify.Run(cmd.Context(), a.Printer, s, opts) })
		},
	}
	cmd.Flags().BoolVar(&opts.Digests, "outputs", true, "read every kept output and compare its digest")
	cmd.Flags().BoolVar(&noIndex, "no-index", false, "do not compare the index with the log")
	cmd.Flags().StringVar(&receipt, "receipt", "", "check this receipt of a call instead of the whole log")
	return cmd
}
