package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// consumerCommand returns the command consumer: ls, show, retry and forget.
func (a *app) consumerCommand() *cobra.Command {
	return a.group("consumer", "Consumers: position, lag and dead letters of publishing",
		a.consumerList(), a.consumerShow(), a.consumerRetry(), a.consumerForget())
}

// A consumerRow is a consumer in results: the state that publishing saved, and its lag.
type consumerRow struct {
	Name      string           `json:"name"`
	Target    string           `json:"target"` // without credentials
	Topic     string           `json:"topic"`
	Only      publish.Filter   `json:"only"`        // selects the published records
	Position  events.Position  `json:"position"`    // each selected record through it is acknowledged or a dead letter
	Published uint64           `json:"published"`   // acknowledgements, including repeats
	Poison    int              `json:"poison"`      // the number of dead letters
	Lag       *uint64          `json:"lag"`         // selected records behind Position
	Behind    *int64           `json:"lag_seconds"` // age of the oldest of them, in seconds
	Error     *string          `json:"last_error"`  // null: no error yet
	ErrorAt   render.Timestamp `json:"last_error_at"`
	Begun     render.Timestamp `json:"begun"` // when the consumer was created
	Saved     render.Timestamp `json:"saved"` // when Position was saved last
}

// rowOfConsumer converts a consumer. Without a lag, the lag of the row is null.
func rowOfConsumer(c publish.ConsumerState, lag *publish.Lag, now time.Time) consumerRow {
	row := consumerRow{
		Name: c.Name, Target: c.Target, Topic: c.Topic, Only: c.Filter, Position: c.Position, Published: c.Published,
		Poison: len(c.DeadLetters), Begun: render.Timestamp(c.Begun), Saved: render.Timestamp(c.Saved),
	}
	if c.LastError != nil {
		row.Error, row.ErrorAt = &c.LastError.Text, render.Timestamp(c.LastError.Time)
	}
	if lag != nil {
		seconds := int64(lag.Behind(now).Seconds())
		row.Lag, row.Behind = &lag.Records, &seconds
	}
	return row
}

// consumerList returns the command consumer ls.
func (a *app) consumerList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the consumers with their positions and lag",
		Long: `List the consumers: target, position, lag in records, age of the oldest waiting
record, dead letters, and the last error. The lag does not count records that the
filter of the consumer excludes.`,
		Example: "  ledger consumer ls\n  ledger consumer ls -o json | jq '.[] | select(.lag > 0)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.listConsumers(cmd.Context(), s) })
		},
	}
}

// listConsumers prints all consumers. It computes the lag of each from the log.
func (a *app) listConsumers(ctx context.Context, s *stores.Store) error {
	desk := a.Relay(s)
	all, err := desk.Consumers(ctx)
	if err != nil {
		return fault.Publishing(err)
	}
	rows := make([]consumerRow, len(all))
	for i, c := range all {
		lag, err := desk.Lag(ctx, c)
		if err != nil {
			return err
		}
		rows[i] = rowOfConsumer(c, &lag, a.Now())
	}
	return render.Rows(a.Printer, rows, func() { a.consumerTable(rows) })
}

// consumerTable prints consumers as a table. Each row has a lag.
func (a *app) consumerTable(rows []consumerRow) {
	t := render.Table{
		Head:  []string{"~NAME", "~TARGET", ">POSITION", ">LAG", "?>BEHIND", ">POISON", "~LAST ERROR"},
		Empty: "No consumers. ledger publish makes one.",
	}
	for _, r := range rows {
		trouble := ""
		if r.Error != nil {
			trouble = render.OneLine(*r.Error, render.TextWidth)
		}
		t.Add(r.Name, render.OneLine(r.Target, 60), r.Position.String(), strconv.FormatUint(*r.Lag, 10),
			render.Duration(time.Duration(*r.Behind)*time.Second), strconv.Itoa(r.Poison), trouble)
	}
	a.Table(t)
}

