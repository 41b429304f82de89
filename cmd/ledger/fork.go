package main

import (
	"context"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/replaying"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessions"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/spf13/cobra"
)

// sessionFork returns the command `ledger session fork`.
func (a *app) sessionFork() *cobra.Command {
	var at, prompt string
	cmd := &cobra.Command{
		Use: "fork [SESSION]", Short: "Open a session that continues another one from a turn or a call",
		Example: "  ledger session fork @last --at trn_…4K2P9Q --prompt \"try without a cache\"\n  ledger session fork 4K2P9Q --at call_7\n  ledger session fork @last -o json | jq -r .session",
		Long: `fork opens a session whose past is the beginning of another one, up to the end of a
turn with all its calls, or to the end of a call. The past is shared by reference: the
new session names the parent and the event, and repeats no event. ledger resume carries
on from there, with the tools of today; it says first which tools are gone, new or
changed since. A call that the past leaves open reads, for the model of the fork, that
the session was forked before it ended.

Without --at the past ends with the last turn that has ended. The files of the
workspace are as they are: a fork does not undo what later calls changed.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forkSession(cmd.Context(), query.OrLast(args), at, prompt)
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the turn or the call with whose end the past ends")
	cmd.Flags().StringVar(&prompt, "prompt", "", "the first message of the new session")
	must(cmd.RegisterFlagCompletionFunc("at", a.complete(query.TurnWords)))
	return cmd
}

// forkSession forks the session that id identifies.
func (a *app) forkSession(ctx context.Context, id, at, prompt string) error {
	return a.launcher().With(ctx, a.Open, func(p *sessions.ActiveProcess) error {
		var forked events.SessionForked
		err := a.answerer().Answer(ctx, p.Store, func(r *index.Snapshot) error {
			session, err := query.Session(r, id)
			if err != nil {
				return err
			}
			forked, err = replaying.FindPlace(ctx, p.Store, r, session.ID, at)
			return err
		})
		if err != nil {
			return err
		}
		session, err := runner.New(runner.Config{Ledger: p.Ledger}).Fork(ctx, forked, prompt)
		if err != nil {
			return err
		}
		return replaying.ShowFork(a.Printer, session, forked)
	})
}
