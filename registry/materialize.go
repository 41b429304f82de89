package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// A TurnSpec identifies a turn and the facts that decide its offer.
type TurnSpec struct {
	// ID is the ID of the turn, which the caller mints.
	ID domain.TurnID
	// Facts decide which tools the turn offers: the rules, the tools that the agent
	// lists, and the conditions that a tool declares. Without rules, no rule hides a
	// tool.
	Facts domain.TurnFacts
}

// Materialize fixes the offer of a turn: the tools that are in effect now, without those
// that a rule or an unmet condition hides from the model. It appends no event for the
// turn; the caller records the offer. The description of a tool that describes itself
// for each turn is made here; if that fails, the turn has the registered description.
//
// Materialize first records all pending closings of the registry's layers. If the ledger
// refuses one of them, Materialize returns ErrUnrecorded, because an offer must not
// depend on a closing that the log lacks.
func (r *Registry) Materialize(ctx context.Context, turn TurnSpec) (*Materialization, error) {
	if err := r.rlockFlushed(ctx); err != nil {
		return nil, fmt.Errorf("materialize turn: %w", err)
	}
	m := &Materialization{registry: r, offer: domain.Offer{Turn: turn.ID}}
	tools := m.resolveOfferLocked(turn.Facts)
	r.layers.mu.RUnlock()
	m.describe(ctx, tools, turn.Facts)
	return m, nil
}

// resolveOfferLocked fixes the offer, the hidden tools and the registered definitions. It
// returns the offered tools in the order of the offer. The caller holds the lock of
// Layers for reading.
func (m *Materialization) resolveOfferLocked(facts domain.TurnFacts) (tools []domain.Tool) {
	r := m.registry
	for _, e := range r.layers.mu.catalog.Catalog(r.ids) {
		if hidden, is := Hide(e, facts); is {
			m.hidden = append(m.hidden, hidden)
			continue
		}
		tool := r.layers.mu.tools[e.Registration][e.Name]
		m.offer.Tools = append(m.offer.Tools, e.Offered)
		m.definitions = append(m.definitions, definition(e))
		tools = append(tools, tool)
		if r.config.Policy == Admitted {
			r.admit(e.Offered, tool)
		}
	}
	return tools
}

// describe replaces the definitions of tools that describe themselves for the turn. Each
// such tool runs on its own goroutine, and all of them share one grace period of the
// registry. A tool that panics or takes longer keeps its registered description.
func (m *Materialization) describe(ctx context.Context, tools []domain.Tool, facts domain.TurnFacts) {
	made := map[int]chan string{}
	for i, tool := range tools {
		if !tool.DescribesTurns() {
			continue
		}
		text := make(chan string, 1)
		made[i] = text
		m.registry.layers.calls.spawn(func() {
			defer close(text)
			if described, err := tool.DescribeTurn(facts); err == nil {
				text <- described
			}
		})
	}
	until, cancel := context.WithTimeout(ctx, m.registry.config.Grace)
	defer cancel()
	for i, text := range made {
		select {
		case described := <-text:
			m.setDescription(i, described)
		case <-until.Done():
			select {
			case described := <-text:
				m.setDescription(i, described)
			default:
			}
		}
	}
}

// setDescription sets the description that a tool made for the turn, cut to the limits.
// An empty text changes nothing.
func (m *Materialization) setDescription(tool int, text string) {
	d := &m.definitions[tool]
	if text == "" || text == d.Description {
		return
	}
	d.Description = m.registry.config.Limits.Cut(text)
	if m.described == nil {
		m.described = map[domain.Name]string{}
	}
	m.described[d.Name] = d.Description
}

// Hide returns the record of a tool that a turn with the given facts does not offer, and
// true, or false if the turn offers the tool. A rule comes before the list of the agent,
// and this list before the conditions of the tool. Hide is a pure function, so an
// auditor can compute the offer of a recorded turn again.
func Hide(e catalog.ToolEntry, f domain.TurnFacts) (events.HiddenTool, bool) {
	if rule, hidden := f.Rules.Hides(e.Tool.Action); hidden {
		return events.HiddenTool{Offered: e.Offered, Rule: rule}, true
	}
	if unlisted, ok := f.Lists(e.Name); !ok {
		return events.HiddenTool{Offered: e.Offered, Unmet: []domain.UnmetCondition{unlisted}}, true
	}
	if unmet := e.Tool.Available.Unmet(f); len(unmet) > 0 {
		return events.HiddenTool{Offered: e.Offered, Unmet: unmet}, true
	}
	return events.HiddenTool{}, false
}

// rlockFlushed records the pending events of the registry's layers. It returns nil with
// the lock of Layers held for reading, while no layer of the registry has pending
// events. A scope may close while another layer's events are recorded, so rlockFlushed
// checks again under the lock. The caller unlocks layers.mu after nil. After an error
// no lock is held.
func (r *Registry) rlockFlushed(ctx context.Context) error {
	for {
		for _, l := range r.overlay {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
		r.layers.mu.RLock()
		if !slices.ContainsFunc(r.ids, func(id domain.LayerID) bool { return r.layers.mu.unrecorded[id] }) {
			return nil
		}
		r.layers.mu.RUnlock()
	}
}

// definition returns the part of a catalog entry that a provider sends to the model.
func definition(e catalog.ToolEntry) domain.Definition {
	return domain.Definition{Name: e.Name, Description: e.Tool.Description, Input: e.Tool.Input, Output: e.Tool.Output}
}

// Recall returns the materialization of a turn that is already on record, to settle the
// calls of the reply. The materialization has no definitions, since the model has
// received them. Recall copies the offer.
func (r *Registry) Recall(offer domain.Offer) *Materialization {
	return &Materialization{registry: r, offer: domain.Offer{Turn: offer.Turn, Tools: slices.Clone(offer.Tools)}}
}

// A Materialization is the offer of one turn. It stores the identity of each registration
// and not its tool, so Settle compares the offer with the registrations in effect when
// the call arrives. It is immutable and safe for concurrent use.
type Materialization struct {
	registry    *Registry
	offer       domain.Offer
	hidden      []events.HiddenTool
	definitions []domain.Definition
	// described has the descriptions that were made for this turn.
	described map[domain.Name]string
}

// Described returns the descriptions that were made for this turn, by name. The caller
// must not change the map. It is empty after Recall.
func (m *Materialization) Described() map[domain.Name]string { return m.described }

// Definitions returns the tool definitions to send to the model, in the order of the
// offer. It returns an empty slice after Recall. The caller owns the slice.
func (m *Materialization) Definitions() []domain.Definition { return slices.Clone(m.definitions) }

// Offer returns the offered names and their registrations, as the event TurnMaterialized
// stores them. The caller owns the slice of tools.
func (m *Materialization) Offer() domain.Offer {
	return domain.Offer{Turn: m.offer.Turn, Tools: slices.Clone(m.offer.Tools)}
}

// Hidden returns the tools that are in effect and hidden from the model, each with the
// rule or the conditions that hide it. The caller owns the slice. It is empty after
// Recall.
func (m *Materialization) Hidden() []events.HiddenTool { return slices.Clone(m.hidden) }
