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
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// Layers are the layers of one process, and what is running under them. It
// holds of registrations what the log holds, folded as it appends, and beside
// that only the tools.
type Layers struct {
	ledger  *events.Ledger
	process domain.ProcessID
	fold    projections.Projection[*catalog.State]
	calls   running
	mu      struct {
		sync.RWMutex
		catalog *catalog.State
		tools   map[domain.RegistrationID]map[domain.Name]domain.Tool
	}
}

// NewLayers returns the layers of a process, of which there are none yet.
func NewLayers(ledger *events.Ledger, process domain.ProcessID) *Layers {
	ls := &Layers{ledger: ledger, process: process, fold: catalog.Projection()}
	ls.calls.mu.calls = map[callKey]*runningCall{}
	ls.mu.catalog = ls.fold.Init()
	ls.mu.tools = map[domain.RegistrationID]map[domain.Name]domain.Tool{}
	return ls
}

// Process returns the process whose layers these are.
func (ls *Layers) Process() domain.ProcessID { return ls.process }

// Application opens a layer that all locations of the process share.
func (ls *Layers) Application(ctx context.Context) (*Layer, error) {
	return ls.open(ctx, events.LayerOpened{Placement: domain.Application})
}

// Location opens a layer for one directory or workspace.
func (ls *Layers) Location(ctx context.Context, location string) (*Layer, error) {
	return ls.open(ctx, events.LayerOpened{Placement: domain.Location, Location: location})
}

// Session opens a layer for one session.
func (ls *Layers) Session(ctx context.Context, session domain.SessionID) (*Layer, error) {
	return ls.open(ctx, events.LayerOpened{Placement: domain.PerSession, Session: session})
}

func (ls *Layers) open(ctx context.Context, e events.LayerOpened) (*Layer, error) {
	e.Layer, e.Process = ls.ledger.Mint().Layer(), ls.process
	l := &Layer{layers: ls, id: e.Layer, placement: e.Placement}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.appendLocked(ctx, ls.ledger.Draft(e, domain.EventID{})); err != nil {
		return nil, fmt.Errorf("open %s layer: %w", e.Placement, err)
	}
	return l, nil
}

// Wait returns when no tool runs any more, or with the cause of ctx. Tools that
// outlived the grace of their interruption are among those it waits for.
func (ls *Layers) Wait(ctx context.Context) error { return ls.calls.wait(ctx) }

// apply folds an event that is on record, or a closing that takes effect at
// once, and forgets the tools of what it closed.
func (ls *Layers) apply(v events.Envelope) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.mu.catalog = ls.fold.Apply(ls.mu.catalog, v)
	switch e := v.Event.(type) {
	case events.RegistrationClosed:
		delete(ls.mu.tools, e.Registration)
	case events.LayerClosed:
		if layer, ok := ls.mu.catalog.Layer(e.Layer); ok {
			for _, r := range layer.Registrations {
				delete(ls.mu.tools, r.ID)
			}
		}
	}
}

// A Layer is a place for registrations. Within it the latest registration of a
// name is in effect.
type Layer struct {
	layers    *Layers
	id        domain.LayerID
	placement domain.Placement

	// mu is held while the layer's stream is appended to, so that the fold sees
	// the events in their order. It is taken before that of Layers.
	mu struct {
		sync.Mutex
		revision events.Revision
		owed     []events.Draft // in effect here, or uncertain, and not known to be on record
		closed   bool
	}
}

// ID returns the layer's ID.
func (l *Layer) ID() domain.LayerID { return l.id }

// Scope returns a new scope of the layer: all that a plugin is given.
func (l *Layer) Scope() *Scope {
	return &Scope{layer: l, id: l.layers.ledger.Mint().Scope()}
}

// Close takes the layer out of effect, with everything registered in it. It
// has the errors of [Scope.Close]. Closing again does nothing but record what
// could not be recorded before.
func (l *Layer) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.closed {
		l.mu.closed = true
		l.closeLocked(events.LayerClosed{Layer: l.id, Reason: events.ProcessEnded})
	}
	return l.settleOwedLocked(ctx)
}

