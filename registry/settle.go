package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// Settle runs a call to its end and returns the settlement once the journal has recorded
// it. A concurrent Settle of the same call joins the first and gets its result. If the
// journal already has a settlement, Settle returns it and runs no tool. It returns
// ErrCallConflict if the recorded or running call has another tool or input, and ErrBegan
// if the journal has a start without an end that this process is not settling: recovery
// ends such a call.
//
// The order is: resolve the name, compare the registration with the offer, run the hooks
// before, decode the input, record the start, run the tool, encode and present its
// output, run the hooks after, bound the output and retain the rest, record the end.
//
// Any other error comes from the journal or the ledger; then Settle does not know of an
// end on record. When ctx ends, the tool has the grace period of the registry to return.
// Settle records the end even though ctx has ended.
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

// A callExec executes one call. It holds the call's state from resolving the name to
// recording the end. One goroutine owns it. The goroutine of a tool that Settle left
// behind reads it only after done is closed.
type callExec struct {
	m       *Materialization
	journal Journal
	inv     domain.Invocation
	call    domain.Call
	// resolved is the offered registration compared with the one in effect. It is zero
	// for an unknown tool.
	resolved resolution
	// input is the input that the hooks made. Nil: they did not change the call's input.
	input json.RawMessage
	// start is the ID of the start. Zero: the start is not on record.
	start domain.EventID
	// started is the time at which the start was on record, and ran the time from then
	// to the return of the tool. Both are of the monotonic clock.
	started time.Time
	ran     time.Duration
	// last is the last progress that the tool reported.
	last lastProgress
	// tool hands the result of the tool over.
	tool resultHandoff
	// done is closed when Settle has its result.
	done <-chan struct{}
	// end is the ID of the recorded end. Zero: no end is on record. The tool's
	// goroutine reads it after done is closed.
	end domain.EventID
}

// settle runs the steps of a call in order: prepare (resolve.go), begin and runTool
// (execute.go), conclude (conclude.go), record (record.go).
func (s *callExec) settle(ctx context.Context) (domain.Settlement, error) {
	bound, end := s.prepare(ctx)
	if end != nil {
		return s.record(ctx, s.id(), *end)
	}
	if ctx.Err() != nil {
		return s.record(ctx, s.id(), domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx))))
	}
	if err := s.begin(ctx, bound); err != nil {
		return s.beginFailed(ctx, err)
	}
	r := s.runTool(ctx, bound)
	s.ran = time.Since(s.started)
	id := s.id()
	return s.record(ctx, id, s.conclude(ctx, id, r))
}

// id returns a new event ID for the end of the call. Outputs are stored under this ID
// before the end is recorded.
func (s *callExec) id() domain.EventID { return s.m.registry.layers.ledger.Mint().Event() }
