package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/staleness"
)

// prepare resolves the name, runs the hooks before the tool and decodes the input. No
// state outside the process has changed when it returns. If the call must end without
// running its tool, prepare returns that end: an unknown tool, a stale call, an invalid
// input, a defect or an interruption. Otherwise it returns the tool with its decoded
// input.
func (s *callExec) prepare(ctx context.Context) (bound domain.Bound, end *domain.Settlement) {
	offered, ok := s.m.offer.Find(s.call.Name)
	if !ok {
		return bound, &domain.Settlement{Outcome: domain.UnknownTool, Text: "Unknown tool: " + ShortName(s.call.Name)}
	}
	s.resolved = s.m.resolve(offered)
	if s.resolved.changedBy.IsZero() && s.resolved.effective.Registration != offered.Registration {
		s.resolved.changedBy = s.displacedBy(ctx, offered)
	}
	if s.resolved.tool.IsZero() {
		return bound, &domain.Settlement{Outcome: domain.Stale, Text: "Stale tool call: " + s.call.Name}
	}
	until, cancel := s.grace(ctx)
	defer cancel()
	input, end := s.runBeforeHooks(ctx, until)
	if end != nil {
		return bound, end
	}
	st := foreignStep{"the codec of " + s.call.Name, domain.InterruptedBefore, func(err error) domain.Settlement {
		if errors.Is(err, domain.ErrInvalidInput) {
			return domain.Settlement{Outcome: domain.InvalidInput, Text: invalidInputText(s.call.Name, err)}
		}
		return defective(err)
	}}
	r := await(ctx, until, s, st, func() (domain.Bound, error) { return s.resolved.tool.Bind(input) })
	return r.value, r.end
}

// invalidInputText returns the text for the model about an input that does not fit: the
// tool's own text, if it has one, or a text that lists every violation.
func invalidInputText(name string, err error) string {
	if fault, ok := errors.AsType[*domain.ValidationError](err); ok && fault.OwnText() != "" {
		return fault.OwnText()
	}
	return fmt.Sprintf("Invalid tool input: %v. Rewrite the input so that it fits the schema of %s.", err, name)
}

// A resolution is the result of looking up an offered registration.
type resolution struct {
	// offered is the registration that the turn offered.
	offered domain.Offered
	// effective is the registration of the name that is in effect, or zero.
	effective domain.Offered
	// changedBy is the event that made effective differ from offered. Zero: they are
	// equal, or the event is unknown.
	changedBy domain.EventID
	// tool is the tool to run. Zero: the call is stale.
	tool domain.Tool
	// runs is the registration of the tool to run. Zero: the call is stale.
	runs domain.Offered
}

// resolve compares the offered registration with the one in effect and captures the tool
// to run, according to the Policy. Later registrations and closings do not change a call
// that has been resolved.
func (m *Materialization) resolve(offered domain.Offered) resolution {
	r := m.registry
	r.layers.mu.RLock()
	defer r.layers.mu.RUnlock()
	compared := staleness.Compare(r.layers.mu.catalog, r.ids, offered)
	f := resolution{offered: offered, effective: compared.Effective, changedBy: compared.ChangedBy}
	inEffect := r.layers.mu.tools[compared.Effective.Registration][offered.Name]
	switch r.config.Policy {
	case Strict:
		if !compared.Stale {
			f.tool, f.runs = inEffect, compared.Effective
		}
	case ByFingerprint:
		if compared.Agrees {
			f.tool, f.runs = inEffect, compared.Effective
		}
	case Admitted:
		// Another registry may have offered the registration in effect.
		if f.tool, f.runs = r.admittedTool(offered), offered; f.tool.IsZero() && !compared.Stale {
			f.tool = inEffect
		}
	}
	return f
}

// displacedBy returns the event that took an offered registration out of effect. It
// serves registrations that the catalog has forgotten, and those in a layer that this
// process does not have, such as the layer of a dead process. It reads the streams of the
// layer and of the layers over it within the grace period. If a read fails it returns the
// zero ID: a missing cause must not keep the call from its end.
func (s *callExec) displacedBy(ctx context.Context, offered domain.Offered) domain.EventID {
	ctx, cancel := s.grace(ctx)
	defer cancel()
	layers, ids := s.m.registry.layers, []domain.LayerID{offered.Layer}
	if i := slices.Index(s.m.registry.ids, offered.Layer); i >= 0 {
		ids = s.m.registry.ids[i:]
	}
	var history []events.Envelope
	for _, id := range ids {
		for v, err := range layers.ledger.Read(ctx, events.LayerStream(id), 0) {
			if err != nil {
				return domain.EventID{}
			}
			history = append(history, v)
		}
	}
	slices.SortStableFunc(history, func(a, b events.Envelope) int { return a.Position.Compare(b.Position) })
	state := layers.fold.Init()
	for _, v := range history {
		state = layers.fold.Apply(state, v)
	}
	event, _ := state.Displaced(ids, offered)
	return event
}

// runBeforeHooks runs the hooks before the tool in order, and returns the input to
// decode. Each hook runs on its own goroutine and gets its own copy of the input. If
// the hooks changed the input, runBeforeHooks stores it in s.input. If a hook fails, or
// the resulting input is not JSON, it returns the end of the call and no input.
func (s *callExec) runBeforeHooks(ctx, until context.Context) (json.RawMessage, *domain.Settlement) {
	input := s.call.Input
	st := foreignStep{"the hook before " + s.call.Name, domain.InterruptedBefore, func(err error) domain.Settlement {
		if ctx.Err() != nil {
			return domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx)))
		}
		return defective(hookError("before", s.call.Name, err))
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
		end := defective(fmt.Errorf("run hooks before %s: the input that they made is not JSON", s.call.Name))
		return nil, &end
	}
	s.input = input
	return input, nil
}

// hookError wraps the error of a hook with the name of the tool. when is "before" or
// "after": the side of the tool on which the hook runs.
func hookError(when, name string, err error) error {
	return fmt.Errorf("run hook %s %s: %w", when, name, err)
}