// consumerShow returns the command consumer show, which lists dead letters.
func (a *app) consumerShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "List the dead letters of a consumer",
		Example: "  ledger consumer show bus\n  ledger consumer show bus -o jsonl | jq -r .event",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				c, err := a.Relay(s).Consumer(cmd.Context(), args[0])
				if err != nil {
					return fault.Publishing(err)
				}
				return render.Rows(a.Printer, c.DeadLetters, func() { a.poisonTable(c) })
			})
		},
	}
}

// poisonTable prints the dead letters of a consumer. NEXT is "again" for one that the user
// asked to retry.
func (a *app) poisonTable(c publish.ConsumerState) {
	t := render.Table{
		Head:  []string{">POSITION", "STREAM", "?>REV", "~KIND", "?>TRIES", "NEXT", "~ERROR"},
		Empty: c.Name + " has nothing set aside.",
	}
	for _, p := range c.DeadLetters {
		next := "set aside"
		if p.Retry {
			next = "again"
		}
		t.Add(p.Position.String(), views.StreamName(p.Stream), strconv.FormatUint(uint64(p.Revision), 10), render.OneLine(p.Kind, 40),
			strconv.Itoa(p.Tries), next, render.OneLine(p.LastError.Text, render.TextWidth))
	}
	a.Table(t)
}

// consumerRetry returns the command consumer retry. It reports positions without a dead letter
// as not found after it has recorded the retry of the others.
func (a *app) consumerRetry() *cobra.Command {
	return &cobra.Command{
		Use: "retry NAME [POSITION...]", Short: "Publish dead letters again",
		Long: `Publish dead letters again: those at the given positions, or all. A running
consumer, in ledger publish or ledger serve, retries them within about a second;
any other when it runs next. They arrive out of order: later records of their
stream have been published before.`,
		Example: "  ledger consumer retry bus\n  ledger consumer retry bus 1204",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			var positions []events.Position
			for _, text := range args[1:] {
				p, err := events.ParsePosition(text)
				if err != nil {
					return fault.Usage("%q is not a position, such as 1204", text)
				}
				positions = append(positions, p)
			}
			return a.Write(cmd.Context(), func(s *stores.Store) error {
				n, err := a.Relay(s).Retry(cmd.Context(), args[0], positions...)
				if err != nil {
					return fault.Publishing(err)
				}
				if len(positions) > n {
					return fault.NotFound("ledger consumer show "+args[0]+" lists what is", "%d of %d positions are not set aside", len(positions)-n, len(positions))
				}
				return a.told("%s: %d records are published again, when it runs next or in a second", args[0], n)
			})
		},
	}
}

// consumerForget returns the command consumer forget.
func (a *app) consumerForget() *cobra.Command {
	return &cobra.Command{
		Use: "forget NAME", Short: "Remove a consumer and its dead letters",
		Long: `Remove a consumer, its position and its dead letters. Published records stay at the
target. A later run with the same name begins at its --from. A running consumer
cannot be removed.`,
		Example: "  ledger consumer forget bus",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Write(cmd.Context(), func(s *stores.Store) error {
				if err := a.Relay(s).Forget(cmd.Context(), args[0]); err != nil {
					return fault.Publishing(err)
				}
				return a.told("%s is forgotten", args[0])
			})
		},
	}
}

// told prints a confirmation if the format is a table. With -o json and jsonl it prints nothing:
// a program reads the exit status.
func (a *app) told(format string, args ...any) error {
	if a.Format == render.AsTable {
		a.Line(format, args...)
	}
	return nil
}

// completeConsumers completes the name of a consumer.
func (a *app) completeConsumers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	_ = a.Read(cmd.Context(), func(s *stores.Store) error { // a shell cannot show errors
		all, err := a.Relay(s).Consumers(cmd.Context())
		for _, c := range all {
			if strings.HasPrefix(c.Name, typed) {
				words = append(words, c.Name+"\t"+c.Target)
			}
		}
		return err
	})
	return words, cobra.ShellCompDirectiveNoFileComp
}
