package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A Lag is the distance of a consumer from the end of the log.
type Lag struct {
	// Records counts the records that the consumer has yet to publish.
	Records uint64
	// Oldest is the time of the first of these records, or zero if Records is zero.
	Oldest time.Time
}

// Behind returns the age of the oldest record of l, or 0 if l counts no record.
func (l Lag) Behind(now time.Time) time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Oldest))
}

// add counts a record with the time at. The caller adds records in log order, so the
// first one is the oldest.
func (l *Lag) add(at time.Time) {
	if l.Records++; l.Records == 1 {
		l.Oldest = at
	}
}

// Lag counts the records after the position of a consumer that its filter selects,
// without its dead letters. It scans that part of the log. It reads only the headers,
// unless the filter selects tools or agents, which are in the data of the records.
func (d *Relay) Lag(ctx context.Context, c ConsumerState) (l Lag, err error) {
	query := events.Query{Filter: c.Filter.storeFilter(), After: c.Position}
	if len(c.Filter.Tools)+len(c.Filter.Agents) > 0 {
		err = d.countMatching(ctx, c.Filter, query, &l)
	} else {
		for h, scanning := range events.Headers(ctx, d.store, query) {
			if err = scanning; err != nil {
				break
			}
			l.add(h.Time)
		}
	}
	if err != nil {
		return Lag{}, fmt.Errorf("count the lag of %s: %w", c.Name, err)
	}
	return l, nil
}

// countMatching counts the records of a query that match the tools and agents of a
// filter. It decodes each record.
func (d *Relay) countMatching(ctx context.Context, filter Filter, query events.Query, l *Lag) error {
	agents := agentCache{store: d.store, agents: map[string]string{}}
	for e, err := range events.Scan(ctx, d.store, query) {
		if err != nil {
			return err
		}
		attrs := attributesOf(e)
		if attrs.agent, err = agents.agentOf(ctx, attrs.session); err != nil {
			return err
		}
		if filter.accepts(attrs) {
			l.add(e.Time)
		}
	}
	return nil
}
