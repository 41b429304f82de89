package calls

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A Key identifies a call. Call IDs alone repeat in other messages.
type Key struct {
	Session domain.SessionID `json:"session"`
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call"`
}

// A Stage is the progress of a call. The zero Stage is invalid.
type Stage string

// How far calls come.
const (
	Asked   Stage = "asked"   // by the model
	Begun   Stage = "begun"   // its start is on record
	Settled Stage = "settled" // its end is on record
)

// A Place identifies an event in the log.
type Place struct {
	Event    domain.EventID  `json:"event"`
	Revision events.Revision `json:"revision"`
	Position events.Position `json:"position"`
	Ordinal  int             `json:"ordinal"` // of the events folded, from 1
}

// previewBytes bounds the bytes of a text or input that a State holds. The
// complete value is in the session's stream.
const previewBytes = 256

// A Call is one call, with its progress and outcome.
type Call struct {
	Session  domain.SessionID `json:"session"`
	Turn     domain.TurnID    `json:"turn,omitzero"` // whose reply asked for it
	Message  domain.MessageID `json:"message"`
	ID       domain.CallID    `json:"call"`
	Tool     string           `json:"tool"`
	Agent    domain.AgentID   `json:"agent,omitempty"`
	Location string           `json:"location,omitempty"`
	Imported bool             `json:"imported,omitempty"` // another program settled it

	State        Stage            `json:"state"`
	Input        json.RawMessage  `json:"input,omitempty"`         // as asked; nil where it is longer than 256 bytes
	InputPreview string           `json:"input_preview,omitempty"` // the first 256 bytes of an input that is longer
	Asked        time.Time        `json:"asked,omitzero"`          // zero: never
	Started      time.Time        `json:"started,omitzero"`        // zero: no start is on record
	Settled      time.Time        `json:"settled,omitzero"`        // zero: no end is on record
	Process      domain.ProcessID `json:"process,omitzero"`        // that ran it

	// Settlement is the event that ended the call, without Input, Structured,
	// Content and Progress, and with Text and Detail cut to 256 bytes. It is
	// zero if the call has no end.
	Settlement events.CallSettled `json:"settlement,omitzero"`
	SettledBy  domain.EventID     `json:"settled_by,omitzero"` // the event of Settlement
	Preview    string             `json:"preview,omitempty"`   // the first 256 bytes of the text that the model reads
	Late       int                `json:"late,omitempty"`      // results that came after the end

	Offered  domain.Offered `json:"offered,omitzero"`    // by the turn, as the start or the settlement says
	Requests int            `json:"requests,omitempty"`  // how often it asked for permission
	WaitedMS int64          `json:"waited_ms,omitempty"` // for decisions about those, in all

	AskedAt   Place `json:"asked_at,omitzero"`
	StartedAt Place `json:"started_at,omitzero"`
	SettledAt Place `json:"settled_at,omitzero"`
}

// Key returns the key of the call.
func (c Call) Key() Key { return Key{c.Session, c.Message, c.ID} }

// Registration returns the registration that the turn offered under the call's
// name, or zero if it is unknown.
func (c Call) Registration() domain.RegistrationID { return c.Offered.Registration }

// A Session is one session with its counts.
type Session struct {
	ID        domain.SessionID `json:"session"`
	Agent     domain.AgentID   `json:"agent,omitempty"`
	Location  string           `json:"location,omitempty"`
	Model     string           `json:"model,omitempty"`
	Origin    events.Origin    `json:"origin"`
	Parent    domain.SessionID `json:"parent,omitzero"`
	Opened    time.Time        `json:"opened"`
	LastEvent time.Time        `json:"last_event"`
	Revision  events.Revision  `json:"revision"`        // the length of its stream
	Title     string           `json:"title,omitempty"` // the first 256 bytes of its first prompt

	Prompts     int  `json:"prompts"`
	Replies     int  `json:"replies"`
	Calls       int  `json:"calls"`                 // asked for
	Open        int  `json:"open"`                  // of those, without an end
	Failed      int  `json:"failed"`                // of those, with an end other than success
	Interrupted bool `json:"interrupted,omitempty"` // and nothing was asked or offered since
	Closed      bool `json:"closed,omitempty"`
}

// Imported reports whether another program ran the session.
func (s Session) Imported() bool { return s.Origin.Kind == events.Imported }

