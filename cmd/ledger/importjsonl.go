package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/storefile"
	"github.com/spf13/cobra"
)

// importJSONLines returns the command `ledger import jsonl`.
func (a *app) importJSONLines() *cobra.Command {
	return &cobra.Command{
		Use: "jsonl FILE", Short: "Make a store equal to the one that export store wrote to a file",
		Long: `Read a file of ledger export store into the store: all records of all streams in
their order, byte for byte, and the stored outputs. The file may be compressed by gzip
or Zstandard. FILE - is the standard input.

An interrupted import, or one of a file that was cut off, continues when it is run
again with the whole file. A store with other records is a conflict and is not changed.
A changed, missing or moved line is refused with its number; the records before it
are in the store.`,
		Example: "  ledger import jsonl store.jsonl.zst --store ./copy\n  zcat store.jsonl.gz | ledger import jsonl - --store 'esdb://db-1:2113?namespace=copy'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return storefile.Import(cmd.Context(), storefile.Config{Printer: a.Printer, Opener: a.Opener, Input: a.in}, args[0])
		},
	}
}
