package openwork

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A State has the sessions with open work. Its methods do not change it.
type State struct {
	sessions map[domain.SessionID]*Session
	// imports are the last sessions that were imported, the oldest first.
	imports []domain.SessionID
}

// maxImports is the number of imported sessions that a State recognizes.
const maxImports = 1024

// A Session is a session with open work. Each list has the order of the log.
type Session struct {
	ID domain.SessionID `json:"session"`
	// Calls are the calls without a settlement.
	Calls []Call `json:"calls,omitempty"`
	// Permissions are the undecided permission requests, and Questions the unanswered
	// questions.
	Permissions []domain.PermissionID `json:"permissions,omitempty"`
	Questions   []domain.PermissionID `json:"questions,omitempty"`
}

// A Call identifies a call in its session.
type Call struct {
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call"`
}

// Projection returns the fold of the whole log into a State.
func Projection() projections.Projection[*State] {
	reads := events.Filter{Kinds: []string{
		events.SessionOpened{}.Kind(), events.ReplyReceived{}.Kind(), events.CallsAdded{}.Kind(), events.CallSettled{}.Kind(),
		events.PermissionRequested{}.Kind(), events.PermissionDecided{}.Kind(), events.QuestionAsked{}.Kind(), events.QuestionAnswered{}.Kind(),
	}}
	return projections.Projection[*State]{Name: "openwork", Version: 2, Reads: reads, Init: newState, Apply: apply}
}

func newState() *State { return &State{sessions: map[domain.SessionID]*Session{}} }

// Sessions returns the sessions with open work, in the order of their IDs. The caller must
// not change their lists.
func (s *State) Sessions() []Session {
	open := make([]Session, 0, len(s.sessions))
	for _, session := range s.sessions {
		open = append(open, *session)
	}
	slices.SortFunc(open, func(a, b Session) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return open
}

// apply folds one event. It ignores the events of imported sessions.
func apply(s *State, v events.Envelope) *State {
	id, ok := v.Stream.Session()
	if !ok {
		return s
	}
	if e, ok := v.Event.(events.SessionOpened); ok {
		s.opened(id, e)
		return s
	}
	if slices.Contains(s.imports, id) {
		return s
	}
	session := s.sessions[id]
	if session == nil {
		session = &Session{ID: id}
	}
	session.apply(v.Event)
	if len(session.Calls)+len(session.Permissions)+len(session.Questions) > 0 {
		s.sessions[id] = session
	} else {
		delete(s.sessions, id)
	}
	return s
}

// opened folds the opening of a session.
func (s *State) opened(id domain.SessionID, e events.SessionOpened) {
	if e.Origin.Kind.Runs() || slices.Contains(s.imports, id) {
		return
	}
	delete(s.sessions, id)
	if s.imports = append(s.imports, id); len(s.imports) > maxImports {
		s.imports = slices.Delete(s.imports, 0, 1)
	}
}

// apply folds an event of the session.
func (s *Session) apply(event events.Event) {
	switch e := event.(type) {
	case events.ReplyReceived:
		s.ask(e.Message, e.Calls)
	case events.CallsAdded:
		s.ask(e.Message, e.Calls)
	case events.CallSettled:
		s.Calls = without(s.Calls, Call{e.Message, e.Call})
	case events.PermissionRequested:
		s.Permissions = append(without(s.Permissions, e.Permission), e.Permission)
	case events.PermissionDecided:
		s.Permissions = without(s.Permissions, e.Permission)
	case events.QuestionAsked:
		s.Questions = append(without(s.Questions, e.Question), e.Question)
	case events.QuestionAnswered:
		s.Questions = without(s.Questions, e.Question)
	}
}

// ask adds calls. A reply may repeat the ID of a call.
func (s *Session) ask(message domain.MessageID, calls []domain.Call) {
	for _, c := range calls {
		if call := (Call{message, c.ID}); !slices.Contains(s.Calls, call) {
			s.Calls = append(s.Calls, call)
		}
	}
}

// without returns list without an element, in place.
func without[T comparable](list []T, element T) []T {
	return slices.DeleteFunc(list, func(e T) bool { return e == element })
}

// stateJSON is the JSON of a State.
type stateJSON struct {
	Sessions []Session          `json:"sessions"`
	Imports  []domain.SessionID `json:"imports,omitempty"`
}

// MarshalJSON encodes the state for a checkpoint.
func (s *State) MarshalJSON() ([]byte, error) {
	return projections.Encode(stateJSON{s.Sessions(), s.imports})
}

// UnmarshalJSON is the inverse of MarshalJSON. It replaces s, and leaves it unchanged after
// an error.
func (s *State) UnmarshalJSON(data []byte) error {
	var wire stateJSON
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*s = *newState()
	s.imports = wire.Imports
	for _, session := range wire.Sessions {
		s.sessions[session.ID] = &session
	}
	return nil
}
