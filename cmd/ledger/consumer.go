package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jetstream"
	"github.com/settlement-ledger/ledger/projections/publish/jsonl"
	"github.com/spf13/cobra"
)

func (a *app) consumerCommand() *cobra.Command {
	return a.group("consumer", "Consumers: how far publishing has come, and what it set aside",
		a.consumerList(), a.consumerShow(), a.consumerRetry(), a.consumerForget())
}

// A consumerRow is a consumer in results.
type consumerRow struct {
	Name      string          `json:"name"`
	Target    string          `json:"target"`
	Topic     string          `json:"topic"`
	Only      publish.Filter  `json:"only"`
	Position  events.Position `json:"position"`
	Published uint64          `json:"published"`
	Poison    int             `json:"poison"`      // records set aside
	Lag       *uint64         `json:"lag"`         // records before it
	Behind    *int64          `json:"lag_seconds"` // how long the first of these waits
	Error     *string         `json:"last_error"`  // that was met last
	ErrorAt   stamp           `json:"last_error_at"`
	Begun     stamp           `json:"begun"`
	Saved     stamp           `json:"saved"`
}

func rowOfConsumer(c publish.Consumer, lag *publish.Lag, now time.Time) consumerRow {
	row := consumerRow{
		Name: c.Name, Target: c.Target, Topic: c.Topic, Only: c.Filter, Position: c.Position, Published: c.Published,
		Poison: len(c.DeadLetters), Begun: stamp(c.Begun), Saved: stamp(c.Saved),
	}
	if c.LastError != nil {
		row.Error, row.ErrorAt = &c.LastError.Text, stamp(c.LastError.Time)
	}
	if lag != nil {
		seconds := int64(lag.Behind(now).Seconds())
		row.Lag, row.Behind = &lag.Records, &seconds
	}
	return row
}

// consumerFault returns an error of publishing as a fault.
func consumerFault(err error) error {
	for _, k := range []known{
		{publish.ErrNoConsumer, exitNotFound, "not_found", "ledger consumer ls lists them", "ledger consumer ls"},
		{publish.ErrDifferentJob, exitConflict, "conflict", "give it another --name, or let ledger consumer forget remove the old one", ""},
		{publish.ErrRunning, exitConflict, "conflict", "end the process that runs it, or give this one another --name", ""},
		{publish.ErrTooManyDeadLetters, exitFailed, "poisoned", "ledger consumer show lists them; mend the target, ledger consumer retry, and run this again", ""},
		{publish.ErrDamaged, exitFailed, "damaged", "ledger consumer forget removes it; what was published is then published again", ""},
		{publish.ErrBadName, exitUsage, "usage", "", ""},
		{publish.ErrBadTopic, exitUsage, "usage", "", ""},
		{jetstream.ErrBadURL, exitUsage, "usage", "a URL is nats://[USER:PASSWORD@]HOST[:PORT]", ""},
		{jsonl.ErrInUse, exitConflict, "conflict", "end the other publisher, or name another file", ""},
		{jsonl.ErrForeign, exitFailed, "foreign_file", "name a file that does not exist", ""},
	} {
		if errors.Is(err, k.is) {
			return &fault{exit: k.exit, code: k.code, err: err, hint: k.hint, command: k.command}
		}
	}
	return err
}

func (a *app) consumerList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the consumers: where they are, and how far behind",
		Long: `List the consumers: target, position, how many records they have before them and
for how long the first of these waits, how many they set aside, and the error met
last. Records that a consumer does not ask for are not counted.`,
		Example: "  ledger consumer ls\n  ledger consumer ls -o json | jq '.[] | select(.lag > 0)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.reading(cmd.Context(), func(s *ledgerStore) error { return a.listConsumers(cmd.Context(), s) })
		},
	}
}

func (a *app) listConsumers(ctx context.Context, s *ledgerStore) error {
	desk := a.desk(s)
	all, err := desk.Consumers(ctx)
	if err != nil {
		return consumerFault(err)
	}
	rows := make([]consumerRow, len(all))
	for i, c := range all {
		lag, err := desk.Lag(ctx, c)
		if err != nil {
			return err
		}
		rows[i] = rowOfConsumer(c, &lag, a.now())
	}
	return emit(a, rows, func() { a.consumerTable(rows) })
}

