package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/doctor"
	"github.com/spf13/cobra"
)

// doctorCommand returns the command doctor, which package doctor implements.
func (a *app) doctorCommand() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what stands between this program and its store; exit 1 if something is wrong",
		Example: "  ledger doctor\n  ledger doctor --store esdb://db-1:2113\n  ledger doctor --write -o json | jq '.checks[] | select(.ok | not)'",
		Long: `Check, one after the other: that --store makes sense; that each of its hosts has an
address and its port is open; that who answers there is an EventStoreDB, with or
without TLS as wanted, of a version that will do, in one cluster with the others;
that it lets this user in, which rights it gives, and that it gives the log back, and how fast; for a folder, who
has it open, whether and where it is served, and how much room the disk has; that
the clocks agree; who is at work on it; and how far the consumers and the answers
that are kept beside the log are behind.

Nothing is written to the log, unless --write asks for five records in the stream
doctor-probe, which are timed. Credentials are in no line. No step waits longer
than LEDGER_PATIENCE, or 3s.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &doctor.Doctor{Printer: a.Printer, Opener: a.Opener, Version: version()}
			return d.Run(cmd.Context(), write)
		},
	}
	cmd.Flags().BoolVar(&write, "write", false, "append five records as well, and time it")
	return cmd
}
