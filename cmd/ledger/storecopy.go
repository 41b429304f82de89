package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/storecopy"
	"github.com/spf13/cobra"
)

// storeCopyCommand returns the command ledger store copy.
func (a *app) storeCopyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "copy FROM TO", Short: "Copy a store into another, folder or database, and compare them",
		Example: "  ledger store copy ~/.local/share/ledger esdb://db-1:2113\n  ledger store copy 'esdb://127.0.0.1:2113?tls=false' ./copy\n" +
			"  ledger store copy ./laptop 'kurrentdb://db?namespace=laptop'",
		Long: `Copy all records, in their order, from one store to another: each is a folder or
a connection string. Then compare both by a digest over every record. Outputs that
are kept whole are copied too, from wherever they can be had, to where the target
keeps its own.

A copy that was interrupted goes on where the target ends when it is run again;
one that is complete is compared, and nothing is written. What is appended to
FROM while it runs comes with the next. A target that holds anything else is a
conflict, and is left as it is from there on.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return storecopy.Run(cmd.Context(), a.Printer, a.Opener, args[0], args[1])
		},
	}
}
