package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
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
	layers  *Layers
	overlay []*Layer
	ids     []domain.LayerID
	config  Config

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
		config.Outputs = noOutputs{}
	}
	if config.Grace == 0 {
		config.Grace = DefaultGrace
	}
	r := &Registry{layers: ls, overlay: slices.Clone(over), config: config}
	for i, l := range over {
		if i > 0 && l.placement < over[i-1].placement {
			return nil, fmt.Errorf("overlay layers: %w: %s over %s", ErrMisplaced, l.placement, over[i-1].placement)
		}
		r.ids = append(r.ids, l.id)
	}
	return r, nil
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
