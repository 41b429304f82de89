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

// Tools maps the names that a model uses to tools.
type Tools map[string]domain.Tool

// A Refusal reports an entry of a list that was not registered.
type Refusal struct {
	// Name is the name as passed. The event has the beginning of a long name.
	Name string
	// Err is the reason. It matches domain.ErrBadName, domain.ErrBadTool or
	// domain.ErrBadSchema, or it is the error that the caller passed.
	Err error
}

// A Scope owns registrations: closing it takes exactly these out of effect. It is safe
// for concurrent use. The lock of a scope is acquired before the lock of its layer.
type Scope struct {
	layer *Layer
	id    domain.ScopeID
	mu    struct {
		sync.Mutex
		// registrations has the registrations that the scope put into effect, in order.
		registrations []domain.RegistrationID
		closed        bool
	}
}

// ID returns the scope's ID.
func (s *Scope) ID() domain.ScopeID { return s.id }

// Register puts either all tools into effect or no tool, and returns once the
// registration is durable. It copies the map. An empty map has no effect. If an entry
// cannot be registered, Register records nothing and returns domain.ErrBadName or
// domain.ErrBadTool. It returns ErrClosed if the scope or its layer is closed. After an
// error of the ledger no tool of the list is in effect.
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

// RegisterValid registers the valid entries of a list and returns the refused ones. One
// event records both, the refused entries with their reasons, so that one bad name does
// not cost the other tools. The caller passes the entries of the list that it could not
// make a tool of as unusable; they are recorded and returned first. RegisterValid
// returns the errors of Register, except for bad entries.
func (s *Scope) RegisterValid(ctx context.Context, tools Tools, unusable ...Refusal) ([]Refusal, error) {
	good, invalid := splitValid(tools)
	refused := append(slices.Clip(unusable), invalid...)
	return refused, s.register(ctx, tools, good, refused)
}

// refusalLimits bound the recorded reason of a refused entry.
var refusalLimits = Limits{Lines: 16, Bytes: 1 << 10}

// register appends one event for the valid and the refused entries of a list. It appends
// no event for an empty list.
func (s *Scope) register(ctx context.Context, tools Tools, good []events.RegisteredTool, refused []Refusal) error {
	if len(good)+len(refused) == 0 {
		return nil
	}
	e := events.ToolsRegistered{Scope: s.id, Tools: append([]events.RegisteredTool{}, good...)}
	for _, r := range refused {
		e.Refused = append(e.Refused, events.RefusedTool{Name: ShortName(valid(r.Name)), Reason: refusalLimits.Cut(valid(r.Err.Error()))})
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

// Close takes the scope's registrations out of effect at once. Registrations of the
// same names that they hid are then in effect. Close returns once the closings are
// durable. If they cannot be recorded, Close returns ErrUnrecorded; a second Close
// tries again, and Materialize fails until they are on record. A call that has begun is
// not changed.
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

// closingsLocked returns the closing events of the scope's registrations, or nil if its
// layer is already closed. The caller holds the locks of the scope and its layer.
func (s *Scope) closingsLocked() (closings []events.Event) {
	if s.layer.mu.closed {
		return nil
	}
	for _, id := range s.mu.registrations {
		closings = append(closings, events.RegistrationClosed{Registration: id, Reason: events.ScopeClosed})
	}
	return closings
}

// splitValid separates tools, in the order of their names, into valid ones in their
// recorded form and refused ones.
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

// describe returns the recorded form of a tool, or the error for which the tool cannot be
// registered.
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
		Action: action, Fingerprint: fingerprint, Idempotent: t.Idempotent(), AsksFirst: t.AsksFirst(), Available: t.Available(),
	}, nil
}
