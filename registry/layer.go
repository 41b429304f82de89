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

// Layers manages the layers of one process. It holds the catalog, folded from the
// events that it appends, the tools of each registration, and the calls in flight. It
// is safe for concurrent use.
//
// Every change is an event in the stream of its layer. A registration takes effect
// when its event is durable. A closing takes effect at once; its event is pending
// until it is recorded. [Registry.Materialize] records pending events first, or
// fails.
//
// If an opening or a registration fails with an unknown outcome, its event may be on
// record. Layers then closes that layer or registration, and both events are pending.
// It repeats the append of a pending event unchanged until the event is certain to be
// on record. The catalog therefore always equals the fold of the log and the pending
// events, without what closed long ago.
type Layers struct {
	ledger  *events.Ledger
	process domain.ProcessID
	fold    projections.Projection[*catalog.State]
	calls   inflightCalls
	mu      struct {
		sync.RWMutex
		// catalog is the fold of the events of all layers, without the older endings.
		catalog *catalog.State
		// tools has the tools of the open registrations.
		tools map[domain.RegistrationID]map[domain.Name]domain.Tool
		// unrecorded has the layers with events in the catalog that may not be on record.
		unrecorded map[domain.LayerID]bool
		// open has the layers that may be open on record, in order of opening.
		open []*Layer

		closed bool
	}
}

// NewLayers returns the Layers of a process, without any layer. It appends no event and
// starts no goroutine.
func NewLayers(ledger *events.Ledger, process domain.ProcessID) *Layers {
	ls := &Layers{ledger: ledger, process: process, fold: catalog.Projection()}
	ls.calls.mu.calls = map[inflightKey]*inflightCall{}
	ls.mu.catalog = ls.fold.Init()
	ls.mu.tools = map[domain.RegistrationID]map[domain.Name]domain.Tool{}
	ls.mu.unrecorded = map[domain.LayerID]bool{}
	return ls
}

// Process returns the process that owns the layers.
func (ls *Layers) Process() domain.ProcessID { return ls.process }

// Application opens a layer that all locations of the process share, and returns once its
// event is durable. It returns ErrClosed after Close, or the error of the append.
func (ls *Layers) Application(ctx context.Context) (*Layer, error) {
	return ls.open(ctx, events.LayerOpened{Placement: domain.Application})
}

// Location opens a layer for one directory or workspace, which its argument names. It
// returns the errors of Application.
func (ls *Layers) Location(ctx context.Context, location string) (*Layer, error) {
	return ls.open(ctx, events.LayerOpened{Placement: domain.Location, Location: location})
}

// Session opens a layer for one session. It returns the errors of Application.
func (ls *Layers) Session(ctx context.Context, session domain.SessionID) (*Layer, error) {
	return ls.open(ctx, events.LayerOpened{Placement: domain.PerSession, Session: session})
}

// open records a layer with a new ID, and returns it.
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

// openLocked records the opening of a layer. If the outcome of the append is unknown,
// it queues the opening and a closing as pending events, so that the log never holds an
// open layer that no process closes.
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

// add lists a layer that is about to be opened, so that Close closes it. It returns
// ErrClosed after Close.
func (ls *Layers) add(l *Layer) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.mu.closed {
		return ErrClosed
	}
	ls.mu.open = append(ls.mu.open, l)
	return nil
}

// remove unlists a layer whose closing is on record, or whose opening is certainly not
// on record.
func (ls *Layers) remove(l *Layer) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.mu.open = slices.DeleteFunc(ls.mu.open, func(o *Layer) bool { return o == l })
}

// Close closes all open layers, and the layers whose opening has an unknown outcome.
// Later openings return ErrClosed. Close returns the joined errors of the layers whose
// closing it could not record; a second Close retries these.
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

// Wait returns nil when no tool or hook runs, or the cause of ctx. It also waits for tools
// that were left behind after their grace period.
func (ls *Layers) Wait(ctx context.Context) error { return ls.calls.waitIdle(ctx) }

// apply folds recorded events into the catalog and drops the tools of registrations
// that the events close. Readers see either all of the events or no event of them.
func (ls *Layers) apply(vs ...events.Envelope) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.applyLocked(vs)
}

// applyPending folds events that take effect before they are on record, and marks the
// layer as having pending events until allRecorded is called.
func (ls *Layers) applyPending(l domain.LayerID, vs ...events.Envelope) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.mu.unrecorded[l] = true
	ls.applyLocked(vs)
}

// allRecorded unmarks a layer whose applied events are all on record.
func (ls *Layers) allRecorded(l domain.LayerID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.mu.unrecorded, l)
}

