package query

import (
	"context"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// OutputRef returns the reference of an output. If id is a reference, it returns id
// itself. Otherwise id identifies a call, and OutputRef returns the reference of that
// call's text output, or of another output if the call has no text output. A call
// without a retained output is a not-found error.
func OutputRef(ctx context.Context, s *stores.Store, id string) (domain.Ref, error) {
	if domain.IsRef(id) {
		return domain.ParseRef(id)
	}
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return domain.Ref{}, err
	}
	c, err := Call(state, id)
	if err != nil {
		return domain.Ref{}, err
	}
	retained := c.Settlement.Retained
	if len(retained) == 0 {
		return domain.Ref{}, fault.NotFound("ledger call show "+id+" prints what the model read of it", "call %s has no output that is kept whole", c.ID)
	}
	// A call may keep several outputs; the model reads the text.
	for _, r := range retained {
		if r.Ref.Channel() == domain.TextChannel {
			return r.Ref, nil
		}
	}
	return retained[0].Ref, nil
}
