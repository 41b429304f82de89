package calls

import (
	"encoding/json"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// State holds every call and session of the events folded so far, in memory, and checks them
// with a [Checker]. It suits tests and small logs. Only the fold changes it. Values that its
// methods returned do not change with later events.
type State struct {
	checker *Checker
	// calls and sessions are in the order of their first event.
	calls    []*Call
	sessions []*listedSession
	// byKey and byID are indexes of calls and sessions.
	byKey map[Key]*Call
	byID  map[domain.SessionID]*listedSession
	// waiting has the call of each undecided permission request.
	waiting map[domain.PermissionID]Key
}

// A listedSession is a Session with the replies that were counted.
type listedSession struct {
	Session
	Answered map[domain.MessageID]bool `json:"answered,omitempty"`
}

// Projection returns the fold of the whole log into its calls. It reads every kind:
// an event of an unknown kind excuses an unfinished call.
func Projection() projections.Projection[*State] {
	return projections.Projection[*State]{Name: "calls", Version: 6, Init: New, Apply: apply}
}

// New returns the state before the first event.
func New() *State {
	return &State{checker: NewChecker(nil, 0), byKey: map[Key]*Call{}, byID: map[domain.SessionID]*listedSession{}, waiting: map[domain.PermissionID]Key{}}
}

// apply folds one event into the lists of calls and sessions and into the checks.
func apply(s *State, v events.Envelope) *State {
	s.checker.Apply(v)
	id, ok := v.Stream.Session()
	if !ok {
		return s
	}
	known := s.byID[id]
	if known == nil {
		known = &listedSession{Session: Session{ID: id, Opened: v.Time}, Answered: map[domain.MessageID]bool{}}
		s.sessions, s.byID[id] = append(s.sessions, known), known
	}
	s.list(known, v)
	known.Apply(v)
	return s
}

// list folds an event of a session's stream into its calls.
func (s *State) list(known *listedSession, v events.Envelope) {
	at := s.checker.at(v)
	switch e := v.Event.(type) {
	case events.ReplyReceived:
		if !known.Answered[e.Message] {
			known.Answered[e.Message] = true
			known.Replies++
		}
		for _, asked := range e.Calls {
			s.asked(known, e.Message, e.Turn, "", asked, v)
		}
	case events.CallsAdded:
		var turn domain.TurnID
		if parent := s.byKey[Key{known.ID, e.Message, e.Parent}]; parent != nil {
			turn = parent.Turn
		}
		for _, asked := range e.Calls {
			s.asked(known, e.Message, turn, e.Parent, asked, v)
		}
	case events.CallStarted:
		s.call(known, e.Message, e.Call, e.Tool).Start(e, v, at)
	case events.CallSettled:
		c := s.call(known, e.Message, e.Call, e.Tool)
		known.Count(c, -1)
		c.Settle(e, v, at)
		known.Count(c, +1)
	case events.LateResultObserved:
		s.call(known, e.Message, e.Call, e.Tool).Late++
	case events.PermissionRequested:
		s.requested(e.Permission, Key{known.ID, e.Message, e.Call})
	case events.QuestionAsked:
		s.requested(e.Question, Key{known.ID, e.Message, e.Call})
	case events.PermissionDecided:
		s.decided(e.Permission, e.WaitedMS)
	case events.QuestionAnswered:
		s.decided(e.Question, e.WaitedMS)
	}
}

// call returns a call, and makes it at its first event.
func (s *State) call(known *listedSession, message domain.MessageID, id domain.CallID, tool string) *Call {
	key := Key{known.ID, message, id}
	c := s.byKey[key]
	if c == nil {
		made := known.NewCall(message, id, tool)
		c = &made
		s.calls, s.byKey[key] = append(s.calls, c), c
	}
	return c
}

// asked folds a call of a reply or of a running call.
func (s *State) asked(known *listedSession, message domain.MessageID, turn domain.TurnID, parent domain.CallID, asked domain.Call, v events.Envelope) {
	c := s.call(known, message, asked.ID, asked.Name)
	if c.Ask(turn, parent, asked, v, s.checker.at(v)) {
		known.Calls++
		known.Count(c, +1)
	}
}

// requested counts a permission request of a call.
func (s *State) requested(id domain.PermissionID, key Key) {
	if c := s.byKey[key]; c != nil {
		c.Requests++
	}
	s.waiting[id] = key
}

// decided adds the time that a call waited for a decision.
func (s *State) decided(id domain.PermissionID, waitedMS int64) {
	key, ok := s.waiting[id]
	if !ok {
		return
	}
	delete(s.waiting, id)
	if c := s.byKey[key]; c != nil {
		c.WaitedMS += waitedMS
	}
}

// Calls returns all calls that a model made, in the order of their first event.
func (s *State) Calls() []Call { return s.where(func(c *Call) bool { return !c.Asked.IsZero() }) }

// Orphans returns the calls of which the log has a start, a settlement or late
// results, but no reply that asks for them, in the order of their first event.
func (s *State) Orphans() []Call { return s.where(func(c *Call) bool { return c.Asked.IsZero() }) }

// where returns copies of the calls that a function selects, in order.
func (s *State) where(selects func(*Call) bool) []Call {
	var all []Call
	for _, c := range s.calls {
		if selects(c) {
			all = append(all, *c)
		}
	}
	return all
}

// Call returns the call with a key, and whether the log has an event of the call. The
// call may be an orphan, a call that no reply asks for.
func (s *State) Call(key Key) (Call, bool) {
	c, ok := s.byKey[key]
	if !ok {
		return Call{}, false
	}
	return *c, true
}

// Sessions returns all sessions, in the order of their first event.
func (s *State) Sessions() []Session {
	all := make([]Session, len(s.sessions))
	for i, known := range s.sessions {
		all[i] = known.Session
	}
	return all
}

// Session returns one session, and whether the log has an event of it.
func (s *State) Session(id domain.SessionID) (Session, bool) {
	known, ok := s.byID[id]
	if !ok {
		return Session{}, false
	}
	return known.Session, true
}

// Retained returns every managed output that a settlement names, in log order,
// including pruned ones.
func (s *State) Retained() []Retention {
	all := []Retention{}
	for r := range s.checker.Outputs() {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Retention) int {
		if a.Place.Ordinal != b.Place.Ordinal {
			return a.Place.Ordinal - b.Place.Ordinal
		}
		return int(a.Ref.Channel()) - int(b.Ref.Channel())
	})
	return all
}

