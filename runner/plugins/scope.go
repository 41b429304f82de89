package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
)

// A layerScope is the PluginScope of one plugin in a layer.
type layerScope struct {
	layer *registry.Layer
	mu    struct {
		sync.Mutex
		// whole has the registrations that belong to no part.
		whole *registry.Scope
		// parts has the scope of the latest content of each part.
		parts  map[string]*registry.Scope
		closed bool
	}
}

// newLayerScope returns an empty scope in a layer.
func newLayerScope(l *registry.Layer) *layerScope {
	s := &layerScope{layer: l}
	s.mu.whole, s.mu.parts = l.Scope(), map[string]*registry.Scope{}
	return s
}

// Register implements PluginScope.
func (s *layerScope) Register(ctx context.Context, tools map[string]domain.Tool) error {
	return s.mu.whole.Register(ctx, tools)
}

// RegisterValid implements PluginScope.
func (s *layerScope) RegisterValid(ctx context.Context, tools map[string]domain.Tool, refused map[string]error) (map[string]error, error) {
	return registerIn(ctx, s.mu.whole, tools, refused)
}

// Replace implements PluginScope.
func (s *layerScope) Replace(ctx context.Context, part string, tools map[string]domain.Tool, refused map[string]error) (map[string]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, fmt.Errorf("replace %s: %w", part, registry.ErrClosed)
	}
	next := s.layer.Scope()
	all, err := registerIn(ctx, next, tools, refused)
	if err != nil {
		return nil, fmt.Errorf("replace %s: %w", part, err)
	}
	last := s.mu.parts[part]
	s.mu.parts[part] = next
	if len(tools)+len(refused) == 0 {
		delete(s.mu.parts, part)
	}
	if last != nil {
		if err := last.Close(ctx); err != nil {
			return all, fmt.Errorf("replace %s: %w", part, err)
		}
	}
	return all, nil
}

// registerIn registers the valid tools of a list in a scope, and records and returns the
// refused entries by name. A name in both lists is refused for both reasons.
func registerIn(ctx context.Context, in *registry.Scope, tools registry.Tools, refused map[string]error) (map[string]error, error) {
	var given []registry.Refusal
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		reason := refused[name]
		if reason == nil {
			reason = errors.New("the plugin gave no reason")
		}
		given = append(given, registry.Refusal{Name: name, Err: reason})
	}
	recorded, err := in.RegisterValid(ctx, tools, given...)
	if err != nil {
		return nil, err
	}
	all := map[string]error{}
	for _, r := range recorded {
		all[r.Name] = errors.Join(all[r.Name], r.Err)
	}
	return all, nil
}

// close takes all registrations of the scope out of effect and prevents later ones. It
// returns the joined errors of the closings that could not be recorded. A second close
// tries these closings again.
func (s *layerScope) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	errs := []error{s.mu.whole.Close(ctx)}
	for _, part := range slices.Sorted(maps.Keys(s.mu.parts)) {
		errs = append(errs, s.mu.parts[part].Close(ctx))
	}
	return errors.Join(errs...)
}
