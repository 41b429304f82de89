package index

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/staleness"
)

// A Moment is a point of the log: after the event at a position, or after all events up to
// a time by their own times. The zero Moment is the end of the log.
type Moment struct {
	Position events.Position // zero: no bound
	Time     time.Time       // zero: no bound
}

// has reports whether an event is not later than the moment.
func (m Moment) has(v events.Envelope) bool {
	return (m.Position.IsZero() || v.Position.Compare(m.Position) <= 0) && (m.Time.IsZero() || !v.Time.After(m.Time))
}

// A LayerQuery selects layers of the registry at a moment. The zero LayerQuery selects the
// layers that are open at the end of the log.
type LayerQuery struct {
	Moment
	Closed bool // layers that are closed at the moment, too
	// Scoped selects the layers of the application, of Location and of Session alone.
	Scoped   bool
	Location string
	Session  domain.SessionID
}

// layerColumns are the columns of a layer, in the order of layerEvents.
const layerColumns = "layer, placement, location, session, process, observed, opened_position, opened_time, closed_position, closed_time, closed_event, closed_reason"

// The statements of layers.
const (
	selectLayers       = "SELECT " + layerColumns + " FROM layers WHERE "
	everyLayer         = selectLayers + "layer > ''"
	openLayers         = selectLayers + "closed_position IS NULL"
	layersClosedAfter  = selectLayers + "closed_position > ?"
	layersClosedLater  = selectLayers + "closed_time > ?"
	layersOfEveryone   = selectLayers + "placement = 'application'"
	layersOfLocation   = selectLayers + "location = ?"
	layersOfSession    = selectLayers + "session = ?"
	layersOfProcess    = selectLayers + "process = ? AND placement <> 'session'"
	layerByID          = selectLayers + "layer = ?"
	selectRegistration = "SELECT registration, layer, scope, registered_position, registered_time, closed_position, closed_time, closed_event, closed_reason FROM registrations WHERE layer = ? ORDER BY registered_position"
	selectTools        = "SELECT tool, description, action, fingerprint, idempotent, asks_first, input_schema, output_schema, available FROM registered_tools WHERE registration = ? ORDER BY place"
	selectRefused      = "SELECT tool, reason FROM refused_tools WHERE registration = ? ORDER BY place"
	selectOffer        = "SELECT tool, registration, layer, fingerprint FROM offered_tools WHERE offer = ? ORDER BY place"
	readOpenedLocation = "SELECT opened_location FROM sessions WHERE session = ?"
)

// Layers returns the catalog of the selected layers, with all their registrations up to the
// moment. It is the fold of projections/catalog over their events, which the rows give, so
// that the rules of registrations have one implementation. Layers that the query does not
// select may be in it.
func (s *Snapshot) Layers(q LayerQuery) (*catalog.State, error) {
	g := newGathering(s)
	var err error
	read := func(text string, args ...any) {
		if err == nil {
			err = g.layers(text, args...)
		}
	}
	switch {
	case q.Scoped:
		read(layersOfEveryone)
		if q.Location != "" {
			read(layersOfLocation, q.Location)
		}
		if !q.Session.IsZero() {
			read(layersOfSession, q.Session)
		}
	case q.Closed:
		read(everyLayer)
	default:
		read(openLayers)
		if !q.Position.IsZero() {
			read(layersClosedAfter, q.Position)
		}
		if !q.Time.IsZero() {
			read(layersClosedLater, q.Time)
		}
	}
	if err != nil {
		return nil, err
	}
	if !q.Closed {
		g.dropClosed(q.Moment)
	}
	if err := g.registrations(); err != nil {
		return nil, err
	}
	return g.fold(q.Moment), nil
}

// TurnOffer returns the offer of a turn, compared with the registrations in effect by the
// rules of projections/staleness, and the catalog of the layers of the turn.
func (s *Snapshot) TurnOffer(t Turn) (staleness.TurnOffer, *catalog.State, error) {
	offer := staleness.TurnOffer{Session: t.Session, Turn: t.Turn, Event: t.Event}
	tools, err := s.offeredTools(t.offer)
	if err != nil {
		return offer, nil, err
	}
	location, err := s.strings(readOpenedLocation, t.Session)
	if err != nil {
		return offer, nil, err
	}
	g := newGathering(s)
	if err := g.around(t.Session, tools); err != nil {
		return offer, nil, err
	}
	then := g.fold(Moment{Position: t.LastPosition})
	offer.Layers = staleness.LayersOf(then, t.Session, slices.Concat(location, []string{""})[0], tools)
	g.keep(offer.Layers)
	if err := g.registrations(); err != nil {
		return offer, nil, err
	}
	now := g.fold(Moment{})
	offer.Offers = staleness.CompareAll(now, offer.Layers, tools)
	return offer, now, nil
}

// offeredTools returns the tools of an offer.
func (s *Snapshot) offeredTools(offer int64) (tools []domain.Offered, err error) {
	err = s.each(func(c *columnReader) error {
		t := domain.Offered{Name: domain.Name(c.string())}
		c.text(&t.Registration, &t.Layer, &t.Fingerprint)
		tools = append(tools, t)
		return nil
	}, selectOffer, offer)
	return tools, err
}

// A gathering collects the events of layers that rows record.
type gathering struct {
	s      *Snapshot
	events map[domain.LayerID][]events.Envelope
}

