package main

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// sessionCommand returns the command group `ledger session`, whose subcommands are ls,
// show, tail and fork.
func (a *app) sessionCommand() *cobra.Command {
	return a.group("session", "Sessions: list sessions, show one, follow one, fork one",
		a.noWaitFlag(a.sessionList()), a.noWaitFlag(a.sessionShow()), a.noWaitFlag(a.sessionTail()), a.sessionFork())
}

// sessionList returns the command `ledger session ls`.
func (a *app) sessionList() *cobra.Command {
	var filter query.Filter
	cmd := &cobra.Command{
		Use: "ls", Short: "List sessions, in the order of the log",
		Example: "  ledger session ls\n  ledger session ls --since 2d --limit 20\n  ledger session ls --where 'calls > 0 and requests = 0'\n  ledger session ls -o json | jq '.[] | select(.open > 0)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.answer(cmd.Context(), func(_ *stores.Store, r *index.Snapshot) error { return views.ListSessions(a.Printer, r, filter) })
		},
	}
	a.listFlags(cmd, &filter, query.SessionList)
	return cmd
}

// sessionShow returns the command `ledger session show`.
func (a *app) sessionShow() *cobra.Command {
	var opts views.ShowOptions
	cmd := &cobra.Command{
		Use: "show [SESSION]", Short: "Show a session: prompts, turns, replies, and calls with their outcomes",
		Example: "  ledger session show @last\n  ledger session show ses_…4K2P9Q\n  ledger session show 4K2P9Q -o json",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.ShowSession(cmd.Context(), a.Printer, s, r, query.OrLast(args), opts)
			})
		},
	}
	fullFlag(cmd, &opts.FullInputs)
	return cmd
}

// sessionTail returns the command `ledger session tail`, which prints the last events of
// the session's stream.
func (a *app) sessionTail() *cobra.Command {
	var t views.Tail
	cmd := &cobra.Command{
		Use: "tail [SESSION]", Short: "Show the last events of a session, and with -f the new ones",
		Example: "  ledger session tail @last\n  ledger session tail -f 4K2P9Q",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				var session calls.Session
				err := a.answerer().Answer(cmd.Context(), s, func(r *index.Snapshot) (err error) {
					session, err = query.Session(r, query.OrLast(args))
					return err
				})
				if err != nil {
					return err
				}
				return views.TailEvents(cmd.Context(), a.Printer, a.Opener, s, query.EventFilter{Stream: string(events.SessionStream(session.ID))}, t)
			})
		},
	}
	tailFlags(cmd, &t)
	return cmd
}
