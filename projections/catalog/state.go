package catalog

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A LayerHistory is a layer with all registrations that it ever had. Ordinals number
// the events of layers from 1, in the order in which they were folded. Location is
// set for a layer of a location, and Session for a layer of a session.
type LayerHistory struct {
	ID        domain.LayerID   `json:"layer"`
	Placement domain.Placement `json:"placement"`
	Location  string           `json:"location,omitempty"`
	Session   domain.SessionID `json:"session,omitzero"`
	Process   domain.ProcessID `json:"process,omitzero"`
	Observed  bool             `json:"observed,omitempty"`
	Opened    time.Time        `json:"opened"`
	// Closed is the event that closed the layer, and Reason its reason. Both are zero
	// while the layer is open.
	Closed domain.EventID `json:"closed,omitzero"`
	Reason string         `json:"reason,omitempty"`
	// Registrations are all registrations, oldest first. A closed one stays in the
	// list.
	Registrations []Registration `json:"registrations,omitempty"`
	// Began is the ordinal of the opening. Ended is the ordinal of the closing, or zero
	// while the layer is open.
	Began int `json:"began"`
	Ended int `json:"ended,omitempty"`
}

// A Registration has the Tools that one event registered. Refused are tools of the
// same request that the registry did not register.
type Registration struct {
	ID      domain.RegistrationID   `json:"registration"`
	Scope   domain.ScopeID          `json:"scope"`
	Layer   domain.LayerID          `json:"layer"`
	At      time.Time               `json:"at"`
	Tools   []events.RegisteredTool `json:"tools"`
	Refused []events.RefusedTool    `json:"refused,omitempty"`
	// Closed is the event that closed the registration, and Reason its reason. Both are
	// zero while the registration is open. They remain zero if it ended because its
	// layer closed.
	Closed domain.EventID `json:"closed,omitzero"`
	Reason string         `json:"reason,omitempty"`
	// Began is the ordinal of the event that registered the tools. Ended is the ordinal
	// of the event Closed, or zero if Closed is zero.
	Began int `json:"began"`
	Ended int `json:"ended,omitempty"`
}

// tool returns the tool with a name, and whether the registration has one. If the
// registration has several, tool returns the last.
func (r *Registration) tool(name domain.Name) (events.RegisteredTool, bool) {
	for _, t := range slices.Backward(r.Tools) {
		if t.Name == name {
			return t, true
		}
	}
	return events.RegisteredTool{}, false
}

// A ToolEntry is the tool to which a name resolves, with its registration. At is the
// time of the registration.
type ToolEntry struct {
	domain.Offered
	Tool      events.RegisteredTool
	Scope     domain.ScopeID
	Placement domain.Placement
	At        time.Time
}

// State holds every layer and registration of the events folded. Its methods do not
// change it, and later events do not change the values that they return; the caller
// must not change the schemas in them. Its JSON is complete: the indexes are rebuilt
// from it.
type State struct {
	// folded is the ordinal of the last event.
	folded int
	// forgotten is the ordinal through which endings are forgotten, and ended the number
	// of endings since the last Forget that dropped some, with those that it kept.
	forgotten, ended int
	// layers are in order of opening.
	layers []*layerIndex
	index  map[domain.LayerID]*layerIndex
	// processes has the layers of each process in order of opening.
	processes map[domain.ProcessID][]*layerIndex
}

// A layerIndex is a LayerHistory with indexes of its registrations. The indexes refer to
// registrations by their index in Registrations, which never changes.
type layerIndex struct {
	LayerHistory
	// named has the registrations of each name, oldest first, closed ones included.
	named map[domain.Name][]int
	// active has the registrations that are not closed, oldest first.
	active []int
	// byID has the index of each registration.
	byID map[domain.RegistrationID]int
}

// Kinds returns the kinds of events that the fold reads.
func Kinds() []string {
	return []string{
		events.LayerOpened{}.Kind(), events.ToolsRegistered{}.Kind(), events.RegistrationClosed{}.Kind(), events.LayerClosed{}.Kind(),
	}
}

// Projection returns the fold of the events of layers. It reads the four kinds of
// [Kinds] alone.
func Projection() projections.Projection[*State] {
	reads := events.Filter{Kinds: Kinds()}
	return projections.Projection[*State]{Name: "catalog", Version: 2, Reads: reads, Init: New, Apply: apply}
}

// New returns the state without layers.
func New() *State {
	return &State{index: map[domain.LayerID]*layerIndex{}, processes: map[domain.ProcessID][]*layerIndex{}}
}

// apply folds one event. Every event of a kind that it reads takes an ordinal, even
// if it has no effect, so that ordinals depend on the log alone.
func apply(s *State, v events.Envelope) *State {
	switch e := v.Event.(type) {
	case events.LayerOpened:
		s.folded++
		s.open(e, v)
	case events.ToolsRegistered:
		s.folded++
		s.register(e, v)
	case events.RegistrationClosed:
		s.folded++
		s.closeRegistration(e, v)
	case events.LayerClosed:
		s.folded++
		s.closeLayer(e, v)
	}
	return s
}

// open adds a layer. It ignores a repeated opening.
func (s *State) open(e events.LayerOpened, v events.Envelope) {
	if _, ok := s.index[e.Layer]; ok {
		return
	}
	s.add(LayerHistory{
		ID: e.Layer, Placement: e.Placement, Location: e.Location, Session: e.Session,
		Process: e.Process, Observed: e.Observed, Opened: v.Time, Began: s.folded,
	})
}

