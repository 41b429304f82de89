package publishing

import (
	"context"
	"strconv"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A ConsumerRow is a consumer in results: the state that publishing saved, and its lag.
type ConsumerRow struct {
	Name      string           `json:"name"`
	Target    string           `json:"target"` // without credentials
	Topic     string           `json:"topic"`
	Only      publish.Filter   `json:"only"`        // selects the published records
	Position  events.Position  `json:"position"`    // each selected record through it is acknowledged or a dead letter
	Published uint64           `json:"published"`   // acknowledgements, including repeats
	Poison    int              `json:"poison"`      // the number of dead letters
	Lag       *uint64          `json:"lag"`         // selected records after Position
	Behind    *int64           `json:"lag_seconds"` // age of the oldest of them, in seconds
	Error     *string          `json:"last_error"`  // null: no error yet
	ErrorAt   render.Timestamp `json:"last_error_at"`
	Begun     render.Timestamp `json:"begun"` // when the consumer was created
	Saved     render.Timestamp `json:"saved"` // when Position was saved last
}

// newConsumerRow returns the row of a consumer. If lag is nil, the row has a null lag.
func newConsumerRow(c publish.ConsumerState, lag *publish.Lag, now time.Time) ConsumerRow {
	row := ConsumerRow{
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

// List prints all consumers of s. It reads the log to compute the lag of each consumer.
func List(ctx context.Context, c Config, s *stores.Store) error {
	relay := c.Relay(s)
	all, err := relay.Consumers(ctx)
	if err != nil {
		return fault.Publishing(err)
	}
	rows := make([]ConsumerRow, len(all))
	for i, state := range all {
		lag, err := relay.Lag(ctx, state)
		if err != nil {
			return err
		}
		rows[i] = newConsumerRow(state, &lag, c.Now())
	}
	return render.Rows(c.Printer, rows, func() { c.printConsumers(rows) })
}

// printConsumers prints consumers as a table. Each row has a lag.
func (c Config) printConsumers(rows []ConsumerRow) {
	t := render.Table{
		Head:  []string{"~NAME", "~TARGET", ">POSITION", ">LAG", "?>BEHIND", ">POISON", "~LAST ERROR"},
		Empty: "No consumers. ledger publish creates one.",
	}
	for _, r := range rows {
		lastError := ""
		if r.Error != nil {
			lastError = render.OneLine(*r.Error, render.TextWidth)
		}
		t.Add(r.Name, render.OneLine(r.Target, 60), r.Position.String(), strconv.FormatUint(*r.Lag, 10),
			render.Duration(time.Duration(*r.Behind)*time.Second), strconv.Itoa(r.Poison), lastError)
	}
	c.Table(t)
}

// ShowDeadLetters prints the dead letters of the consumer name. An unknown name is a
// fault with the code not_found.
func ShowDeadLetters(ctx context.Context, c Config, s *stores.Store, name string) error {
	state, err := c.Relay(s).Consumer(ctx, name)
	if err != nil {
		return fault.Publishing(err)
	}
	return render.Rows(c.Printer, state.DeadLetters, func() { c.printDeadLetters(state) })
}

// printDeadLetters prints the dead letters of a consumer as a table. In the column NEXT,
// "again" marks a record that the user has asked to retry.
func (c Config) printDeadLetters(state publish.ConsumerState) {
	t := render.Table{
		Head:  []string{">POSITION", "STREAM", "?>REV", "~KIND", "?>TRIES", "NEXT", "~ERROR"},
		Empty: state.Name + " has no dead letters.",
	}
	for _, p := range state.DeadLetters {
		next := "on request"
		if p.Retry {
			next = "again"
		}
		t.Add(p.Position.String(), views.StreamName(p.Stream), strconv.FormatUint(uint64(p.Revision), 10), render.OneLine(p.Kind, 40),
			strconv.Itoa(p.Tries), next, render.OneLine(p.LastError.Text, render.TextWidth))
	}
	c.Table(t)
}

// Retry requests that dead letters of the consumer name are published again: the dead
// letters at the given positions, or all dead letters if positions is empty. A running
// consumer publishes them within about a second, and a stopped consumer at its next run.
// If a position has no dead letter, Retry returns a not-found fault, but still records
// the request for the other positions.
func Retry(ctx context.Context, c Config, s *stores.Store, name string, positions []events.Position) error {
	n, err := c.Relay(s).Retry(ctx, name, positions...)
	if err != nil {
		return fault.Publishing(err)
	}
	if len(positions) > n {
		return fault.NotFound("ledger consumer show "+name+" lists the dead letters", "%d of %d positions have no dead letter", len(positions)-n, len(positions))
	}
	c.confirm("%s: %s to publish again, within a second or when it runs next", name, render.Count(n, "record"))
	return nil
}

// Forget removes the consumer name with its position and its dead letters. An unknown
// name is a fault with the code not_found, and a running consumer is a conflict fault.
func Forget(ctx context.Context, c Config, s *stores.Store, name string) error {
	if err := c.Relay(s).Forget(ctx, name); err != nil {
		return fault.Publishing(err)
	}
	c.confirm("%s is forgotten", name)
	return nil
}

// confirm prints a confirmation if the format is a table. With -o json and jsonl it prints
// nothing: a program reads the exit status.
func (c Config) confirm(format string, args ...any) {
	if c.Format == render.AsTable {
		c.Line(format, args...)
	}
}
