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

// A StalenessPolicy decides when Settle rejects a call as stale, because the registration that the
// turn offered is no longer in effect.
type StalenessPolicy uint8

// The policies. The zero StalenessPolicy is Strict.
const (
	// Strict rejects a call unless the offered registration is in effect.
	Strict StalenessPolicy = iota
	// ByFingerprint rejects a call unless the definition in effect has the fingerprint
	// of the offered definition. Otherwise it runs the tool in effect.
	ByFingerprint
	// Admitted runs the offered tool whether or not it is still in effect. The registry
	// keeps the last tools that it offered in memory, 4,096 at least. A call of an older
	// one is stale unless the tool is in effect.
	Admitted
)

// A Before hook may rewrite the input of a call before the tool's codec decodes it. It
// returns the input to use. If it returns an error, panics or ends its goroutine, Settle
// ends the call as a defect and the tool does not run. If it does not return within the
// grace period of an interruption, Settle leaves it behind, like a tool. Several
// goroutines may call it for different calls.
type Before func(ctx context.Context, inv domain.Invocation, call domain.Call) (json.RawMessage, error)

// An After hook may rewrite the content of an output before Settle bounds it. It returns
// the content to use. Settle treats an error of the hook like an error of the tool: a
// Failure, Denied or Declined of package domain reaches the model, any other error is a
// defect. Panics and hangs are handled as for [Before].
type After func(ctx context.Context, inv domain.Invocation, call domain.Call, out domain.Output) (domain.Contents, error)

// DefaultGrace is the grace period of an interrupted call where Config.Grace is zero.
const DefaultGrace = 5 * time.Second

// A Config configures a [Registry]. Each field documents its zero value. The Registry
// keeps the slices Before and After, so the caller must not change their elements after
// [Layers.Registry] has returned.
type Config struct {
	// Outputs stores outputs over the limits. Nil: a call with such an output ends as
	// RetentionFailed.
	Outputs Outputs
	// Limits bound the size of a settlement. Zero: DefaultLimits.
	Limits Limits
	// Policy decides which calls are stale. Zero: Strict.
	Policy StalenessPolicy
	// Grace is the time after an interruption for each of these steps: decoding and the
	// hooks before, the tool, the hooks after, storing the output, recording the end.
	// Zero: DefaultGrace.
	Grace time.Duration
	// Before are the hooks before a tool, in the order in which they run.
	Before []Before
	// After are the hooks after a tool, in the order in which they run.
	After []After
}

// A Registry finds tools in an overlay of layers and settles calls to them. It is safe
// for concurrent use. It owns no goroutine and needs no Close; Layers.Close closes its
// layers.
type Registry struct {
	layers *Layers
	// overlay has the layers from the lowest to the highest, and ids their IDs.
	overlay []*Layer
	ids     []domain.LayerID
	config  Config

	// admitted has the last offered tools, for the policy Admitted only. When tools is
	// full it becomes older. While its lock is held, no other lock is held except
	// Layers.mu.
	admitted struct {
		sync.Mutex
		tools, older map[domain.Offered]domain.Tool
	}
}

// Registry returns a registry over layers of this process, ordered from the lowest to the
// highest: each layer hides the names of the layers before it. It returns ErrMisplaced if
// the placement of a layer is below that of its predecessor, and ErrBadLimits if
// config.Limits are too small to hold a reference to a retained output.
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

// maxAdmitted is the number of offered tools at which a registry begins to forget older ones.
const maxAdmitted = 4096

// admit stores the tool of an offered registration, for the policy Admitted.
func (r *Registry) admit(o domain.Offered, t domain.Tool) {
	r.admitted.Lock()
	defer r.admitted.Unlock()
	if _, known := r.admitted.tools[o]; !known && len(r.admitted.tools) >= maxAdmitted || r.admitted.tools == nil {
		r.admitted.older, r.admitted.tools = r.admitted.tools, map[domain.Offered]domain.Tool{}
	}
	r.admitted.tools[o] = t
}

// admittedTool returns the tool that admit stored for o, or the zero Tool if admit did
// not store one.
func (r *Registry) admittedTool(o domain.Offered) domain.Tool {
	r.admitted.Lock()
	defer r.admitted.Unlock()
	if t, ok := r.admitted.tools[o]; ok {
		return t
	}
	return r.admitted.older[o]
}
