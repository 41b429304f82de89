package runner

import (
	"context"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// checkOwner returns ErrElsewhere if a step would end calls or permission requests of
// another process that may be alive. A call that has not begun belongs to the process
// whose layers its turn offered. The calls of a turn that this run took belong to this
// run. A step that asks the model needs no check, because it ends no call.
func (c *runState) checkOwner(ctx context.Context, next step) error {
	if c.config.Elsewhere == nil {
		return nil
	}
	var calls []openCall
	switch next := next.(type) {
	case loseCalls:
		calls = next.calls
	case dismissAsks:
	case endAdded:
		calls = next.calls
	case settleCalls:
		calls = next.calls
	case refuseCalls:
		calls = next.calls
	default:
		return nil
	}
	if c.session.Turn != nil && c.session.Turn.Turn == c.turn {
		return nil
	}
	other, err := c.config.Elsewhere(ctx, layersOf(c.session, calls))
	if err != nil {
		return fmt.Errorf("run session %s: %w", c.session.Session, err)
	}
	if !other.IsZero() {
		return fmt.Errorf("run session %s: %w: %s", c.session.Session, ErrElsewhere, other)
	}
	return nil
}

// layersOf returns the layers that identify the process of open calls, each once: the
// layers of the tools that the last turn offered or hid, of the tools offered to the
// open calls, and of the tools under which these calls began. If the last turn has no
// layers, the layers of the last reply whose offer has any take their place.
func layersOf(s *conversation.State, open []openCall) (layers []domain.LayerID) {
	add := func(tool domain.Offered) {
		if !tool.Layer.IsZero() && !slices.Contains(layers, tool.Layer) {
			layers = append(layers, tool.Layer)
		}
	}
	if s.Turn != nil {
		for _, tool := range s.Turn.Tools {
			add(tool)
		}
		for _, hidden := range s.Turn.Hidden {
			add(hidden.Offered)
		}
	}
	if len(layers) == 0 {
		for _, tool := range s.Offered {
			add(tool)
		}
	}
	for _, call := range open {
		for _, tool := range call.offer.Tools {
			add(tool)
		}
		if call.Started != nil {
			add(call.Started.Effective)
		}
	}
	return layers
}
