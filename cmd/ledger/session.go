package main

import (
	"context"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/player"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/sessiondiff"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// sessionCommand returns the command group `ledger session`, whose subcommands are ls,
// show, diff, play, tail and fork.
func (a *app) sessionCommand() *cobra.Command {
	return a.group("session", "Sessions: list sessions, show, compare, play, follow or fork one",
		a.noWaitFlag(a.sessionList()), a.noWaitFlag(a.sessionShow()), a.noWaitFlag(a.sessionDiff()), a.noWaitFlag(a.sessionPlay()), a.noWaitFlag(a.sessionTail()), a.sessionFork())
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
	var opts views.SessionOptions
	cmd := &cobra.Command{
		Use: "show [SESSION]", Short: "Show a session: prompts, turns, replies, and calls with their outcomes",
		Long: `Show a session: each prompt, reply and call in order, each call with its input, its
outcome, its time, who allowed or denied it, and the beginning of what the model read.
With --full all texts are whole, and outputs that were too large for the model are read
from where they are kept. With --as-model only the messages are shown, as the model read
them: at the end of the session, or in the request of one turn. With --at the session is
shown as it was after one of its events, or at a time.`,
		Example: `  ledger session show @last
  ledger session show 4K2P9Q -o json
  ledger session show 4K2P9Q --full
  ledger session show 4K2P9Q --as-model --turn trn_…9D0XW6
  ledger session show 4K2P9Q --at 14:05
  ledger session show 4K2P9Q --at evt_…AFAJS7`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"at", "turn"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return fault.Usage("--%s is empty: name what it takes, or leave it out", name)
				}
			}
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return views.ShowSession(cmd.Context(), a.Printer, s, r, query.OrLast(args), opts)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Full, "full", false, "show whole texts, inputs and outputs")
	flags.BoolVar(&opts.AsModel, "as-model", false, "show the messages as the model read them")
	flags.StringVar(&opts.Turn, "turn", "", "with --as-model: in the request of this turn")
	flags.StringVar(&opts.At, "at", "", "as it was at this event, position or time")
	must(cmd.RegisterFlagCompletionFunc("turn", a.complete(query.TurnWords)))
	return cmd
}

// sessionDiff returns the command `ledger session diff`.
func (a *app) sessionDiff() *cobra.Command {
	var opts sessiondiff.Options
	cmd := &cobra.Command{
		Use: "diff SESSION SESSION", Short: "Compare two sessions: prompts, replies, calls, inputs, outcomes, outputs, offers",
		Long: `Compare two sessions. Their prompts and replies are aligned by content, and the calls
of a reply by tool and input. IDs and times are not compared: a session and its replay are
the same if the same happened in both. The summary comes first, then each difference.
Exit 0: the sessions are the same; exit 3: they differ. --ignore leaves out classes of
differences.`,
		Example: `  ledger session diff 4K2P9Q 7XM2DA
  ledger session diff 4K2P9Q @last --ignore tokens,models
  ledger session diff 4K2P9Q @last -o json | jq '.differences[] | select(.class == "outcomes")'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fault.Usage("two sessions are needed: ledger session diff SESSION SESSION")
			}
			return nil
		},
		ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answer(cmd.Context(), func(s *stores.Store, r *index.Snapshot) error {
				return sessiondiff.Diff(cmd.Context(), a.Printer, s, r, args[0], args[1], opts)
			})
		},
	}
	cmd.Flags().StringSliceVar(&opts.Ignore, "ignore", nil, "classes of differences that do not count: "+strings.Join(sessiondiff.Words(), ", "))
	must(cmd.RegisterFlagCompletionFunc("ignore", cobra.FixedCompletions(sessiondiff.Words(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// sessionPlay returns the command `ledger session play`.
func (a *app) sessionPlay() *cobra.Command {
	return &cobra.Command{
		Use: "play [SESSION]", Short: "Play a session on a terminal, event by event, forwards and back",
		Long: `Play a session on a terminal: one event at a time, with what it says. The space bar plays
at the recorded pace and pauses, the arrows go one event forwards and back, + and - change
the pace, g and G go to the first and the last event, / searches, n and N find the next
and the last match before, q quits, and ? lists the keys. Pauses of more than two seconds
are shortened. A session that is running is played as far as it is on record.`,
		Example: "  ledger session play @last\n  ledger session play 4K2P9Q",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := player.Check(a.Printer, a.in, query.OrLast(args)); err != nil {
				return err
			}
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				session, err := a.sessionIn(cmd.Context(), s, args)
				if err != nil {
					return err
				}
				return player.Play(cmd.Context(), a.Printer, a.in, s.Ledger, session)
			})
		},
	}
}

// sessionIn returns the session that args name in an open store. It does not keep the index
// open.
func (a *app) sessionIn(ctx context.Context, s *stores.Store, args []string) (session calls.Session, err error) {
	err = a.answerer().Answer(ctx, s, func(r *index.Snapshot) (err error) {
		session, err = query.Session(r, query.OrLast(args))
		return err
	})
	return session, err
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
				session, err := a.sessionIn(cmd.Context(), s, args)
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
