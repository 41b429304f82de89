package publish

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/events"
)

// A Start is the position at which a new consumer begins: the beginning of the log,
// its end at that time, or after a position. The zero Start is the beginning.
type Start struct {
	now   bool
	after events.Position
}

// Now returns the Start at the end that the log has when the consumer is created.
func Now() Start { return Start{now: true} }

// ParseStart parses "beginning", "now" or a position, after which to start. It
// is the inverse of [Start.String].
func ParseStart(text string) (Start, error) {
	switch text {
	case "beginning":
		return Start{}, nil
	case "now":
		return Now(), nil
	}
	p, err := events.ParsePosition(text)
	if err != nil {
		return Start{}, fmt.Errorf("parse start: %q is not beginning, now or a position: %w", text, err)
	}
	return Start{after: p}, nil
}

// String returns "beginning", "now" or the position, as [ParseStart] reads it.
func (s Start) String() string {
	switch {
	case s.now:
		return "now"
	case s.after.IsZero():
		return "beginning"
	}
	return s.after.String()
}

// UnmarshalText parses a Start as [ParseStart] does.
func (s *Start) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStart(string(text))
	return err
}

// position returns the position of s in a store. For Now it asks the store for its
// head or reads the last header; an empty log has the zero position.
func (s Start) position(ctx context.Context, store events.Store) (events.Position, error) {
	if !s.now {
		return s.after, nil
	}
	if headed, ok := store.(interface{ Head() events.Position }); ok {
		return headed.Head(), nil
	}
	for h, err := range events.Headers(ctx, store, events.Query{Backward: true}) {
		return h.Position, err
	}
	return events.Position{}, nil
}
