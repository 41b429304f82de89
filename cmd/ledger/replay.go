package main

import (
	"context"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/replaying"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// replayFlags holds the flags of replay.
type replayFlags struct {
	dry   bool
	junit string
}

// replayCommand returns the command `ledger replay`.
func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay [SESSION]", Short: "Run a recorded session again from its tape, and compare; exit 3 if it differs",
		Example: "  ledger replay @last\n  ledger replay 4K2P9Q --dry-run\n  ledger replay @last --dry-run --junit replay.xml\n  ledger replay @last -o json | jq '.differences[]'",
		Long: `replay runs a session again from its record: the replies of the model and the results
of the tools come from the log, and prompts, registrations, closings, decisions and
interruptions happen at their recorded places in the order of the log. No model is
asked, and no tool runs. The runner derives the rest anew: the conversation that the
model is shown, the offer of each turn, the outcome of each call, and the order. Each
difference is printed with both sides. IDs and times are not compared.

The replay is a session of its own, whose origin names the recorded one; the record of
that session is not changed. --dry-run keeps nothing. Of an imported session the
conversation and the outcomes are compared: its transcript has no offers.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.replaySession(cmd.Context(), f, query.OrLast(args))
		},
	}
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "keep no new session: replay in memory")
	cmd.Flags().StringVar(&f.junit, "junit", "", "write the comparison as a JUnit file")
	must(cmd.MarkFlagFilename("junit", "xml"))
	return cmd
}

// replaySession replays the session that id identifies.
func (a *app) replaySession(ctx context.Context, f replayFlags, id string) error {
	if f.dry {
		return a.Read(ctx, func(s *stores.Store) error {
			return replaying.InMemory(ctx, s, func(to replaying.Target) error { return a.replayTo(ctx, f, s, id, to) })
		})
	}
	return a.launcher().With(ctx, a.Open, func(p *sessions.ActiveProcess) error {
		to := replaying.Target{Store: p.Log, Ledger: p.Ledger, Process: p.ID(), Outputs: p.Outputs}
		return a.replayTo(ctx, f, p.Store, id, to)
	})
}

// replayTo replays a session of a store into a target, and prints the comparison.
func (a *app) replayTo(ctx context.Context, f replayFlags, s *stores.Store, id string, to replaying.Target) error {
	var session domain.SessionID
	err := a.answerer().Answer(ctx, s, func(r *index.Snapshot) error {
		found, err := query.Session(r, id)
		session = found.ID
		return err
	})
	if err != nil {
		return err
	}
	if err := replaying.CheckIdle(ctx, s, session); err != nil {
		return err
	}
	report, err := replaying.Replay(ctx, s, session, to)
	if err != nil {
		return err
	}
	if err := replaying.SaveJUnit(f.junit, report); err != nil {
		return err
	}
	return replaying.Show(a.Printer, report, !f.dry)
}
