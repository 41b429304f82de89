package eventstoredb

import (
	"context"
	"fmt"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// A Skew is how far the clock of a node is ahead of that of this machine, below
// zero: behind, give or take Within.
type Skew struct{ Ahead, Within time.Duration }

// Skew compares the clock of the server with that of this machine, by the time at
// which the server says that it made the event at a revision of a stream: one
// whose append was sent at one moment and answered at another. It is nil for a
// server that gives back the time of the record. An event that is not there is
// events.ErrDamaged.
func (s *Store) Skew(ctx context.Context, stream events.Stream, at events.Revision, sent, received time.Time) (skew *Skew, err error) {
	ctx, release := s.withStoreLifetime(ctx)
	defer release()
	name, exists := s.namespace+string(stream), false
	err = s.consume(ctx, func() fetchFunc { return readEvents(name, esdb.Forwards, esdb.Revision(uint64(at)-1), nil, 1) }, func(m serverMessage) (bool, error) {
		exists = true
		e, err := s.entry(stream, m.event)
		if err == nil && !e.Time.Equal(m.event.CreatedDate) {
			w := skewBounds{}
			w.narrow(m.event.CreatedDate, 0, sent, received)
			skew = w.skew()
		}
		return false, err
	})
	if class, _ := classify(err); err == nil && !exists || err != nil && class == notFound {
		err = fmt.Errorf("%w: entry %d is not there", events.ErrDamaged, at)
	}
	if err != nil {
		return nil, fmt.Errorf("compare clocks by %s: %w", stream, err)
	}
	return skew, nil
}

// skewBounds are those between which a clock is ahead of the one here.
type skewBounds struct {
	known     bool
	low, high time.Duration
}

// narrow notes a time that was told between two moments here, and that is cut
// off to whole steps.
func (w *skewBounds) narrow(serverTime time.Time, step time.Duration, sent, received time.Time) {
	low, high := serverTime.Sub(received), serverTime.Add(step).Sub(sent)
	if !w.known {
		*w = skewBounds{true, low, high}
	}
	w.low, w.high = max(w.low, low), min(w.high, high)
}

// skew returns what lies between the bounds, and nil where nothing does: a clock
// that was set meanwhile tells no time.
func (w *skewBounds) skew() *Skew {
	if !w.known || w.high < w.low {
		return nil
	}
	return &Skew{Ahead: (w.low + w.high) / 2, Within: (w.high - w.low) / 2}
}
