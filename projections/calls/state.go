package calls

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A Key identifies a call. The call ID alone does not, as a provider may repeat it in
// another message.
type Key struct {
	Session domain.SessionID `json:"session"`
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call"`
}

// A Stage is the progress of a call. The zero Stage is invalid.
type Stage string

// The stages of a call, in order.
const (
	// Asked: a reply of the model asks for the call.
	Asked Stage = "asked"
	// Begun: the log has the start of the call.
	Begun Stage = "begun"
	// Settled: the log has the settlement of the call.
	Settled Stage = "settled"
)

// A Place identifies an event in the log. The Revision is that of the stream of the
// call or session.
type Place struct {
	Event    domain.EventID  `json:"event"`
	Revision events.Revision `json:"revision"`
	Position events.Position `json:"position"`
	// Ordinal numbers the events folded, from 1.
	Ordinal int `json:"ordinal"`
}

// previewBytes bounds the bytes of a text or input that a State holds. The
// complete value is in the session's stream.
const previewBytes = 256

// A Call is one call, with its progress and outcome. A field is zero until the event
// that has its value is folded.
type Call struct {
	Session domain.SessionID `json:"session"`
	// Turn is the turn whose reply asked for the call.
	Turn    domain.TurnID    `json:"turn,omitzero"`
	Message domain.MessageID `json:"message"`
	ID      domain.CallID    `json:"call"`
	Tool    string           `json:"tool"`
	// Parent is the call of the same message that made this one. Empty: the reply asks
	// for it.
	Parent domain.CallID `json:"parent,omitempty"`
	// Title is one line about the call, of its tool.
	Title    string         `json:"title,omitempty"`
	Agent    domain.AgentID `json:"agent,omitempty"`
	Location string         `json:"location,omitempty"`
	// Imported reports that the session was imported, so that another program ran the
	// call unless Turn is set.
	Imported bool `json:"imported,omitempty"`

	State Stage `json:"state"`
	// Input is the input as the model wrote it, or nil if it is longer than 256
	// bytes; InputPreview then has its first 256 bytes.
	Input        json.RawMessage `json:"input,omitempty"`
	InputPreview string          `json:"input_preview,omitempty"`
	// Asked, Started and Settled are the times of the three stages. Each is zero
	// until the log has its event.
	Asked   time.Time `json:"asked,omitzero"`
	Started time.Time `json:"started,omitzero"`
	Settled time.Time `json:"settled,omitzero"`
	// Process is the process that began the call.
	Process domain.ProcessID `json:"process,omitzero"`

	// Settlement is the event that ended the call, without Input, Structured,
	// Content and Progress, and with Text and Detail cut to 256 bytes. It is
	// zero if the call has no end.
	Settlement events.CallSettled `json:"settlement,omitzero"`
	// SettledBy is the event of Settlement.
	SettledBy domain.EventID `json:"settled_by,omitzero"`
	// Preview is the first 256 bytes of the text that the model reads.
	Preview string `json:"preview,omitempty"`
	// Late counts the results that came after the settlement.
	Late int `json:"late,omitempty"`

	// Offered is the registration that the turn offered, as the start or the settlement
	// of the call names it. It is zero until one of these events is folded.
	Offered domain.Offered `json:"offered,omitzero"`
	// Requests counts the permission requests of the call.
	Requests int `json:"requests,omitempty"`
	// WaitedMS is the time in milliseconds that the call waited for decisions on its
	// permission requests.
	WaitedMS int64 `json:"waited_ms,omitempty"`

	// AskedAt, StartedAt and SettledAt are the events of the three stages.
	AskedAt   Place `json:"asked_at,omitzero"`
	StartedAt Place `json:"started_at,omitzero"`
	SettledAt Place `json:"settled_at,omitzero"`
}

// Key returns the key of the call.
func (c Call) Key() Key { return Key{c.Session, c.Message, c.ID} }

// Registration returns the registration of the tool that the turn offered, or zero if
// it is unknown.
func (c Call) Registration() domain.RegistrationID { return c.Offered.Registration }