// A Retention is a managed output that a settlement names.
type Retention struct {
	domain.Retained
	Call       Key            `json:"of"`
	Settlement domain.EventID `json:"settlement"`
	Place      Place          `json:"place"`
	Pruned     bool           `json:"pruned,omitempty"` // an event says that it was removed
	Policy     string         `json:"policy,omitempty"` // by which
	PrunedAt   time.Time      `json:"pruned_at,omitzero"`
}

// State holds every call and session of the events folded. Its methods do not
// change it, and later events do not change the values they return. A
// checkpoint holds all of it.
type State struct {
	kept     smallState
	store    callStore
	tables   tables
	sessions map[domain.SessionID]*session
	streams  map[events.Stream]*session
	offers   map[string]int
	retained map[domain.Ref]*Retention

	taken   []*callRecord // by the event that is being folded
	again   pageReader    // of whoever folds
	scratch []byte
	changes int                                   // of layers and registrations
	allLive []int                                 // by offer, changes when all of it was last seen in effect, from 1
	active  map[layerName][]domain.RegistrationID // that are not closed, oldest first
}

// smallState is the part of a State that a checkpoint holds as JSON.
type smallState struct {
	Folded        int                                         `json:"folded"`
	Sessions      []*session                                  `json:"-"`      // in the order in which the log first names them
	Offers        [][]domain.Offered                          `json:"offers"` // each once, whatever the number of turns that made it
	Layers        map[domain.LayerID]*layerSpan               `json:"layers"`
	Registrations map[domain.RegistrationID]*registrationSpan `json:"registrations"`
	Processes     map[domain.ProcessID]bool                   `json:"processes"`   // whether it is on record as stopped
	Permissions   map[domain.PermissionID]permission          `json:"permissions"` // not decided
	Retained      []*Retention                                `json:"retained"`
	Found         []foundException                            `json:"found"` // exceptions that no later event removes
}

// A callRecord is a Call with the fields that only the checks need.
type callRecord struct {
	Call
	Idempotent bool    // the start says so
	Strays     []Place // late results that came while nobody had asked for it
	number     int     // among all calls
	session    int     // the number of its session
}

// A session is a Session with the fields that only the checks need.
type session struct {
	Session
	LastOrdinal    int            `json:"heard"`             // the ordinal of its last event
	Last           domain.EventID `json:"last"`              // its last event
	LastRunOrdinal int            `json:"own"`               // the ordinal of its last event that its run appended in order
	Unknown        bool           `json:"unknown,omitempty"` // it holds an event of a kind that is not known
	number         int
	turns          idList[domain.TurnID]
	offered        []int                    // by turn, the place in Offers of what it offered
	answered       idList[domain.MessageID] // the replies
}

// An idList is a list of IDs in the order of addition. It searches the last
// recentIDs linearly and indexes the others.
type idList[K comparable] struct {
	list []K
	at   map[K]int
}

// recentIDs is the number of IDs that find searches linearly.
const recentIDs = 32

// find returns the index of an ID.
func (s *idList[K]) find(id K) (int, bool) {
	for i := len(s.list) - 1; i >= 0 && i >= len(s.list)-recentIDs; i-- {
		if s.list[i] == id {
			return i, true
		}
	}
	i, ok := s.at[id]
	return i, ok
}

// add appends an ID that the list does not have.
func (s *idList[K]) add(id K) {
	if len(s.list) >= recentIDs {
		if s.at == nil {
			s.at = map[K]int{}
		}
		s.at[s.list[len(s.list)-recentIDs]] = len(s.list) - recentIDs
	}
	s.list = append(s.list, id)
}

// A permission is an undecided permission request.
type permission struct {
	Call   Key    `json:"of"`
	Action string `json:"action"`
	Place  Place  `json:"place"`
}

// An ordinalRange is the time during which a layer or registration was open,
// in ordinals. To is zero while it is open.
type ordinalRange struct {
	From int `json:"from"`
	To   int `json:"to,omitempty"`
}

// reaches reports whether the range had not ended at an ordinal.
func (s ordinalRange) reaches(ordinal int) bool { return s.To == 0 || s.To > ordinal }

// A layerSpan is the open time, placement and process of a layer.
type layerSpan struct {
	ordinalRange
	Placement domain.Placement `json:"placement"`
	Process   domain.ProcessID `json:"process,omitzero"`
}