// appendLocked puts drafts on record and in effect, behind what is owed.
func (l *Layer) appendLocked(ctx context.Context, drafts ...events.Draft) error {
	if err := l.settleOwedLocked(ctx); err != nil {
		return err
	}
	envelopes, err := l.layers.ledger.Append(ctx, events.LayerStream(l.id), l.mu.revision, drafts...)
	if err != nil {
		return err
	}
	l.mu.revision += events.Revision(len(drafts))
	for _, v := range envelopes {
		l.layers.apply(v)
	}
	return nil
}

// closeLocked lets a closing take effect at once, and owes its record.
func (l *Layer) closeLocked(e events.Event) {
	d := l.layers.ledger.Draft(e, domain.EventID{})
	l.layers.apply(events.Envelope{ID: d.ID, Stream: events.LayerStream(l.id), Time: d.Time, Event: e})
	l.mu.owed = append(l.mu.owed, d)
}

// settleOwedLocked records what is owed. Appending it again is harmless.
func (l *Layer) settleOwedLocked(ctx context.Context) error {
	if len(l.mu.owed) == 0 {
		return nil
	}
	_, err := l.layers.ledger.Append(ctx, events.LayerStream(l.id), l.mu.revision, l.mu.owed...)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	l.mu.revision += events.Revision(len(l.mu.owed))
	l.mu.owed = nil
	return nil
}

func (l *Layer) settleOwed(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settleOwedLocked(ctx)
}

// Tools are tools under the names by which a model is to know them.
type Tools map[string]domain.Tool

// A Refusal says why an entry of a list was not registered.
type Refusal struct {
	Name string
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
	good, refused := sift(tools)
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
	good, refused := sift(tools)
	return refused, s.register(ctx, tools, good, refused)
}

func (s *Scope) register(ctx context.Context, tools Tools, good []events.RegisteredTool, refused []Refusal) error {
	if len(good)+len(refused) == 0 {
		return nil
	}
	e := events.ToolsRegistered{Scope: s.id, Tools: good}
	for _, r := range refused {
		e.Refused = append(e.Refused, events.RefusedTool{Name: r.Name, Reason: r.Err.Error()})
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

// register is not interrupted once it began: what it put on record is in
// effect, or is owed its closing.
func (l *Layer) register(ctx context.Context, closed bool, e events.ToolsRegistered, tools Tools) (domain.RegistrationID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if closed || l.mu.closed {
		return domain.RegistrationID{}, ErrClosed
	}
	if ctx.Err() != nil {
		return domain.RegistrationID{}, context.Cause(ctx)
	}
	d := l.layers.ledger.Draft(e, domain.EventID{})
	id := domain.RegistrationOf(d.ID)
	l.layers.keep(id, e.Tools, tools)
	if err := l.appendLocked(ctx, d); err != nil {
		l.layers.forget(id)
		if !errors.Is(err, ErrUnrecorded) && !decided(err) {
			closing := events.RegistrationClosed{Registration: id, Reason: "registration failed"}
			l.mu.owed = append(l.mu.owed, d, l.layers.ledger.Draft(closing, d.ID))
		}
		return domain.RegistrationID{}, err
	}
	return id, nil
}

// decided reports whether an append that returned err is known to have added
// nothing.
func decided(err error) bool {
	return errors.Is(err, events.ErrConflict) || errors.Is(err, events.ErrBadRecord) ||
		errors.Is(err, events.ErrTooLarge) || errors.Is(err, events.ErrClosed)
}

func (ls *Layers) keep(id domain.RegistrationID, registered []events.RegisteredTool, tools Tools) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	kept := make(map[domain.Name]domain.Tool, len(registered))
	for _, t := range registered {
		kept[t.Name] = tools[string(t.Name)]
	}
	ls.mu.tools[id] = kept
}

func (ls *Layers) forget(id domain.RegistrationID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.mu.tools, id)
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
		for _, id := range s.mu.registrations {
			l.closeLocked(events.RegistrationClosed{Registration: id, Reason: events.ScopeClosed})
		}
	}
	if err := l.settleOwedLocked(ctx); err != nil {
		return fmt.Errorf("close scope: %w", err)
	}
	return nil
}

// sift parts tools, in the order of their names, into those that can be
// registered and those that cannot.
func sift(tools Tools) (good []events.RegisteredTool, refused []Refusal) {
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