// A Session is one session with its counts. Opened and LastEvent are the times of its
// first and last event. A later change of the model or location fills the field only
// if the opening left it empty.
type Session struct {
	ID        domain.SessionID `json:"session"`
	Agent     domain.AgentID   `json:"agent,omitempty"`
	Location  string           `json:"location,omitempty"`
	Model     string           `json:"model,omitempty"`
	Origin    events.Origin    `json:"origin"`
	Parent    domain.SessionID `json:"parent,omitzero"`
	Opened    time.Time        `json:"opened"`
	LastEvent time.Time        `json:"last_event"`
	// Revision is the length of the session's stream.
	Revision events.Revision `json:"revision"`
	// Title is the first 256 bytes of the first prompt.
	Title string `json:"title,omitempty"`

	Prompts int `json:"prompts"`
	Replies int `json:"replies"`
	// Calls counts the calls that replies asked for. Open counts the calls among them
	// without a settlement, and Failed those whose outcome is not success.
	Calls  int `json:"calls"`
	Open   int `json:"open"`
	Failed int `json:"failed"`
	// Interrupted reports an interruption without a later prompt or turn.
	Interrupted bool `json:"interrupted,omitempty"`
	Closed      bool `json:"closed,omitempty"`
}

// Imported reports whether another program ran the session.
func (s Session) Imported() bool { return s.Origin.Kind == events.Imported }

// A Retention is a managed output, which is stored outside the log, that a settlement
// names, with the record of its removal if it was removed.
type Retention struct {
	domain.Retained
	Call       Key            `json:"of"`
	Settlement domain.EventID `json:"settlement"`
	Place      Place          `json:"place"`
	// Pruned reports that an event records the removal of the output. Policy is the
	// name of the retention policy that removed the output, and PrunedAt the time of
	// the removal.
	Pruned   bool      `json:"pruned,omitempty"`
	Policy   string    `json:"policy,omitempty"`
	PrunedAt time.Time `json:"pruned_at,omitzero"`
}

// State holds every call and session of the events folded so far. Only the fold
// changes it. Values that its methods returned do not change with later events. A
// checkpoint stores kept, store and tables; the other fields are indexes of these, or
// buffers of the fold.
type State struct {
	// kept and store hold the content. Packed calls, which store holds encoded, refer
	// to the values in tables by number.
	kept   smallState
	store  callStore
	tables tables
	// sessions, streams, offers and retained are indexes of kept.
	sessions map[domain.SessionID]*checkedSession
	streams  map[events.Stream]*checkedSession
	offers   map[string]int
	retained map[domain.Ref]*Retention

	// taken holds the calls that the event being folded has checked out.
	taken []*callRecord
	// again is the page reader of the goroutine that folds.
	again pageReader
	// scratch is the buffer in which the fold encodes one call.
	scratch []byte
	// changes counts the events of layers and registrations. allLive has an element for
	// each offer: 0, or one more than the value of changes at the last check that found
	// all tools of the offer in effect.
	changes int
	allLive []int
	// active holds the registrations that are not closed, by tool name and layer,
	// oldest first.
	active map[layerName][]domain.RegistrationID
}

// smallState is the part of a State that a checkpoint holds as JSON. Its size depends
// on the numbers of layers, registrations, offers and managed outputs, and hardly on
// the number of calls. The checkpoint encodes Sessions separately.
type smallState struct {
	Folded int `json:"folded"`
	// Sessions are in the order in which the log first names them.
	Sessions []*checkedSession `json:"-"`
	// Offers has each distinct offer once, as most turns repeat one.
	Offers        [][]domain.Offered                          `json:"offers"`
	Layers        map[domain.LayerID]*layerSpan               `json:"layers"`
	Registrations map[domain.RegistrationID]*registrationSpan `json:"registrations"`
	// Processes has every process, with true if the log records that it stopped.
	Processes map[domain.ProcessID]bool `json:"processes"`
	// Permissions has the undecided permission requests.
	Permissions map[domain.PermissionID]permission `json:"permissions"`
	Retained    []*Retention                       `json:"retained"`
	// Found has the exceptions that no later event removes.
	Found []foundException `json:"found"`
}

// A callRecord is a Call with the fields that only the checks need. The State owns
// it.
type callRecord struct {
	Call
	// Idempotent reports that the start of the call declares it idempotent.
	Idempotent bool
	// Strays has the places of the late results that came before any reply asked for
	// the call.
	Strays []Place
	// number is the number of the call in the callStore. session is the index of its
	// session in smallState.Sessions.
	number  int
	session int
}

