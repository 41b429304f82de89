package registry

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
)

// Settle brings a call to its one end and returns that, once it is on record.
// Asked again about the same call it joins the settling that runs, or returns
// the settlement on record and runs nothing; with another tool or input it
// returns ErrCallConflict. A call that is on record as begun, and is not
// settled here, is ErrBegan: recovery ends it.
//
// Its order is: resolve the name, compare with the offer, run the hooks before,
// decode, record the start, run, encode, present, run the hooks after, bound
// and keep, record the end. Any other error is that of the journal or of the
// ledger, and then the call has no end on record that Settle knows of. If ctx
// ends, the tool is given the grace of the registry to return; the end is
// recorded all the same.
func (m *Materialization) Settle(ctx context.Context, j Journal, inv domain.Invocation, call domain.Call) (domain.Settlement, error) {
	key := inflightKey{inv.Session, inv.Message, call.ID}
	inv.Call = call.ID
	return m.registry.layers.calls.once(ctx, key, call, func(done <-chan struct{}) (domain.Settlement, error) {
		recorded, err := j.Recorded(ctx, inv.Message, call.ID)
		switch {
		case err != nil:
			return domain.Settlement{}, fmt.Errorf("settle %s %s: %w", ShortName(call.Name), call.ID, err)
		case (recorded.Began || recorded.Settlement != nil) && !sameCall(recorded.Call, call):
			return domain.Settlement{}, conflictError(call)
		case recorded.Settlement != nil:
			return *recorded.Settlement, nil
		case recorded.Began:
			return domain.Settlement{}, fmt.Errorf("settle %s %s: %w", ShortName(call.Name), call.ID, ErrBegan)
		}
		s := &callExec{m: m, journal: j, inv: inv, call: call, done: done}
		return s.settle(ctx)
	})
}

// A callExec is one call on its way to its end.
type callExec struct {
	m        *Materialization
	journal  Journal
	inv      domain.Invocation
	call     domain.Call
	resolved resolution
	input    json.RawMessage // after hooks, where they changed it
	start    domain.EventID  // zero until the call began
	last     lastProgress
	tool     resultHandoff
	done     <-chan struct{} // closed when the settling is over
	end      domain.EventID  // the end on record; zero where there is none; read after over
}

func (s *callExec) settle(ctx context.Context) (domain.Settlement, error) {
	bound, end := s.prepare(ctx)
	if end != nil {
		return s.record(ctx, s.id(), *end)
	}
	if ctx.Err() != nil {
		return s.record(ctx, s.id(), domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx))))
	}
	if err := s.begin(ctx); err != nil {
		return s.beginFailed(ctx, err)
	}
	r := s.runTool(ctx, bound)
	id := s.id()
	return s.record(ctx, id, s.conclude(ctx, id, r))
}

func (s *callExec) id() domain.EventID { return s.m.registry.layers.ledger.Mint().Event() }
