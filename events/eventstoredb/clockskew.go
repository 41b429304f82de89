package eventstoredb

import (
	"context"
	"fmt"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// A Skew is the measured difference between the clock of a node and the clock of this
// machine. Ahead is positive if the clock of the node is ahead. The true difference is
// between Ahead-Within and Ahead+Within.
type Skew struct{ Ahead, Within time.Duration }

// Skew measures the difference of the clocks of the server and this machine by the time
// at which the server created an event. The event is the entry with revision at in the
// stream. The caller appended it after the local time sent and before the local time
// received. Skew returns nil if the server reports the time of the record instead of
// its own, and events.ErrDamaged if the entry does not exist.
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

// skewBounds are the least and the greatest difference that the samples so far allow.
type skewBounds struct {
	known     bool
	low, high time.Duration
}

// narrow adds a sample: between the local times sent and received, the server's clock
// showed serverTime. The server truncated serverTime to a multiple of step.
func (w *skewBounds) narrow(serverTime time.Time, step time.Duration, sent, received time.Time) {
	low, high := serverTime.Sub(received), serverTime.Add(step).Sub(sent)
	if !w.known {
		*w = skewBounds{true, low, high}
	}
	w.low, w.high = max(w.low, low), min(w.high, high)
}

// skew returns the middle of the bounds as Ahead, and half of the distance between the
// bounds as Within. It returns nil if there is no sample, or if the samples contradict
// each other because a clock was set between them.
func (w *skewBounds) skew() *Skew {
	if !w.known || w.high < w.low {
		return nil
	}
	return &Skew{Ahead: (w.low + w.high) / 2, Within: (w.high - w.low) / 2}
}
