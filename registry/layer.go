package registry

import (
	"context"
	"errors"
	"fmt"
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
	calls   inflightCalls
	mu      struct {
		sync.RWMutex
		catalog    *catalog.State
		tools      map[domain.RegistrationID]map[domain.Name]domain.Tool
		unrecorded map[domain.LayerID]bool // the layers of which the catalog holds events that may not be on record
		open       []*Layer                // those that may be open on record, in the order in which they were opened
		closed     bool                    // no layer is opened any more
	}
}

// NewLayers returns the layers of a process, of which there are none yet.
func NewLayers(ledger *events.Ledger, process domain.ProcessID) *Layers {
	ls := &Layers{ledger: ledger, process: process, fold: catalog.Projection()}
	ls.calls.mu.calls = map[inflightKey]*inflightCall{}
	ls.mu.catalog = ls.fold.Init()
	ls.mu.tools = map[domain.RegistrationID]map[domain.Name]domain.Tool{}
	ls.mu.unrecorded = map[domain.LayerID]bool{}
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
	err := context.Cause(ctx)
	if err == nil {
		err = ls.add(l)
	}
	if err == nil {
		err = l.openLocked(ctx, e)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s layer: %w", e.Placement, err)
	}
	return l, nil
}

// openLocked records the opening of a layer. If its outcome is uncertain, the
// layer owes both its opening and its closing.
func (l *Layer) openLocked(ctx context.Context, e events.LayerOpened) error {
	d := l.layers.ledger.Draft(e, domain.EventID{})
	err := l.appendLocked(ctx, d)
	switch {
	case err == nil:
	case appendedNothing(err):
		l.layers.remove(l)
	default:
		l.mu.closed = true
		l.layers.applyPending(l.id, l.envelope(d))
		l.mu.pending = append(l.mu.pending, []events.Draft{d})
		l.closeLocked(events.LayerClosed{Layer: l.id, Reason: "opening failed"})
	}
	return err
}

// add keeps a layer that is about to be opened.
func (ls *Layers) add(l *Layer) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.mu.closed {
		return ErrClosed
	}
	ls.mu.open = append(ls.mu.open, l)
	return nil
}

// remove forgets a layer that is closed on record, or never was open there.
func (ls *Layers) remove(l *Layer) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.mu.open = slices.DeleteFunc(ls.mu.open, func(o *Layer) bool { return o == l })
}

// Close closes all layers that are open, and those whose opening has an
// uncertain outcome. No layer is opened afterwards: that is ErrClosed. It returns
// the joined errors of the layers that could not be closed on record; closing
// again tries these again.
func (ls *Layers) Close(ctx context.Context) error {
	ls.mu.Lock()
	ls.mu.closed = true
	open := slices.Clone(ls.mu.open)
	ls.mu.Unlock()
	var errs []error
	for _, l := range open {
		errs = append(errs, l.Close(ctx))
	}
	return errors.Join(errs...)
}

// Wait returns when no tool runs any more, or with the cause of ctx. Tools that
// outlived the grace of their interruption are among those it waits for.
func (ls *Layers) Wait(ctx context.Context) error { return ls.calls.waitIdle(ctx) }

// apply folds events that are on record and forgets the tools of what they
// closed. No reader sees the fold between two of them.
func (ls *Layers) apply(vs ...events.Envelope) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.applyLocked(vs)
}

// applyPending folds events that take effect before they are on record. The layer
// owes their record until settled is called.
func (ls *Layers) applyPending(l domain.LayerID, vs ...events.Envelope) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.mu.unrecorded[l] = true
	ls.applyLocked(vs)
}

// allRecorded says that all events of a layer that were applied are on record.
func (ls *Layers) allRecorded(l domain.LayerID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.mu.unrecorded, l)
}

func (ls *Layers) applyLocked(vs []events.Envelope) {
	for _, v := range vs {
		ls.mu.catalog = ls.fold.Apply(ls.mu.catalog, v)
		ls.dropClosedLocked(v.Event)
	}
}

