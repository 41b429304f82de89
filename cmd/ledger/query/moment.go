package query

import (
	"context"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// A Moment is the point at which the registry is shown: the state after the event at
// a position, or after all events up to a time. The zero Moment is now.
type Moment struct {
	Position events.Position // zero: no bound
	Time     time.Time       // compared with the times of the events; zero: no bound
}

// ParseMoment parses a moment. A position behind the end of the log is a fault.
func ParseMoment(ctx context.Context, p *render.Printer, s *stores.Store, text string) (Moment, error) {
	if text == "now" {
		return Moment{}, nil
	}
	if position, err := events.ParsePosition(text); err == nil {
		end, err := s.Head(ctx)
		if err != nil {
			return Moment{}, err
		}
		if position.Compare(end) > 0 {
			return Moment{}, fault.NotFound("", "no position %s: the last is %s", position, end)
		}
		if position.IsZero() {
			return Moment{}, fault.NotFound("", "no position 0: the first event is behind it")
		}
		return Moment{Position: position}, nil
	}
	at, _, err := p.ParseTime(text)
	if err != nil {
		return Moment{}, fault.Usage("registry at: %q is not a position, a time or now", text)
	}
	return Moment{Time: at}, nil
}

// CatalogAt returns the catalog at a moment. For the present it uses the checkpoint;
// for an earlier moment it folds the log from the beginning.
func CatalogAt(ctx context.Context, s *stores.Store, m Moment) (*catalog.State, error) {
	projection := catalog.Projection()
	if m == (Moment{}) {
		return stores.Current(ctx, s, projection)
	}
	state := projection.Init()
	for v, err := range s.Ledger.ReadAll(ctx, events.Position{}) {
		if err != nil {
			return nil, err
		}
		if !m.Position.IsZero() && v.Position.Compare(m.Position) > 0 {
			break
		}
		if m.Time.IsZero() || !v.Time.After(m.Time) {
			state = projection.Apply(state, v)
		}
	}
	return state, nil
}