// Exceptions is [Checker.Exceptions].
func (s *State) Exceptions() []Exception { return s.checker.Exceptions() }

// Unfinished is [Checker.Unfinished].
func (s *State) Unfinished() []Exception { return s.checker.Unfinished() }

// savedState is the JSON of a State in a checkpoint.
type savedState struct {
	Checker  savedChecker                `json:"checker"`
	Calls    []*Call                     `json:"calls"`
	Sessions []*listedSession            `json:"sessions"`
	Waiting  map[domain.PermissionID]Key `json:"waiting"`
}

// savedChecker is the JSON of a Checker without a Store.
type savedChecker struct {
	Folded        int              `json:"folded"`
	Sessions      any              `json:"sessions"`
	Pending       any              `json:"pending"`
	Layers        any              `json:"layers"`
	Registrations any              `json:"registrations"`
	Processes     any              `json:"processes"`
	Permissions   any              `json:"permissions"`
	Outputs       any              `json:"outputs"`
	Running       int              `json:"running"`
	Found         []foundException `json:"found"`
	Counts        Counts           `json:"counts"`
}

// saved returns the JSON of a Checker. Its maps are those of the Checker.
func (s *Checker) saved() savedChecker {
	return savedChecker{
		s.folded, s.sessions, s.pending, s.layers, s.registrations, s.processes, s.permissions, s.outputs, s.running, s.found, s.counts,
	}
}

// MarshalJSON writes the state for a checkpoint. States that were folded from the same events
// have the same JSON.
func (s *State) MarshalJSON() ([]byte, error) {
	return projections.Encode(savedState{s.checker.saved(), s.calls, s.sessions, s.waiting})
}

// UnmarshalJSON is the inverse of MarshalJSON. It replaces the contents of s. After an error
// the caller must not use s.
func (s *State) UnmarshalJSON(data []byte) error {
	*s = *New()
	saved := savedState{Checker: s.checker.saved()}
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	c := saved.Checker
	s.checker.folded, s.checker.running, s.checker.found, s.checker.counts = c.Folded, c.Running, c.Found, c.Counts
	for known := range s.checker.sessions.All() {
		known.index()
	}
	s.calls, s.sessions = saved.Calls, saved.Sessions
	if saved.Waiting != nil {
		s.waiting = saved.Waiting
	}
	for _, c := range s.calls {
		s.byKey[c.Key()] = c
	}
	for _, known := range s.sessions {
		s.byID[known.ID] = known
		if known.Answered == nil {
			known.Answered = map[domain.MessageID]bool{}
		}
	}
	return nil
}
