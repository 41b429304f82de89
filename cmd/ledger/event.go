package main

import (
	"context"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/events"
	"github.com/spf13/cobra"
)

// eventCommand returns the command group `ledger event`, whose subcommands are ls and
// tail.
func (a *app) eventCommand() *cobra.Command {
	return a.group("event", "Events: list events, follow the log", a.noWaitFlag(a.eventList()), a.noWaitFlag(a.eventTail()))
}

// eventFilterFlags adds the flags --stream, --kind and --session to cmd. The flags set
// the fields of f.
func (a *app) eventFilterFlags(cmd *cobra.Command, f *query.EventFilter) {
	cmd.Flags().StringVar(&f.Stream, "stream", "", "only events of this stream")
	cmd.Flags().StringSliceVar(&f.Kinds, "kind", nil, "only events of this kind; may be repeated")
	cmd.Flags().StringVar(&f.Session, "session", "", "only events of this session, in any stream")
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(events.Kinds(), cobra.ShellCompDirectiveNoFileComp)))
}

// findSession finds the session that a filter names, if it names one.
func (a *app) findSession(ctx context.Context, s *stores.Store, f *query.EventFilter) error {
	if f.Session == "" {
		return nil
	}
	return a.answerer().Answer(ctx, s, f.FindSession)
}

// eventList returns the command `ledger event ls`.
func (a *app) eventList() *cobra.Command {
	var filter query.EventFilter
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Short: "List events as recorded, in the order of the log",
		Example: "  ledger event ls --session @last\n  ledger event ls --after 1204 --limit 100 -o jsonl\n  ledger event ls --kind CallSettled -o jsonl | jq .data.outcome",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				if err := a.findSession(cmd.Context(), s, &filter); err != nil {
					return err
				}
				return views.ListEvents(cmd.Context(), a.Printer, s, filter, after, limit)
			})
		},
	}
	a.eventFilterFlags(cmd, &filter)
	filter.When.AddFlags(cmd, "those appended")
	cmd.Flags().StringVar(&after, "after", "", "only events after this position")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many, the first ones (0: all)")
	return cmd
}

// eventTail returns the command `ledger event tail`.
func (a *app) eventTail() *cobra.Command {
	var filter query.EventFilter
	var t views.Tail
	cmd := &cobra.Command{
		Use: "tail", Short: "Show the last events, and with -f the new ones",
		Long: `Show the last events, and with -f follow new ones. After the last event of the log, a
line on the standard error says that the output has caught up; with -o json or
jsonl a record {"type":"sync","position":…} does. If the process that has the folder
open ends, -f waits for the next one; it does not lock the folder meanwhile.`,
		Example: "  ledger event tail -n 20\n  ledger event tail -f -o jsonl\n  ledger event tail --kind CallSettled",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				if err := filter.Resolve(cmd.Context(), s); err != nil {
					return err
				}
				if err := a.findSession(cmd.Context(), s, &filter); err != nil {
					return err
				}
				return views.TailEvents(cmd.Context(), a.Printer, a.Opener, s, filter, t)
			})
		},
	}
	a.eventFilterFlags(cmd, &filter)
	tailFlags(cmd, &t)
	return cmd
}

// tailFlags adds the flags -n and -f to cmd. The flags set the fields of t.
func tailFlags(cmd *cobra.Command, t *views.Tail) {
	cmd.Flags().IntVarP(&t.Lines, "lines", "n", 10, "number of last events to show first")
	cmd.Flags().BoolVarP(&t.Follow, "follow", "f", false, "wait for new events, until interrupted")
}
