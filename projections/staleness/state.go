package staleness

import (
	"encoding/json"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// State holds the offer of each turn, and the catalog that judges it. Its
// methods do not change it. Its JSON is complete.
type State struct {
	data   stateJSON
	turns  map[domain.TurnID]int
	offers map[string]int
}

// stateJSON is the JSON of a State.
type stateJSON struct {
	Catalog   *catalog.State              `json:"catalog"`
	Locations map[domain.SessionID]string `json:"locations"`
	Turns     []turn                      `json:"turns"`
	Offers    []offer                     `json:"offers"` // each once, whatever the number of turns that made it
}

// A turn is a materialized turn; Offer is an index into Offers.
type turn struct {
	Session domain.SessionID `json:"session"`
	Turn    domain.TurnID    `json:"turn"`
	Event   domain.EventID   `json:"event"`
	Offer   int              `json:"offer"`
}

// An offer is the tools that a turn offered and the layers they came from.
type offer struct {
	Tools  []domain.Offered `json:"tools"`
	Layers []domain.LayerID `json:"layers"` // in rising precedence
}

// key identifies an offer: the layers, a zero ID, the tools.
func (o offer) key() string {
	var key []byte
	for _, layer := range append(slices.Clip(o.Layers), domain.LayerID{}) {
		id := layer.Bytes()
		key = append(key, id[:]...)
	}
	return string(key) + projections.OfferKey(o.Tools)
}

// A Turn is the offer of one turn, with a verdict on each tool. It merges
// several events that record parts of the turn.
type Turn struct {
	Session domain.SessionID
	Turn    domain.TurnID
	Event   domain.EventID // that materialized it: the first
	// Layers are the layers of the turn, in rising precedence: the ones that
	// the offered tools belong to, and the ones of the same processes that
	// were open then for the application, for a location of the session or of
	// an offered tool, or for the session. A layer that opened later is not
	// included: it cannot make a call of this turn stale.
	Layers []domain.LayerID
	Offers []Offer // in the order in which the model saw them
}

// An Offer is a registration that a turn offered, with its verdict.
type Offer struct {
	domain.Offered
	Verdict
}

// Projection returns the fold of the whole log into the offers of turns.
func Projection() projections.Projection[*State] {
	reads := events.Filter{Kinds: append(catalog.Kinds(), events.SessionOpened{}.Kind(), events.TurnMaterialized{}.Kind())}
	return projections.Projection[*State]{Name: "staleness", Version: 1, Reads: reads, Init: newState, Apply: apply}
}

func newState() *State {
	s := &State{data: stateJSON{Catalog: catalog.New(), Locations: map[domain.SessionID]string{}}}
	s.index()
	return s
}

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
	made := s.intern(offer{Tools: tools, Layers: s.layers(session, tools)})
	if again {
		s.data.Turns[i].Offer = made
		return
	}
	s.turns[e.Turn] = len(s.data.Turns)
	s.data.Turns = append(s.data.Turns, turn{session, e.Turn, v.ID, made})
}

// intern returns the index of an offer in Offers, and adds it if needed.
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

// layers returns the layers that a turn of a session was taken from, as
// [Turn.Layers] documents.
func (s *State) layers(session domain.SessionID, tools []domain.Offered) []domain.LayerID {
	t := turnScope{session: session, locations: map[string]bool{}, processes: map[domain.ProcessID]bool{}, own: map[domain.LayerID]bool{}}
	if location := s.data.Locations[session]; location != "" {
		t.locations[location] = true
	}
	var layers []catalog.Layer
	for _, tool := range tools {
		if l, ok := s.data.Catalog.Brief(tool.Layer); ok && t.add(l) {
			layers = append(layers, l)
		}
	}
	for _, process := range t.order {
		for _, l := range s.data.Catalog.OpenOf(process) {
			if !t.own[l.ID] && t.holds(l) {
				layers = append(layers, l)
			}
		}
	}
	return byPlacement(layers)
}

// A turnScope collects the session, locations and processes that the layers of
// one turn share.
type turnScope struct {
	session   domain.SessionID
	locations map[string]bool
	processes map[domain.ProcessID]bool
	order     []domain.ProcessID // those of processes, as they were met
	own       map[domain.LayerID]bool
}

// add adds the layer of an offered tool, and reports whether it is new.
func (t *turnScope) add(l catalog.Layer) bool {
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

// holds reports whether a layer of one of the processes belongs to the turn.
func (t *turnScope) holds(l catalog.Layer) bool {
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
func byPlacement(layers []catalog.Layer) []domain.LayerID {
	slices.SortStableFunc(layers, func(a, b catalog.Layer) int {
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

// Turn returns a turn, judged as of the last event folded, and whether it
// exists.
func (s *State) Turn(id domain.TurnID) (Turn, bool) {
	i, ok := s.turns[id]
	if !ok {
		return Turn{}, false
	}
	return s.judged(s.data.Turns[i]), true
}

// Turns returns the turns of a session in log order, judged as of the last
// event folded.
func (s *State) Turns(session domain.SessionID) []Turn {
	var turns []Turn
	for _, t := range s.data.Turns {
		if t.Session == session {
			turns = append(turns, s.judged(t))
		}
	}
	return turns
}

func (s *State) judged(t turn) Turn {
	made := s.data.Offers[t.Offer]
	judged := Turn{Session: t.Session, Turn: t.Turn, Event: t.Event, Layers: slices.Clone(made.Layers)}
	for _, offered := range made.Tools {
		judged.Offers = append(judged.Offers, Offer{offered, Judge(s.data.Catalog, made.Layers, offered)})
	}
	return judged
}

// MarshalJSON encodes s for a checkpoint.
func (s *State) MarshalJSON() ([]byte, error) { return projections.Encode(s.data) }

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *State) UnmarshalJSON(data []byte) error {
	*s = *newState()
	if err := json.Unmarshal(data, &s.data); err != nil {
		return err
	}
	s.index()
	return nil
}