func (a *app) consumerTable(rows []consumerRow) {
	t := table{
		head:  []string{"~NAME", "~TARGET", ">POSITION", ">LAG", "?>BEHIND", ">POISON", "~LAST ERROR"},
		empty: "No consumers. ledger publish makes one.",
	}
	for _, r := range rows {
		trouble := ""
		if r.Error != nil {
			trouble = oneLine(*r.Error, textWidth)
		}
		t.add(r.Name, oneLine(r.Target, 60), r.Position.String(), strconv.FormatUint(*r.Lag, 10),
			lasting(time.Duration(*r.Behind)*time.Second), strconv.Itoa(r.Poison), trouble)
	}
	a.write(t)
}

func (a *app) consumerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "List the records that a consumer set aside",
		Example: "  ledger consumer show bus\n  ledger consumer show bus -o jsonl | jq -r .event",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reading(cmd.Context(), func(s *ledgerStore) error {
				c, err := a.desk(s).Consumer(cmd.Context(), args[0])
				if err != nil {
					return consumerFault(err)
				}
				return emit(a, c.DeadLetters, func() { a.poisonTable(c) })
			})
		},
	}
}

func (a *app) poisonTable(c publish.Consumer) {
	t := table{
		head:  []string{">POSITION", "STREAM", "?>REV", "~KIND", "?>TRIES", "NEXT", "~ERROR"},
		empty: c.Name + " has nothing set aside.",
	}
	for _, p := range c.DeadLetters {
		next := "set aside"
		if p.Retry {
			next = "again"
		}
		t.add(p.Position.String(), streamText(p.Stream), strconv.FormatUint(uint64(p.Revision), 10), oneLine(p.Kind, 40),
			strconv.Itoa(p.Tries), next, oneLine(p.LastError.Text, textWidth))
	}
	a.write(t)
}

func (a *app) consumerRetry() *cobra.Command {
	return &cobra.Command{
		Use: "retry NAME [POSITION...]", Short: "Have records that were set aside published again",
		Long: `Have records that were set aside published again: those at these positions, or
all of them. A consumer that runs, in ledger publish or ledger serve, tries them
in a second or so, another when it runs next. They come late: those of their
stream that stand behind them were published before.`,
		Example: "  ledger consumer retry bus\n  ledger consumer retry bus 1204",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			var positions []events.Position
			for _, text := range args[1:] {
				p, err := events.ParsePosition(text)
				if err != nil {
					return misuse("%q is not a position, such as 1204", text)
				}
				positions = append(positions, p)
			}
			return a.writing(cmd.Context(), func(s *ledgerStore) error {
				n, err := a.desk(s).Retry(cmd.Context(), args[0], positions...)
				if err != nil {
					return consumerFault(err)
				}
				if len(positions) > n {
					return notFound("ledger consumer show "+args[0]+" lists what is", "%d of %d positions are not set aside", len(positions)-n, len(positions))
				}
				return a.told("%s: %d records are published again, when it runs next or in a second", args[0], n)
			})
		},
	}
}

func (a *app) consumerForget() *cobra.Command {
	return &cobra.Command{
		Use: "forget NAME", Short: "Remove a consumer, with what it set aside",
		Long: `Remove a consumer, with its place and the list of what it set aside. What it
published stays at the target. A later run under the name begins where its --from
says. One that runs is not removed.`,
		Example: "  ledger consumer forget bus",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.writing(cmd.Context(), func(s *ledgerStore) error {
				if err := a.desk(s).Forget(cmd.Context(), args[0]); err != nil {
					return consumerFault(err)
				}
				return a.told("%s is forgotten", args[0])
			})
		},
	}
}

// told tells what was done; a program learns it from the exit code.
func (a *app) told(format string, args ...any) error {
	if a.output == asTable {
		a.line(format, args...)
	}
	return nil
}

func (a *app) completeConsumers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	_ = a.reading(cmd.Context(), func(s *ledgerStore) error { // a shell is no place for errors
		all, err := a.desk(s).Consumers(cmd.Context())
		for _, c := range all {
			if strings.HasPrefix(c.Name, typed) {
				words = append(words, c.Name+"\t"+c.Target)
			}
		}
		return err
	})
	return words, cobra.ShellCompDirectiveNoFileComp
}
