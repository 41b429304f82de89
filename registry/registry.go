package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/staleness"
)

// A Policy says when a call is refused because what the turn offered is not
// what is in effect.
type Policy uint8

// The policies. The zero Policy is Strict.
const (
	// Strict refuses a call unless the registration offered is in effect.
	Strict Policy = iota
	// ByFingerprint refuses a call unless the definition in effect is the one
	// offered, and runs what is in effect.
	ByFingerprint
	// Admitted runs what was offered, in effect or not, while the registry that
	// offered it lives: it keeps every tool that it ever offered.
	Admitted
)

// Before may rewrite the input of a call before it is decoded. It returns the
// input to use. An error, a panic or the end of its goroutine ends the call as a
// defect, before anything ran. Like a tool, a hook is left behind if it does not
// return within the grace of an interruption.
type Before func(ctx context.Context, inv domain.Invocation, call domain.Call) (json.RawMessage, error)

// After may rewrite what an output shows before it is bounded. It returns the
// content to use. An error ends the call as it would if the tool returned it, and
// is a defect unless it is one of package domain for the model. A hook that
// breaks or hangs is treated as one before the tool.
type After func(ctx context.Context, inv domain.Invocation, call domain.Call, out domain.Output) (domain.Contents, error)

// DefaultGrace is how long an interrupted call is given.
const DefaultGrace = 5 * time.Second

// A Config says how a registry settles calls.
type Config struct {
	Outputs Outputs       // keeps what is too large to show; nil: nothing does, and a call with such an output fails
	Limits  Limits        // zero: DefaultLimits
	Policy  Policy        // zero: Strict
	Grace   time.Duration // from an interruption, for each of: decoding and the hooks before, the tool, the hooks after, keeping the output, recording the end; zero: DefaultGrace
	Before  []Before      // run in order
	After   []After       // run in order
}

// A Registry finds tools in an overlay of layers and settles calls to them.
type Registry struct {
	layers *Layers
	over   []*Layer
	ids    []domain.LayerID
	config Config

	admitted struct { // for the policy Admitted
		sync.Mutex
		tools map[domain.Offered]domain.Tool
	}
}

// Registry returns the overlay of layers of this process, each hiding the ones
// before it. It returns ErrMisplaced if a layer's placement is below that of
// the one before, and ErrBadLimits for limits too small to hold a reference.
func (ls *Layers) Registry(config Config, over ...*Layer) (*Registry, error) {
	limits, err := config.Limits.checked()
	if err != nil {
		return nil, fmt.Errorf("overlay layers: %w", err)
	}
	config.Limits = limits
	if config.Outputs == nil {
		config.Outputs = nowhere{}
	}
	if config.Grace == 0 {
		config.Grace = DefaultGrace
	}
	r := &Registry{layers: ls, over: slices.Clone(over), config: config}
	for i, l := range over {
		if i > 0 && l.placement < over[i-1].placement {
			return nil, fmt.Errorf("overlay layers: %w: %s over %s", ErrMisplaced, l.placement, over[i-1].placement)
		}
		r.ids = append(r.ids, l.id)
	}
	return r, nil
}

// A Turn says for whom an offer is made.
type Turn struct {
	ID    domain.TurnID
	Rules domain.Rules // that hide tools from the model
}

// Materialize fixes what a turn may call: the tools in effect now that no rule
// hides. It returns ErrUnrecorded if a closing in one of the layers cannot be
// recorded: no turn is offered what a closing changed that is not on record.
func (r *Registry) Materialize(ctx context.Context, turn Turn) (*Materialization, error) {
	if err := r.rlockSettled(ctx); err != nil {
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

// rlockSettled records what the layers owe and returns with the lock of the
// Layers held for reading and nothing owed by any layer of r. A closing can come
// in one layer while another's is recorded, so it looks again under the lock.
func (r *Registry) rlockSettled(ctx context.Context) error {
	for {
		for _, l := range r.over {
			if err := l.settleOwed(ctx); err != nil {
				return err
			}
		}
		r.layers.mu.RLock()
		if !slices.ContainsFunc(r.ids, func(id domain.LayerID) bool { return r.layers.mu.owing[id] }) {
			return nil
		}
		r.layers.mu.RUnlock()
	}
}

func (r *Registry) admit(o domain.Offered, t domain.Tool) {
	r.admitted.Lock()
	defer r.admitted.Unlock()
	if r.admitted.tools == nil {
		r.admitted.tools = map[domain.Offered]domain.Tool{}
	}
	r.admitted.tools[o] = t
}

func (r *Registry) admittedTool(o domain.Offered) domain.Tool {
	r.admitted.Lock()
	defer r.admitted.Unlock()
	return r.admitted.tools[o]
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

// A found is what a name means at one moment.
type found struct {
	offered   domain.Offered
	effective domain.Offered
	changedBy domain.EventID
	tool      domain.Tool    // zero: the call is stale
	runs      domain.Offered // the registration that tool belongs to; zero where the call is stale
}

// find compares what was offered with what is in effect and captures the tool
// to run: from here on, registering and closing do not touch the call.
func (m *Materialization) find(offered domain.Offered) found {
	r := m.registry
	r.layers.mu.RLock()
	defer r.layers.mu.RUnlock()
	verdict := staleness.Judge(r.layers.mu.catalog, r.ids, offered)
	f := found{offered: offered, effective: verdict.Effective, changedBy: verdict.ChangedBy}
	inEffect := r.layers.mu.tools[verdict.Effective.Registration][offered.Name]
	switch r.config.Policy {
	case Strict:
		if !verdict.Stale {
			f.tool, f.runs = inEffect, verdict.Effective
		}
	case ByFingerprint:
		if verdict.Agrees {
			f.tool, f.runs = inEffect, verdict.Effective
		}
	case Admitted:
		// What is in effect can have been offered by another registry.
		if f.tool, f.runs = r.admittedTool(offered), offered; f.tool.IsZero() && !verdict.Stale {
			f.tool = inEffect
		}
	}
	return f
}
