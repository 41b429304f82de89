package registry

import (
	"context"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// A Turn says for whom an offer is made.
type TurnSpec struct {
	ID    domain.TurnID
	Rules domain.Rules // that hide tools from the model
}

// Materialize fixes what a turn may call: the tools in effect now that no rule
// hides. It returns ErrUnrecorded if a closing in one of the layers cannot be
// recorded: no turn is offered what a closing changed that is not on record.
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

// rlockFlushed records what the layers owe and returns with the lock of the
// Layers held for reading and nothing owed by any layer of r. A closing can come
// in one layer while another's is recorded, so it looks again under the lock.
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

func definition(e catalog.Entry) domain.Definition {
	return domain.Definition{Name: e.Name, Description: e.Tool.Description, Input: e.Tool.Input, Output: e.Tool.Output}
}

// Recall returns the materialization of a turn already on record, to settle
// the calls of its reply. It defines nothing: it was offered before.
func (r *Registry) Recall(offer domain.Offer) *Materialization {
	return &Materialization{registry: r, offer: domain.Offer{Turn: offer.Turn, Tools: slices.Clone(offer.Tools)}}
}

// A Materialization is what one turn may call. It keeps the identity of each
// registration and never its tool.
type Materialization struct {
	registry    *Registry
	offer       domain.Offer
	hidden      []events.HiddenTool
	definitions []domain.Definition
}

// Definitions returns what the model is to be told, in order: none after
// Recall.
func (m *Materialization) Definitions() []domain.Definition { return slices.Clone(m.definitions) }

// Offer returns the names and the registrations offered for them, as
// TurnMaterialized keeps it.
func (m *Materialization) Offer() domain.Offer {
	return domain.Offer{Turn: m.offer.Turn, Tools: slices.Clone(m.offer.Tools)}
}

// Hidden returns the tools in effect that are not offered.
func (m *Materialization) Hidden() []events.HiddenTool { return slices.Clone(m.hidden) }