// dropClosedLocked forgets the tools of what an event closed.
func (ls *Layers) dropClosedLocked(e events.Event) {
	switch e := e.(type) {
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
		pending  [][]events.Draft // in effect here, or uncertain, and not known to be on record; each appended as one
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
	err := l.flushLocked(ctx)
	if err == nil {
		l.layers.remove(l)
	}
	return err
}

// appendLocked puts drafts on record and in effect, behind what is owed.
func (l *Layer) appendLocked(ctx context.Context, drafts ...events.Draft) error {
	if err := l.flushLocked(ctx); err != nil {
		return err
	}
	envelopes, err := l.layers.ledger.Append(ctx, events.LayerStream(l.id), l.mu.revision, drafts...)
	if err != nil {
		return err
	}
	l.mu.revision += events.Revision(len(drafts))
	l.layers.apply(envelopes...)
	return nil
}

// closeLocked lets closings take effect at once, all together, and owes their
// record.
func (l *Layer) closeLocked(closings ...events.Event) {
	if len(closings) == 0 {
		return
	}
	drafts := make([]events.Draft, len(closings))
	applied := make([]events.Envelope, len(closings))
	for i, e := range closings {
		drafts[i] = l.layers.ledger.Draft(e, domain.EventID{})
		applied[i] = l.envelope(drafts[i])
	}
	l.layers.applyPending(l.id, applied...)
	l.mu.pending = append(l.mu.pending, drafts)
}

func (l *Layer) envelope(d events.Draft) events.Envelope {
	return events.Envelope{ID: d.ID, Stream: events.LayerStream(l.id), Time: d.Time, Causation: d.Causation, Event: d.Event}
}

// flushLocked records what is owed, each in the appends in which it was
// tried before: only then is it harmless to append again what is on record.
func (l *Layer) flushLocked(ctx context.Context) error {
	for len(l.mu.pending) > 0 {
		drafts := l.mu.pending[0]
		if _, err := l.layers.ledger.Append(ctx, events.LayerStream(l.id), l.mu.revision, drafts...); err != nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
		l.mu.revision += events.Revision(len(drafts))
		if l.mu.pending = l.mu.pending[1:]; len(l.mu.pending) == 0 {
			l.layers.allRecorded(l.id)
		}
	}
	return nil
}

func (l *Layer) flush(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flushLocked(ctx)
}

// register leaves nothing open: what it put on record is in effect, or is owed
// its closing.
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
	l.layers.storeTools(id, e.Tools, tools)
	if err := l.appendLocked(ctx, d); err != nil {
		l.layers.dropTools(id)
		if !errors.Is(err, ErrUnrecorded) && !appendedNothing(err) {
			l.retractLocked(d)
		}
		return domain.RegistrationID{}, err
	}
	return id, nil
}

// retractLocked owes a registration that may be on record, and its closing. The
// fold has both, as the log will.
func (l *Layer) retractLocked(d events.Draft) {
	closing := l.layers.ledger.Draft(events.RegistrationClosed{
		Registration: domain.RegistrationOf(d.ID), Reason: "registration failed",
	}, d.ID)
	l.layers.applyPending(l.id, l.envelope(d), l.envelope(closing))
	l.mu.pending = append(l.mu.pending, []events.Draft{d}, []events.Draft{closing})
}

// appendedNothing reports whether an append that returned err is known to have added
// nothing.
func appendedNothing(err error) bool {
	return errors.Is(err, events.ErrConflict) || errors.Is(err, events.ErrBadRecord) ||
		errors.Is(err, events.ErrTooLarge) || errors.Is(err, events.ErrClosed)
}

func (ls *Layers) storeTools(id domain.RegistrationID, registered []events.RegisteredTool, tools Tools) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	byName := make(map[domain.Name]domain.Tool, len(registered))
	for _, t := range registered {
		byName[t.Name] = tools[string(t.Name)]
	}
	ls.mu.tools[id] = byName
}

func (ls *Layers) dropTools(id domain.RegistrationID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.mu.tools, id)
}
