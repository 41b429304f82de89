package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// A TurnSpec identifies a turn and the rules that apply to its offer.
type TurnSpec struct {
	// ID is the ID of the turn, which the caller mints.
	ID domain.TurnID
	// Rules hide tools from the model. Nil: no tool is hidden.
	Rules domain.Rules
}

// Materialize fixes the offer of a turn: the tools that are in effect now and that no
// rule hides from the model. It appends no event for the turn; the caller records the
// offer. It first records all pending closings of the registry's layers. If the ledger
// refuses one of them, Materialize returns ErrUnrecorded, because an offer must not
// depend on a closing that the log lacks.
func (r *Registry) Materialize(ctx context.Context, turn TurnSpec) (*Materialization, error) {
	if err := r.rlockFlushed(ctx); err != nil {
		return nil, fmt.Errorf("materialize turn: %w", err)
	}
	defer r.layers.mu.RUnlock()
	m := &Materialization{registry: r, offer: domain.Offer{Turn: turn.ID}}
	for _, e := range r.layers.mu.catalog.Catalog(r.ids) {
		if rule, hidden := turn.Rules.Hides(e.Tool.Action); hidden {
			m.hidden = append(m.hidden, events.HiddenTool{Offered: e.Offered, Rule: rule})
			continue
		}
		m.offer.Tools = append(m.offer.Tools, e.Offered)
		m.definitions = append(m.definitions, definition(e))
		if r.config.Policy == Admitted {
			r.admit(e.Offered, r.layers.mu.tools[e.Registration][e.Name])
		}
	}
	return m, nil
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
}

// Definitions returns the tool definitions to send to the model, in the order of the
// offer. It returns an empty slice after Recall. The caller owns the slice.
func (m *Materialization) Definitions() []domain.Definition { return slices.Clone(m.definitions) }

// Offer returns the offered names and their registrations, as the event TurnMaterialized
// stores them. The caller owns the slice of tools.
func (m *Materialization) Offer() domain.Offer {
	return domain.Offer{Turn: m.offer.Turn, Tools: slices.Clone(m.offer.Tools)}
}

// Hidden returns the tools that are in effect and that a rule hides from the model, each
// with its rule. The caller owns the slice. It is empty after Recall.
func (m *Materialization) Hidden() []events.HiddenTool { return slices.Clone(m.hidden) }
