package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/storecopy"
	"github.com/spf13/cobra"
)

// storeCopyCommand returns the command `ledger store copy`.
func (a *app) storeCopyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "copy FROM TO", Short: "Copy a store into another folder or database, and compare the two",
		Example: "  ledger store copy ~/.local/share/ledger esdb://db-1:2113\n  ledger store copy 'esdb://127.0.0.1:2113?tls=false' ./copy\n" +
			"  ledger store copy ./laptop 'kurrentdb://db?namespace=laptop'",
		Long: `Copy all records in order from one store to another, each a folder or a connection
string; then compare both by a digest over every record. Stored outputs are copied
too, from any node that has them, to the outputs of the target.

An interrupted copy continues at the end of the target when it is run again; a
complete copy is only compared. Records appended to FROM meanwhile are left to the
next run. A target with other records is a conflict and is not changed.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return storecopy.Run(cmd.Context(), a.Printer, a.Opener, args[0], args[1])
		},
	}
}