// keptEndings is the number of closed registrations and layers that the catalog keeps at
// least. The event that made an older offer stale is read from the log.
const keptEndings = 64

// applyLocked folds events into the catalog. The caller holds mu.
func (ls *Layers) applyLocked(vs []events.Envelope) {
	for _, v := range vs {
		ls.mu.catalog = ls.fold.Apply(ls.mu.catalog, v)
		ls.dropClosedLocked(v.Event)
	}
	ls.mu.catalog.Forget(keptEndings)
}

// dropClosedLocked drops the tools of the registrations that an event closes, after the
// catalog has folded it. The caller holds mu.
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

// A Layer holds registrations of tools. Within a layer the latest registration of a name
// is in effect. It is safe for concurrent use.
type Layer struct {
	layers    *Layers
	id        domain.LayerID
	placement domain.Placement

	// mu is held during an append to the layer's stream, so that the catalog folds events
	// in stream order. It is locked before Layers.mu. Callers wait for a slow append.
	mu struct {
		sync.Mutex
		// revision is the length of the layer's stream that is known to be on record.
		revision events.Revision
		// pending has the batches of events that are not known to be on record, in
		// stream order. They are closings in effect, or events of unknown outcome.
		pending [][]events.Draft
		// closed is set when the layer is out of effect.
		closed bool
	}
}

// ID returns the layer's ID.
func (l *Layer) ID() domain.LayerID { return l.id }

// Scope returns a new scope of the layer. A plugin receives a scope and no layer, so it
// can close its own registrations only. A scope has no event of its own.
func (l *Layer) Scope() *Scope {
	return &Scope{layer: l, id: l.layers.ledger.Mint().Scope()}
}

// Close takes the layer and its registrations out of effect at once, and records their
// closing. It returns the errors of [Scope.Close]. A second Close only retries the
// events that could not be recorded.
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

// appendLocked records pending events, then drafts, and applies drafts to the catalog. It
// returns ErrUnrecorded if a pending event could not be recorded, and otherwise the error
// of the append of drafts. The caller holds mu.
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

// closeLocked applies closings to the catalog at once, all together, and queues their
// events as pending. The caller holds mu, and then calls flushLocked.
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

// envelope returns a draft in the form in which the catalog folds it. It has no revision
// and no position, which the catalog does not read.
func (l *Layer) envelope(d events.Draft) events.Envelope {
	return events.Envelope{ID: d.ID, Stream: events.LayerStream(l.id), Time: d.Time, Causation: d.Causation, Event: d.Event}
}

// flushLocked appends pending events in the same batches as in earlier tries, because
// the store accepts a repeated append only if it has the same events at the same
// revision. If an append fails, flushLocked keeps that batch and the later ones and
// returns ErrUnrecorded. The caller holds mu.
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

// flush is flushLocked for a caller that does not hold mu.
func (l *Layer) flush(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flushLocked(ctx)
}

// register records a registration and puts it into effect. It returns ErrClosed if
// closed is set, which means that the scope is closed. After an error no tool of the
// registration is in effect: if the append has an unknown outcome, register queues a
// closing.
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

// retractLocked queues a registration that may be on record, and its closing, as pending.
// The catalog folds both, as a reader of the log will. The caller holds mu.
func (l *Layer) retractLocked(d events.Draft) {
	closing := l.layers.ledger.Draft(events.RegistrationClosed{
		Registration: domain.RegistrationOf(d.ID), Reason: "registration failed",
	}, d.ID)
	l.layers.applyPending(l.id, l.envelope(d), l.envelope(closing))
	l.mu.pending = append(l.mu.pending, []events.Draft{d}, []events.Draft{closing})
}

// appendedNothing reports whether err proves that the append added no event.
func appendedNothing(err error) bool {
	return errors.Is(err, events.ErrConflict) || errors.Is(err, events.ErrBadRecord) ||
		errors.Is(err, events.ErrTooLarge) || errors.Is(err, events.ErrClosed)
}

// storeTools stores the tools of a registration before its event is appended, so that no
// reader finds a registration without tools. It copies the map, so later changes by the
// caller have no effect.
func (ls *Layers) storeTools(id domain.RegistrationID, registered []events.RegisteredTool, tools Tools) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	byName := make(map[domain.Name]domain.Tool, len(registered))
	for _, t := range registered {
		byName[t.Name] = tools[string(t.Name)]
	}
	ls.mu.tools[id] = byName
}

// dropTools removes the tools of a registration that was not recorded.
func (ls *Layers) dropTools(id domain.RegistrationID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.mu.tools, id)
}
