package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Tools are tools under the names by which a model is to know them.
type Tools map[string]domain.Tool

// A Refusal says why an entry of a list was not registered.
type Refusal struct {
	Name string // as it came; the event has the beginning of a long one
	Err  error
}

// A Scope owns registrations: closing it removes exactly those.
type Scope struct {
	layer *Layer
	id    domain.ScopeID
	mu    struct {
		sync.Mutex
		registrations []domain.RegistrationID
		closed        bool
	}
}

// ID returns the scope's ID.
func (s *Scope) ID() domain.ScopeID { return s.id }

// Register puts tools into effect, all or none, and returns once that is
// durable. What is registered does not change when the caller changes tools
// later. No tools are nothing to do. It returns domain.ErrBadName or
// domain.ErrBadTool, before anything is recorded, for an entry that cannot be
// registered; ErrClosed for a scope or layer that is closed; and the errors of
// the ledger, after which nothing is in effect.
func (s *Scope) Register(ctx context.Context, tools Tools) error {
	good, refused := splitValid(tools)
	if len(refused) > 0 {
		errs := make([]error, len(refused))
		for i, r := range refused {
			errs[i] = r.Err
		}
		return fmt.Errorf("register %d tools: %w", len(tools), errors.Join(errs...))
	}
	return s.register(ctx, tools, good, nil)
}

// RegisterValid puts the entries of a list into effect that can be, and
// records the others with the reason in the same event, so that one bad name
// never costs the rest. Its errors are those of Register but for the bad
// entries, which it returns.
func (s *Scope) RegisterValid(ctx context.Context, tools Tools) ([]Refusal, error) {
	good, refused := splitValid(tools)
	return refused, s.register(ctx, tools, good, refused)
}

// refusalLimits bound what is on record of why an entry was refused.
var refusalLimits = Limits{Lines: 16, Bytes: 1 << 10}

func (s *Scope) register(ctx context.Context, tools Tools, good []events.RegisteredTool, refused []Refusal) error {
	if len(good)+len(refused) == 0 {
		return nil
	}
	e := events.ToolsRegistered{Scope: s.id, Tools: append([]events.RegisteredTool{}, good...)}
	for _, r := range refused {
		e.Refused = append(e.Refused, events.RefusedTool{Name: ShortName(r.Name), Reason: refusalLimits.Cut(valid(r.Err.Error()))})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := s.layer.register(ctx, s.mu.closed, e, tools)
	if err != nil {
		return fmt.Errorf("register %d tools: %w", len(good), err)
	}
	s.mu.registrations = append(s.mu.registrations, id)
	return nil
}

// Close takes the scope's registrations out of effect at once, revealing what
// they hid, and returns once that is durable. If it cannot be recorded, Close
// returns an ErrUnrecorded and the layer refuses to materialize until it is;
// closing again tries again.
func (s *Scope) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layer
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.mu.closed {
		s.mu.closed = true
		l.closeLocked(s.closingsLocked()...)
	}
	if err := l.flushLocked(ctx); err != nil {
		return fmt.Errorf("close scope: %w", err)
	}
	return nil
}

// closingsLocked returns what takes the scope's registrations out of effect:
// nothing where the layer's closing has done that.
func (s *Scope) closingsLocked() (closings []events.Event) {
	if s.layer.mu.closed {
		return nil
	}
	for _, id := range s.mu.registrations {
		closings = append(closings, events.RegistrationClosed{Registration: id, Reason: events.ScopeClosed})
	}
	return closings
}

// splitValid parts tools, in the order of their names, into those that can be
// registered and those that cannot.
func splitValid(tools Tools) (good []events.RegisteredTool, refused []Refusal) {
	for _, text := range slices.Sorted(maps.Keys(tools)) {
		t, err := describe(text, tools[text])
		if err != nil {
			refused = append(refused, Refusal{text, err})
			continue
		}
		good = append(good, t)
	}
	return good, refused
}

func describe(text string, t domain.Tool) (events.RegisteredTool, error) {
	name, err := domain.ParseName(text)
	if err != nil {
		return events.RegisteredTool{}, err
	}
	if t.IsZero() {
		return events.RegisteredTool{}, fmt.Errorf("%s: %w: it is zero", name, domain.ErrBadTool)
	}
	d := t.Describe(name)
	action := t.Action(name)
	fingerprint, err := d.Fingerprint(action)
	if err != nil {
		return events.RegisteredTool{}, fmt.Errorf("%s: %w: %w", name, domain.ErrBadSchema, err)
	}
	return events.RegisteredTool{
		Name: name, Description: d.Description, Input: d.Input, Output: d.Output,
		Action: action, Fingerprint: fingerprint, Idempotent: t.Idempotent(),
	}, nil
}