// A checkedSession is a Session with the fields that only the checks need. The State owns
// it.
type checkedSession struct {
	Session
	// LastOrdinal is the ordinal of the last event of the session but texts, and Last its ID.
	LastOrdinal int            `json:"heard"`
	Last        domain.EventID `json:"last"`
	// LastRunOrdinal is the ordinal of the last event that the run of the session
	// appended in order. Prompts and late results can come at any time and do not
	// count.
	LastRunOrdinal int `json:"own"`
	// Unknown reports that the stream has an event of an unknown kind.
	Unknown bool `json:"unknown,omitempty"`
	// number is the index of the session in smallState.Sessions.
	number int
	turns  idList[domain.TurnID]
	// offered has, by the index of the turn in turns, the index of its offer in
	// Offers.
	offered []int
	// answered has the replies.
	answered idList[domain.MessageID]
}

// An idList is a list of distinct IDs in the order of addition. Events mostly name a
// recent turn or message, so find searches the last recentIDs linearly, and only
// older IDs take room in a map.
type idList[K comparable] struct {
	list []K
	// at has the index of each ID that precedes the last recentIDs. It is nil while
	// list has at most recentIDs IDs.
	at map[K]int
}

// recentIDs is the number of IDs that find searches linearly.
const recentIDs = 32

// find returns the index of an ID in list, and whether list has the ID.
func (s *idList[K]) find(id K) (int, bool) {
	for i := len(s.list) - 1; i >= 0 && i >= len(s.list)-recentIDs; i-- {
		if s.list[i] == id {
			return i, true
		}
	}
	i, ok := s.at[id]
	return i, ok
}

// add appends an ID that list does not have. It adds the ID that is thereby no longer
// among the last recentIDs to the map.
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

// An ordinalRange is the time during which a layer or registration was open. From is
// the ordinal of the event that opened it. To is the ordinal of the closing, or zero
// while it is open.
type ordinalRange struct {
	From int `json:"from"`
	To   int `json:"to,omitempty"`
}

// reaches reports whether the layer or registration was still open after the event
// with this ordinal.
func (s ordinalRange) reaches(ordinal int) bool { return s.To == 0 || s.To > ordinal }

// A layerSpan is a layer with the range of ordinals during which it was open.
type layerSpan struct {
	ordinalRange
	Placement domain.Placement `json:"placement"`
	Process   domain.ProcessID `json:"process,omitzero"`
}

// A registrationSpan is a registration with the range of ordinals during which it was
// open.
type registrationSpan struct {
	ordinalRange
	Layer domain.LayerID `json:"layer"`
	Names []domain.Name  `json:"names"`
}

// Projection returns the fold of the whole log into its calls. It reads every kind:
// an event of an unknown kind excuses an unfinished call.
func Projection() projections.Projection[*State] {
	return projections.Projection[*State]{Name: "calls", Version: 5, Init: New, Apply: apply}
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

// index builds the indexes of kept. The calls have an index of their own.
func (s *State) index() {
	s.sessions, s.streams = map[domain.SessionID]*checkedSession{}, map[events.Stream]*checkedSession{}
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

// A layerName is a tool name in one layer.
type layerName struct {
	layer domain.LayerID
	name  domain.Name
}

// activate adds the registration r, which is the latest of its layer, to the active
// registrations of each of its names.
func (s *State) activate(id domain.RegistrationID, r *registrationSpan) {
	for _, name := range r.Names {
		at := layerName{r.Layer, name}
		s.active[at] = append(s.active[at], id)
	}
}

// deactivate removes the closed registration r from the active registrations of each
// of its names.
func (s *State) deactivate(id domain.RegistrationID, r *registrationSpan) {
	for _, name := range r.Names {
		at := layerName{r.Layer, name}
		s.active[at] = slices.DeleteFunc(s.active[at], func(other domain.RegistrationID) bool { return other == id })
	}
}

// Calls returns all calls that a model made, in the order of their first event. It
// decodes every packed call: for one call, use Call.
func (s *State) Calls() []Call {
	var all []Call
	for c := range s.records() {
		if !c.Asked.IsZero() {
			all = append(all, c.Call)
		}
	}
	return all
}

// Orphans returns the calls of which the log has a start, a settlement or late
// results, but no reply that asks for them, in the order of their first event. It
// decodes only these calls.
func (s *State) Orphans() []Call {
	var all []Call
	for c := range s.unusual() {
		if c.Asked.IsZero() {
			all = append(all, c.Call)
		}
	}
	return all
}

// Call returns the call with a key, and whether the log has an event of the call. The
// call may be an orphan, a call that no reply asks for. Call decompresses at most the
// pages of the calls whose keys have the same hash, mostly one page.
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
