package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/verify"
	"github.com/spf13/cobra"
)

// verifyCommand returns the command ledger verify.
func (a *app) verifyCommand() *cobra.Command {
	var opts verify.Options
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the laws of the ledger over the whole log; exit 3 if any is broken",
		Long: `Read the whole log from its beginning, without any checkpoint, and check it:
every record decodes; streams have no gaps, and in a database nobody has hidden or
deleted records of them by $maxCount, $maxAge, $tb, a deletion or a tombstone; every call begins at most once and
ends once, under a registration that its turn offered and that was in effect,
neither closed nor hidden by another; no result without a call; every reference
to an output resolves to the bytes that the settlement names, or was pruned by
an event.

Each exception is listed. A call without an end and a request for permission
without a decision are counted; they are exceptions once the process that has
them is on record as stopped. In an import they never are. Kinds of events that
this program does not know are counted, and are no exception.`,
		Example: "  ledger verify\n  ledger verify --outputs=false\n  ledger verify -o json | jq '.exceptions | group_by(.law)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return verify.Run(cmd.Context(), a.Printer, s, opts) })
		},
	}
	cmd.Flags().BoolVar(&opts.Digests, "outputs", true, "read every kept output and compare its digest")
	return cmd
}
