package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A Lag says how far a consumer is behind the end of the log.
type Lag struct {
	Records uint64    // that it is to publish
	Oldest  time.Time // when the first of them happened; zero if there is none
}

// Behind returns how long the first record of l waits.
func (l Lag) Behind(now time.Time) time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Oldest))
}

// add counts a record that happened at a time.
func (l *Lag) add(at time.Time) {
	if l.Records++; l.Records == 1 {
		l.Oldest = at
	}
}

// Lag counts the records between a consumer and the end of the log that it is to
// publish. What was set aside is not among them. Where it asks for some tools or
// agents the records are read, and else their headers.
func (d *Desk) Lag(ctx context.Context, c Consumer) (l Lag, err error) {
	before := events.Query{Filter: c.Only.filter(), After: c.Position}
	if len(c.Only.Tools)+len(c.Only.Agents) > 0 {
		err = d.lagAmong(ctx, c.Only, before, &l)
	} else {
		for h, scanning := range events.Headers(ctx, d.store, before) {
			if err = scanning; err != nil {
				break
			}
			l.add(h.Time)
		}
	}
	if err != nil {
		return Lag{}, fmt.Errorf("count what %s has before it: %w", c.Name, err)
	}
	return l, nil
}

// lagAmong counts the records of a query that only lets through.
func (d *Desk) lagAmong(ctx context.Context, only Only, before events.Query, l *Lag) error {
	known := agents{store: d.store, known: map[string]string{}}
	for e, err := range events.Scan(ctx, d.store, before) {
		if err != nil {
			return err
		}
		of := particularsOf(e)
		if of.agent, err = known.of(ctx, of.session); err != nil {
			return err
		}
		if only.takes(of) {
			l.add(e.Time)
		}
	}
	return nil
}
