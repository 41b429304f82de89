package staleness

import (
	"encoding/json"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// State holds the offer of each turn, and the catalog of registrations with which the
// offers are compared. Its methods do not change it. Its JSON is complete.
type State struct {
	// data has the content. turns has the index of each turn in data.Turns. offers has
	// the index of each offer in data.Offers, by offer.key.
	data   stateJSON
	turns  map[domain.TurnID]int
	offers map[string]int
}

// stateJSON is the JSON of a State: the catalog, the location of each session, the
// turns in log order, and their offers.
type stateJSON struct {
	Catalog   *catalog.State              `json:"catalog"`
	Locations map[domain.SessionID]string `json:"locations"`
	Turns     []turn                      `json:"turns"`
	// Offers has each distinct offer once, as most turns repeat one.
	Offers []offer `json:"offers"`
}

// A turn is a materialized turn. Event is the first event that records it, and Offer
// the index of its offer in Offers.
type turn struct {
	Session domain.SessionID `json:"session"`
	Turn    domain.TurnID    `json:"turn"`
	Event   domain.EventID   `json:"event"`
	Offer   int              `json:"offer"`
}

// An offer is the tools that a turn offered and the layers from which it took them.
type offer struct {
	Tools []domain.Offered `json:"tools"`
	// Layers are in rising precedence.
	Layers []domain.LayerID `json:"layers"`
}

// key returns a string that is equal for equal offers only. It has the IDs of the
// layers, a zero ID and the [projections.OfferKey] of the tools.
func (o offer) key() string {
	var key []byte
	for _, layer := range append(slices.Clip(o.Layers), domain.LayerID{}) {
		id := layer.Bytes()
		key = append(key, id[:]...)
	}
	return string(key) + projections.OfferKey(o.Tools)
}

// A TurnOffer is the offer of one turn, with the comparison of each tool. Several
// events can record parts of the turn; a TurnOffer merges them.
type TurnOffer struct {
	Session domain.SessionID
	Turn    domain.TurnID
	// Event is the first event that materialized the turn.
	Event domain.EventID
	// Layers are the layers of the turn, in rising precedence. They are the
	// layers of the offered tools, and other layers of the same processes that
	// were open at the turn: those of the application, of the session's
	// location, of the location of an offered tool, and of the session. A layer
	// that opened later is not included, because it cannot make a call of this
	// turn stale.
	Layers []domain.LayerID
	// Offers are in the order in which the model saw the tools.
	Offers []OfferedTool
}

// An OfferedTool is a registration that a turn offered, compared with the
// registration in effect.
type OfferedTool struct {
	domain.Offered
	Comparison
}

// Projection returns the projection that folds the whole log into a State.
func Projection() projections.Projection[*State] {
	reads := events.Filter{Kinds: append(catalog.Kinds(), events.SessionOpened{}.Kind(), events.TurnMaterialized{}.Kind())}
	return projections.Projection[*State]{Name: "staleness", Version: 2, Reads: reads, Init: newState, Apply: apply}
}

// newState returns the state before the first event.
func newState() *State {
	s := &State{data: stateJSON{Catalog: catalog.New(), Locations: map[domain.SessionID]string{}}}
	s.index()
	return s
}

// index builds the indexes of data.
func (s *State) index() {
	s.turns, s.offers = map[domain.TurnID]int{}, map[string]int{}
	for i, t := range s.data.Turns {
		s.turns[t.Turn] = i
	}
	for i, o := range s.data.Offers {
		s.offers[o.key()] = i
	}
}

// layers is the projection of the catalog in a State.
var layers = catalog.Projection()

// apply folds one event. The events of layers go to the catalog.
func apply(s *State, v events.Envelope) *State {
	switch e := v.Event.(type) {
	case events.SessionOpened:
		s.data.Locations[e.Session] = e.Location
	case events.TurnMaterialized:
		s.materialized(e, v)
	default:
		s.data.Catalog = layers.Apply(s.data.Catalog, v)
	}
	return s
}

// materialized folds a turn, or an event that adds tools to a known turn. Each such
// event determines the layers of the turn anew.
func (s *State) materialized(e events.TurnMaterialized, v events.Envelope) {
	session, ok := v.Stream.Session()
	if !ok {
		return
	}
	tools := e.Tools
	i, again := s.turns[e.Turn]
	if again {
		tools = projections.MergeOffers(s.data.Offers[s.data.Turns[i].Offer].Tools, tools)
	}
	made := s.intern(offer{Tools: tools, Layers: LayersOf(s.data.Catalog, session, s.data.Locations[session], tools)})
	if again {
		s.data.Turns[i].Offer = made
		return
	}
	s.turns[e.Turn] = len(s.data.Turns)
	s.data.Turns = append(s.data.Turns, turn{session, e.Turn, v.ID, made})
}

// intern returns the index of an offer in Offers, and adds the offer if it is new.
func (s *State) intern(o offer) int {
	key := o.key()
	i, ok := s.offers[key]
	if !ok {
		i = len(s.data.Offers)
		s.data.Offers = append(s.data.Offers, o)
		s.offers[key] = i
	}
	return i
}

// LayersOf returns the layers from which a turn of a session took its tools, in rising
// precedence, as [TurnOffer.Layers] documents. The catalog is that of the moment of the
// turn; of its layers LayersOf reads those of the tools, and the open ones of their
// processes that belong to the application, to a location of the turn or to the session.
// location is the one that the opening of the session names, or empty.
func LayersOf(c *catalog.State, session domain.SessionID, location string, tools []domain.Offered) []domain.LayerID {
	// First the layers of the tools with their processes and locations, then the open layers
	// of these processes that the session could see.
	t := turnScope{session: session, locations: map[string]bool{}, processes: map[domain.ProcessID]bool{}, own: map[domain.LayerID]bool{}}
	if location != "" {
		t.locations[location] = true
	}
	var layers []catalog.LayerHistory
	for _, tool := range tools {
		if l, ok := c.Brief(tool.Layer); ok && t.add(l) {
			layers = append(layers, l)
		}
	}
	for _, process := range t.order {
		for _, l := range c.OpenOf(process) {
			if !t.own[l.ID] && t.holds(l) {
				layers = append(layers, l)
			}
		}
	}
	return byPlacement(layers)
}

// A turnScope collects the session, locations and processes that the layers of one
// turn share. It exists during one call of LayersOf.
type turnScope struct {
	session   domain.SessionID
	locations map[string]bool
	processes map[domain.ProcessID]bool
	// order has the processes in the order in which add met them, so that the result
	// does not depend on the order of a map.
	order []domain.ProcessID
	// own has the layers of the offered tools.
	own map[domain.LayerID]bool
}

// add adds the layer of an offered tool, and reports whether it is new.
func (t *turnScope) add(l catalog.LayerHistory) bool {
	if t.own[l.ID] {
		return false
	}
	t.own[l.ID] = true
	if l.Placement == domain.Location {
		t.locations[l.Location] = true
	}
	if !l.Process.IsZero() && !t.processes[l.Process] {
		t.processes[l.Process] = true
		t.order = append(t.order, l.Process)
	}
	return true
}

// holds reports whether an open layer belongs to the turn, given that it belongs to
// one of the turn's processes. It does if its placement is the application, a
// location of the turn, or the session of the turn.
func (t *turnScope) holds(l catalog.LayerHistory) bool {
	switch l.Placement {
	case domain.Application:
		return true
	case domain.Location:
		return t.locations[l.Location]
	case domain.PerSession:
		return l.Session == t.session
	}
	return false
}

// byPlacement returns the IDs of layers, sorted by placement and then by
// opening.
func byPlacement(layers []catalog.LayerHistory) []domain.LayerID {
	slices.SortStableFunc(layers, func(a, b catalog.LayerHistory) int {
		if a.Placement != b.Placement {
			return int(a.Placement) - int(b.Placement)
		}
		return a.Began - b.Began
	})
	ids := make([]domain.LayerID, len(layers))
	for i, l := range layers {
		ids[i] = l.ID
	}
	return ids
}

// Turn returns the offer of a turn, compared as of the last folded event. It returns
// false if the turn is unknown.
func (s *State) Turn(id domain.TurnID) (TurnOffer, bool) {
	i, ok := s.turns[id]
	if !ok {
		return TurnOffer{}, false
	}
	return s.compared(s.data.Turns[i]), true
}

// Turns returns the offers of the turns of a session in log order, compared as of the
// last folded event. It iterates over every turn of the log.
func (s *State) Turns(session domain.SessionID) []TurnOffer {
	var turns []TurnOffer
	for _, t := range s.data.Turns {
		if t.Session == session {
			turns = append(turns, s.compared(t))
		}
	}
	return turns
}

// compared returns the offer of a turn with the comparison of each tool.
func (s *State) compared(t turn) TurnOffer {
	made := s.data.Offers[t.Offer]
	compared := TurnOffer{Session: t.Session, Turn: t.Turn, Event: t.Event, Layers: slices.Clone(made.Layers)}
	compared.Offers = CompareAll(s.data.Catalog, made.Layers, made.Tools)
	return compared
}

// MarshalJSON encodes s for a checkpoint.
func (s *State) MarshalJSON() ([]byte, error) { return projections.Encode(s.data) }

// UnmarshalJSON is the inverse of MarshalJSON. It replaces s; after an error s is
// undefined.
func (s *State) UnmarshalJSON(data []byte) error {
	*s = *newState()
	if err := json.Unmarshal(data, &s.data); err != nil {
		return err
	}
	s.index()
	return nil
}
