package query

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// OutputRef returns the reference of an output of the call that id identifies: of its text
// output, or of another output if the call has no text output. A call without a retained
// output is a not-found error.
func OutputRef(ctx context.Context, s *stores.Store, r *index.Snapshot, id string) (domain.Ref, error) {
	c, err := Call(r, id)
	if err != nil {
		return domain.Ref{}, err
	}
	retained, err := retainedOf(ctx, s, c)
	if err != nil {
		return domain.Ref{}, err
	}
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

// retainedOf returns the outputs that the settlement of a call names, which it reads from
// the log.
func retainedOf(ctx context.Context, s *stores.Store, c calls.Call) ([]domain.Retained, error) {
	if c.SettledBy.IsZero() {
		return nil, nil
	}
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(c.Session), c.SettledAt.Revision-1) {
		if err != nil {
			return nil, err
		}
		if e, ok := v.Event.(events.CallSettled); ok && v.ID == c.SettledBy {
			return e.Retained, nil
		}
		break
	}
	return nil, fmt.Errorf("%w: %s of call %s is not at revision %d of its session", index.ErrDamagedIndex, c.SettledBy, c.ID, c.SettledAt.Revision)
}