// add appends a layer with its registrations, and indexes both.
func (s *State) add(l LayerHistory) {
	added := &layerIndex{LayerHistory: l, named: map[domain.Name][]int{}, byID: map[domain.RegistrationID]int{}}
	s.layers = append(s.layers, added)
	s.index[l.ID] = added
	if !l.Process.IsZero() {
		s.processes[l.Process] = append(s.processes[l.Process], added)
	}
	for i := range added.Registrations {
		added.find(i)
	}
}

// find adds the registration with index i, which must be the last one of the layer,
// to the indexes of the layer.
func (l *layerIndex) find(i int) {
	r := &l.Registrations[i]
	l.byID[r.ID] = i
	if r.Ended == 0 {
		l.active = append(l.active, i)
	}
	for _, t := range r.Tools {
		if at := l.named[t.Name]; len(at) == 0 || at[len(at)-1] != i {
			l.named[t.Name] = append(at, i)
		}
	}
}

// register adds a registration to the layer of the event's stream. It ignores an
// unknown layer and a repeated event.
func (s *State) register(e events.ToolsRegistered, v events.Envelope) {
	l, ok := s.of(v.Stream)
	id := domain.RegistrationOf(v.ID)
	if !ok {
		return
	}
	if _, twice := l.byID[id]; twice {
		return
	}
	l.Registrations = append(l.Registrations, Registration{
		ID: id, Scope: e.Scope, Layer: l.ID, At: v.Time, Tools: e.Tools, Refused: e.Refused, Began: s.folded,
	})
	l.find(len(l.Registrations) - 1)
}

// closeRegistration ends a registration of the layer of the event's stream. It
// ignores an unknown layer or registration and a repeated closing.
func (s *State) closeRegistration(e events.RegistrationClosed, v events.Envelope) {
	l, ok := s.of(v.Stream)
	if !ok {
		return
	}
	i, ok := l.byID[e.Registration]
	if !ok || l.Registrations[i].Ended != 0 {
		return
	}
	r := &l.Registrations[i]
	r.Closed, r.Reason, r.Ended = v.ID, e.Reason, s.folded
	s.ended++
	if at, ok := slices.BinarySearch(l.active, i); ok {
		l.active = slices.Delete(l.active, at, at+1)
	}
}

// closeLayer ends a layer. It does not change the registrations of the layer;
// [layerIndex.end] takes the earlier of the two endings.
func (s *State) closeLayer(e events.LayerClosed, v events.Envelope) {
	if l, ok := s.index[e.Layer]; ok && l.Ended == 0 {
		l.Closed, l.Reason, l.Ended = v.ID, e.Reason, s.folded
		s.ended++
	}
}

// Forget drops closed layers and closed registrations, the longest ended ones first, if
// there are more than twice keep; keep of them stay. What is in effect does not change.
// [State.Displaced] then returns the zero event where the answer depends on what was dropped.
func (s *State) Forget(keep int) {
	if s.ended <= 2*keep {
		return
	}
	var endings []int
	for _, l := range s.layers {
		if l.Ended != 0 {
			endings = append(endings, l.Ended)
			continue
		}
		for i := range l.Registrations {
			if ended := l.Registrations[i].Ended; ended != 0 {
				endings = append(endings, ended)
			}
		}
	}
	if s.ended = min(len(endings), keep); len(endings) <= keep {
		return
	}
	slices.Sort(endings)
	kept := New()
	kept.folded, kept.ended, kept.forgotten = s.folded, s.ended, endings[len(endings)-keep-1]
	drops := func(ended int) bool { return ended != 0 && ended <= kept.forgotten }
	for _, l := range s.layers {
		if drops(l.Ended) {
			continue
		}
		stays := l.LayerHistory
		stays.Registrations = slices.DeleteFunc(slices.Clone(l.Registrations), func(r Registration) bool { return drops(r.Ended) })
		kept.add(stays)
	}
	*s = *kept
}

// of returns the layer to which a stream belongs, and whether the stream belongs to a
// known layer.
func (s *State) of(stream events.Stream) (*layerIndex, bool) {
	id, ok := stream.Layer()
	if !ok {
		return nil, false
	}
	l, ok := s.index[id]
	return l, ok
}

// stateWire is the JSON of a State.
type stateWire struct {
	Folded    int            `json:"folded"`
	Forgotten int            `json:"forgotten,omitempty"`
	Ended     int            `json:"ended,omitempty"`
	Layers    []LayerHistory `json:"layers"`
}

// MarshalJSON encodes the layers in order of opening.
func (s *State) MarshalJSON() ([]byte, error) {
	wire := stateWire{s.folded, s.forgotten, s.ended, make([]LayerHistory, len(s.layers))}
	for i, l := range s.layers {
		wire.Layers[i] = l.LayerHistory
	}
	return projections.Encode(wire)
}

// UnmarshalJSON is the inverse of MarshalJSON. It replaces s, and leaves it unchanged
// after an error.
func (s *State) UnmarshalJSON(data []byte) error {
	var wire stateWire
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*s = *New()
	s.folded, s.forgotten, s.ended = wire.Folded, wire.Forgotten, wire.Ended
	for _, l := range wire.Layers {
		s.add(l)
	}
	return nil
}
