package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/doctor"
	"github.com/spf13/cobra"
)

// doctorCommand returns the command `ledger doctor`, which package doctor implements.
func (a *app) doctorCommand() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the store, its disk, its server and the network; exit 1 if a check fails",
		Example: "  ledger doctor\n  ledger doctor --store esdb://db-1:2113\n  ledger doctor --write -o json | jq '.checks[] | select(.ok | not)'",
		Long: `Check in this order: the syntax of --store; the address and the port of each host;
that the server is an EventStoreDB of a supported version, in one cluster with the
others, with or without TLS as configured; the login and the rights of this user;
the time of a read of the log; for a folder, the process that has it open, the
address at which it is served, and the free space of its disk; the clocks; the
processes on record; the lag of consumers and checkpoints.

doctor writes nothing to the log, unless --write makes it append and time five
records in the stream doctor-probe. It prints no credentials. The timeout of each
step is LEDGER_PATIENCE, or 3s.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &doctor.Doctor{Printer: a.Printer, Opener: a.Opener, Version: version()}
			return d.Run(cmd.Context(), write)
		},
	}
	cmd.Flags().BoolVar(&write, "write", false, "also append five records, and time them")
	return cmd
}