// A registrationSpan is the open time, layer and names of a registration.
type registrationSpan struct {
	ordinalRange
	Layer domain.LayerID `json:"layer"`
	Names []domain.Name  `json:"names"`
}

// Projection returns the fold of the whole log into its calls.
func Projection() projections.Projection[*State] {
	return projections.Projection[*State]{Name: "calls", Version: 4, Init: New, Apply: apply}
}

// New returns the state before the first event.
func New() *State {
	s := &State{kept: smallState{
		Layers:        map[domain.LayerID]*layerSpan{},
		Registrations: map[domain.RegistrationID]*registrationSpan{},
		Processes:     map[domain.ProcessID]bool{},
		Permissions:   map[domain.PermissionID]permission{},
	}}
	s.index()
	return s
}

// index builds the indexes of everything but the calls.
func (s *State) index() {
	s.sessions, s.streams = map[domain.SessionID]*session{}, map[events.Stream]*session{}
	s.offers, s.retained = map[string]int{}, map[domain.Ref]*Retention{}
	for _, known := range s.kept.Sessions {
		s.sessions[known.ID] = known
	}
	for i, tools := range s.kept.Offers {
		s.offers[projections.OfferKey(tools)] = i
	}
	for _, r := range s.kept.Retained {
		s.retained[r.Ref] = r
	}
	s.allLive = make([]int, len(s.kept.Offers))
	s.active = map[layerName][]domain.RegistrationID{}
	var open []domain.RegistrationID
	for id, r := range s.kept.Registrations {
		if r.To == 0 {
			open = append(open, id)
		}
	}
	slices.SortFunc(open, func(a, b domain.RegistrationID) int {
		return s.kept.Registrations[a].From - s.kept.Registrations[b].From
	})
	for _, id := range open {
		s.activate(id, s.kept.Registrations[id])
	}
}

// A layerName is a tool name in a layer.
type layerName struct {
	layer domain.LayerID
	name  domain.Name
}

// activate adds a registration, the latest of its layer, to the active ones.
func (s *State) activate(id domain.RegistrationID, r *registrationSpan) {
	for _, name := range r.Names {
		at := layerName{r.Layer, name}
		s.active[at] = append(s.active[at], id)
	}
}

// deactivate removes a registration from the active ones.
func (s *State) deactivate(id domain.RegistrationID, r *registrationSpan) {
	for _, name := range r.Names {
		at := layerName{r.Layer, name}
		s.active[at] = slices.DeleteFunc(s.active[at], func(other domain.RegistrationID) bool { return other == id })
	}
}

// Calls returns all calls that a model made, in the order of their first
// event. It decodes every call.
func (s *State) Calls() []Call {
	var all []Call
	for c := range s.records() {
		if !c.Asked.IsZero() {
			all = append(all, c.Call)
		}
	}
	return all
}

// Orphans returns the starts and results without a call, in the order of their
// first event.
func (s *State) Orphans() []Call {
	var all []Call
	for c := range s.unusual() {
		if c.Asked.IsZero() {
			all = append(all, c.Call)
		}
	}
	return all
}

// Call returns one call, and whether the log has an event of it.
func (s *State) Call(key Key) (Call, bool) {
	known, ok := s.sessions[key.Session]
	if !ok {
		return Call{}, false
	}
	r := s.reader()
	number, ok := s.find(r, known.number, key, hash(known.number, key))
	if !ok {
		return Call{}, false
	}
	return s.read(r, number).Call, true
}

// Sessions returns all sessions, in the order of their first event.
func (s *State) Sessions() []Session {
	all := make([]Session, len(s.kept.Sessions))
	for i, known := range s.kept.Sessions {
		all[i] = known.Session
	}
	return all
}

// Session returns one session, and whether the log has an event of it.
func (s *State) Session(id domain.SessionID) (Session, bool) {
	known, ok := s.sessions[id]
	if !ok {
		return Session{}, false
	}
	return known.Session, true
}

// Retained returns every managed output that a settlement names, in log order,
// including pruned ones.
func (s *State) Retained() []Retention {
	all := make([]Retention, len(s.kept.Retained))
	for i, r := range s.kept.Retained {
		all[i] = *r
	}
	return all
}
