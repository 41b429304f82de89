package main

import "github.com/spf13/cobra"

func (a *app) storeCommand() *cobra.Command {
	cmd := a.group("store", "Look after a store", a.newStoreBench())
	cmd.Example = "  ledger store bench"
	return cmd
}
