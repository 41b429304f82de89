package query

import (
	"context"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// ParseMoment parses a moment. A position behind the end of the log is a fault.
func ParseMoment(ctx context.Context, p *render.Printer, s *stores.Store, text string) (index.Moment, error) {
	if text == "now" {
		return index.Moment{}, nil
	}
	if position, err := events.ParsePosition(text); err == nil {
		end, err := s.Head(ctx)
		if err != nil {
			return index.Moment{}, err
		}
		if position.Compare(end) > 0 {
			return index.Moment{}, fault.NotFound("", "no position %s: the last is %s", position, end)
		}
		if position.IsZero() {
			return index.Moment{}, fault.NotFound("", "no position 0: the first event is behind it")
		}
		return index.Moment{Position: position}, nil
	}
	at, _, err := p.ParseTime(text)
	if err != nil {
		return index.Moment{}, fault.Usage("registry at: %q is not a position, a time or now", text)
	}
	return index.Moment{Time: at}, nil
}