// newGathering returns an empty gathering.
func newGathering(s *Snapshot) *gathering {
	return &gathering{s, map[domain.LayerID][]events.Envelope{}}
}

// layers adds the opening and the closing of each layer of a statement.
func (g *gathering) layers(text string, args ...any) error {
	return g.s.each(func(c *columnReader) error {
		var e events.LayerOpened
		c.text(&e.Layer, &e.Placement)
		e.Location = c.string()
		c.text(&e.Session, &e.Process)
		e.Observed = c.flag()
		opened := g.event(e.Layer, e, c.position(), c.time())
		g.events[e.Layer] = []events.Envelope{opened}
		at, when := c.position(), c.time()
		closed := g.event(e.Layer, nil, at, when)
		c.text(&closed.ID)
		if reason := c.string(); !at.IsZero() {
			closed.Event = events.LayerClosed{Layer: e.Layer, Reason: reason}
			g.events[e.Layer] = append(g.events[e.Layer], closed)
		}
		return nil
	}, text, args...)
}

// event returns an event of a layer, without an ID.
func (g *gathering) event(layer domain.LayerID, e events.Event, at events.Position, when time.Time) events.Envelope {
	return events.Envelope{Stream: events.LayerStream(layer), Event: e, Position: at, Time: when}
}

// around adds the layers of offered tools, and the other layers of their processes that a
// turn of a session may have had.
func (g *gathering) around(session domain.SessionID, tools []domain.Offered) error {
	for _, t := range tools {
		if _, ok := g.events[t.Layer]; ok || t.Layer.IsZero() {
			continue
		}
		if err := g.layers(layerByID, t.Layer); err != nil {
			return err
		}
	}
	processes := map[domain.ProcessID]bool{}
	for _, all := range g.events {
		if e, ok := all[0].Event.(events.LayerOpened); ok && !e.Process.IsZero() {
			processes[e.Process] = true
		}
	}
	for process := range processes {
		if err := g.layers(layersOfProcess, process); err != nil {
			return err
		}
	}
	return g.layers(layersOfSession, session)
}

// dropClosed removes the layers that are closed at a moment.
func (g *gathering) dropClosed(m Moment) {
	for id, all := range g.events {
		if len(all) > 1 && m.has(all[1]) {
			delete(g.events, id)
		}
	}
}

// keep removes all layers but those of a list.
func (g *gathering) keep(layers []domain.LayerID) {
	for id := range g.events {
		if !slices.Contains(layers, id) {
			delete(g.events, id)
		}
	}
}

// registrations adds the events of the registrations of each layer.
func (g *gathering) registrations() error {
	for layer := range g.events {
		var ids []domain.RegistrationID
		from := len(g.events[layer])
		var closings []events.Envelope
		err := g.s.each(func(c *columnReader) error {
			var id domain.RegistrationID
			var of domain.LayerID
			var e events.ToolsRegistered
			c.text(&id, &of, &e.Scope)
			v := g.event(layer, e, c.position(), c.time())
			v.ID = domain.EventOf(id)
			ids, g.events[layer] = append(ids, id), append(g.events[layer], v)
			at, when := c.position(), c.time()
			closed := g.event(layer, nil, at, when)
			c.text(&closed.ID)
			if reason := c.string(); !at.IsZero() {
				closed.Event = events.RegistrationClosed{Registration: id, Reason: reason}
				closings = append(closings, closed)
			}
			return nil
		}, selectRegistration, layer)
		if err != nil {
			return err
		}
		for i, id := range ids {
			v := &g.events[layer][from+i]
			e := v.Event.(events.ToolsRegistered)
			if e.Tools, e.Refused, err = g.s.toolsOf(id); err != nil {
				return err
			}
			v.Event = e
		}
		g.events[layer] = append(g.events[layer], closings...)
	}
	return nil
}

// toolsOf returns the tools of a registration, and those that were refused.
func (s *Snapshot) toolsOf(id domain.RegistrationID) (tools []events.RegisteredTool, refused []events.RefusedTool, err error) {
	err = s.each(func(c *columnReader) error {
		t := events.RegisteredTool{Name: domain.Name(c.string()), Description: c.string(), Action: c.string()}
		c.text(&t.Fingerprint)
		t.Idempotent, t.AsksFirst = c.flag(), c.flag()
		t.Input, t.Output = rawJSON(c.string()), rawJSON(c.string())
		if available := c.string(); available != "" {
			if err := json.Unmarshal([]byte(available), &t.Available); err != nil {
				return fmt.Errorf("%w: %w", ErrDamagedIndex, err)
			}
		}
		tools = append(tools, t)
		return nil
	}, selectTools, id)
	if err != nil {
		return nil, nil, err
	}
	err = s.each(func(c *columnReader) error {
		refused = append(refused, events.RefusedTool{Name: c.string(), Reason: c.string()})
		return nil
	}, selectRefused, id)
	return tools, refused, err
}

// rawJSON returns a text as JSON, and nil for the empty text.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// fold returns the catalog of the events that are not later than a moment.
func (g *gathering) fold(m Moment) *catalog.State {
	var all []events.Envelope
	for _, some := range g.events {
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b events.Envelope) int {
		return cmp.Or(a.Position.Compare(b.Position), a.ID.Compare(b.ID))
	})
	p := catalog.Projection()
	state := p.Init()
	for _, v := range all {
		if m.has(v) {
			state = p.Apply(state, v)
		}
	}
	return state
}
