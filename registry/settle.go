package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
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
	key := callKey{inv.Session, inv.Message, call.ID}
	inv.Call = call.ID
	return m.registry.layers.calls.settle(ctx, key, call, func(over <-chan struct{}) (domain.Settlement, error) {
		recorded, err := j.Recorded(ctx, inv.Message, call.ID)
		switch {
		case err != nil:
			return domain.Settlement{}, fmt.Errorf("settle %s %s: %w", ShortName(call.Name), call.ID, err)
		case (recorded.Began || recorded.Settlement != nil) && !sameCall(recorded.Call, call):
			return domain.Settlement{}, conflict(call)
		case recorded.Settlement != nil:
			return *recorded.Settlement, nil
		case recorded.Began:
			return domain.Settlement{}, fmt.Errorf("settle %s %s: %w", ShortName(call.Name), call.ID, ErrBegan)
		}
		s := &settling{m: m, journal: j, inv: inv, call: call, over: over}
		return s.settle(ctx)
	})
}

// A settling is one call on its way to its end.
type settling struct {
	m       *Materialization
	journal Journal
	inv     domain.Invocation
	call    domain.Call
	found   found
	input   json.RawMessage // after hooks, where they changed it
	start   domain.EventID  // zero until the call began
	last    lastProgress
	tool    handover
	over    <-chan struct{} // closed when the settling is over
	end     domain.EventID  // the end on record; zero where there is none; read after over
}

func (s *settling) settle(ctx context.Context) (domain.Settlement, error) {
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
	r := s.run(ctx, bound)
	id := s.id()
	return s.record(ctx, id, s.conclude(ctx, id, r))
}

func (s *settling) id() domain.EventID { return s.m.registry.layers.ledger.Mint().Event() }

// prepare goes as far as nothing outside the process can have changed. If it
// returns an end, the call ends there.
func (s *settling) prepare(ctx context.Context) (bound domain.Bound, end *domain.Settlement) {
	offered, ok := s.m.offer.Find(s.call.Name)
	if !ok {
		return bound, &domain.Settlement{Outcome: domain.UnknownTool, Text: "Unknown tool: " + ShortName(s.call.Name)}
	}
	s.found = s.m.find(offered)
	if s.found.changedBy.IsZero() && s.found.effective.Registration != offered.Registration {
		s.found.changedBy = s.displaced(ctx, offered)
	}
	if s.found.tool.IsZero() {
		return bound, &domain.Settlement{Outcome: domain.Stale, Text: "Stale tool call: " + s.call.Name}
	}
	until, cancel := s.grace(ctx)
	defer cancel()
	input, end := s.before(ctx, until)
	if end != nil {
		return bound, end
	}
	st := step{"the codec of " + s.call.Name, domain.InterruptedBefore, func(err error) domain.Settlement {
		if errors.Is(err, domain.ErrInvalidInput) {
			text := fmt.Sprintf("Invalid tool input: %v. Rewrite the input so that it fits the schema of %s.", err, s.call.Name)
			return domain.Settlement{Outcome: domain.InvalidInput, Text: text}
		}
		return broken(err)
	}}
	r := await(ctx, until, s, st, func() (domain.Bound, error) { return s.found.tool.Bind(input) })
	return r.value, r.end
}

// displaced returns the event since which a registration of a layer that this
// process does not have, such as that of a dead one, is out of effect there. A
// log that cannot be read keeps no call from its end: the event is zero then.
func (s *settling) displaced(ctx context.Context, offered domain.Offered) domain.EventID {
	ctx, cancel := s.grace(ctx)
	defer cancel()
	layers := s.m.registry.layers
	state, err := projections.Fold(layers.fold, layers.fold.Init(), layers.ledger.Read(ctx, events.LayerStream(offered.Layer), 0))
	if err != nil {
		return domain.EventID{}
	}
	event, _ := state.Displaced([]domain.LayerID{offered.Layer}, offered)
	return event
}

// before runs the hooks before the tool, each on its own goroutine and with an
// input of its own, and returns the input to decode.
func (s *settling) before(ctx, until context.Context) (json.RawMessage, *domain.Settlement) {
	input := s.call.Input
	st := step{"the hook before " + s.call.Name, domain.InterruptedBefore, func(err error) domain.Settlement {
		if ctx.Err() != nil {
			return domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx)))
		}
		return broken(hookError("before", s.call.Name, err))
	}}
	for _, hook := range s.m.registry.config.Before {
		call := s.call
		call.Input = bytes.Clone(input)
		r := await(ctx, until, s, st, func() (json.RawMessage, error) {
			made, err := hook(ctx, s.inv, call)
			return bytes.Clone(made), err
		})
		if r.end != nil {
			return nil, r.end
		}
		input = r.value
	}
	if sameJSON(input, s.call.Input) {
		return input, nil
	}
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	if !json.Valid(input) {
		end := broken(fmt.Errorf("run hooks before %s: the input that they made is not JSON", s.call.Name))
		return nil, &end
	}
	s.input = input
	return input, nil
}

// outranked lets an interruption outrank an error of a hook that came of it.
func outranked(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", domain.ErrInterrupted, context.Cause(ctx))
}

func (s *settling) begin(ctx context.Context) error {
	d := s.m.registry.layers.ledger.Draft(events.CallStarted{
		Turn: s.m.offer.Turn, Message: s.inv.Message, Call: s.call.ID, Tool: s.call.Name,
		Offered: s.found.offered, Effective: s.found.runs, Input: s.input,
		Idempotent: s.found.tool.Idempotent(), Process: s.m.registry.layers.process,
	}, domain.EventID{})
	if err := s.journal.Begin(ctx, d); err != nil {
		return err
	}
	s.start = d.ID
	return nil
}

// beginFailed ends a call whose start could not be recorded, and whose tool thus
// does not run. A start that can never be recorded ends it as a defect. If the
// call was interrupted, its end says that it began unless the journal refused
// the start: a start whose outcome is open is on record before the end is. In
// any other case there is no end.
func (s *settling) beginFailed(ctx context.Context, err error) (domain.Settlement, error) {
	switch {
	case errors.Is(err, events.ErrTooLarge), errors.Is(err, events.ErrBadRecord):
		s.input = nil // it is what is too large, and would be in the end too
		return s.record(ctx, s.id(), broken(fmt.Errorf("record start: %w", err)))
	case ctx.Err() == nil:
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record start: %w", s.call.Name, s.call.ID, err)
	case events.Refused(err):
		return s.record(ctx, s.id(), domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx))))
	}
	return s.record(ctx, s.id(), domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx))))
}
