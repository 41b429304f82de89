package main

import (
	"context"

	"github.com/settlement-ledger/ledger/cmd/ledger/demo"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// demoCommand returns the command `ledger demo`, which package demo implements.
func (a *app) demoCommand() *cobra.Command {
	var keep, live bool
	cmd := &cobra.Command{
		Use: "demo", Short: "Run a demonstration of one minute: no network, no model, no arguments",
		Example: "  ledger demo\n  ledger demo --live\n  ledger demo --keep\n  ledger demo --store ./demo-store\n  ledger demo --store 'esdb://127.0.0.1:2113?tls=false'",
		Long: `demo runs a recorded trajectory (an agent's replies and calls) with the real tools:
an agent finds out why the tests of a small shell program fail, and fixes it. Then
demo prints the records of the ledger, kills a second run in the middle of a call,
and recovers. It uses a temporary folder and removes it.

--live sends the same task through each wire format of model providers (Anthropic
Messages, OpenAI Chat Completions, OpenAI Responses), with the clients that
ledger run --model uses. Servers of this process, on the loopback interface, stream
the recorded replies. demo then compares the three sessions.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Format != render.AsTable {
				return fault.Usage("demo is for people: it has no -o %s", a.Format)
			}
			listCalls := func(ctx context.Context, s *stores.Store) error {
				return a.answerer().Answer(ctx, s, func(r *index.Snapshot) error {
					return views.ListCalls(ctx, a.Printer, s, r, views.CallFilter{Filter: query.Filter{Session: query.Last}})
				})
			}
			return demo.Run(cmd.Context(), demo.Config{Launcher: a.launcher(), Keep: keep, Live: live, ListCalls: listCalls})
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "ask servers of this process in each wire format of model providers")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the temporary folder and its store")
	return cmd
}
