package calls

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Law is a promise of the log that an imported or foreign history can break.
type Law string

// The laws of calls. Each is checked in every session, except where its comment
// limits it.
const (
	EndedTwice Law = "a call ends once"
	// StartedTwice permits a second start if both starts declare the call idempotent.
	StartedTwice    Law = "a call begins at most once"
	StartedAfterEnd Law = "a call that ended does not begin"
	// AskedAsAnother is not checked in an import.
	AskedAsAnother Law = "an ID in a reply names one call"
	// NeverAsked is broken by an orphan, a start or result that no reply asks for. It
	// is not checked in an import.
	NeverAsked Law = "a result is that of a call"
	// Open requires that a call is settled before the log records that the process of
	// the call stopped. It is not checked in an import.
	Open Law = "a call ends"
	// StartDenied is not checked in an import.
	StartDenied Law = "a call that began says so"
	// StartMissing is not checked in an import.
	StartMissing Law = "a call runs once its start is on record"
	// AddedOutside requires that a call has begun and not ended when it adds calls.
	AddedOutside Law = "a call adds calls while it runs"
	NotOffered   Law = "a call runs under what its turn offered"
	// NoMaterialization requires that the turn of a start, a settlement or a reply is
	// on record. The events of an import may name no turn.
	NoMaterialization Law = "a settlement names a materialization"
	NoRegistration    Law = "a registration that is named exists"
	// NotLive counts a tool as in effect if it is neither closed nor hidden. A turn
	// that was only observed may offer closed tools.
	NotLive          Law = "a turn offers what is in effect"
	ForeignReference Law = "an output belongs to one settlement"
	PrunedUnkept     Law = "what is pruned was kept"
	// WaitsForDecision requires that a permission request is decided before the log
	// records that the process stopped.
	WaitsForDecision   Law = "a request for permission is decided"
	DecidedUnrequested Law = "a decision is about a request"
	NeverOpened        Law = "a session begins with its opening"
)

// An Exception is an event that breaks a law. Detail is a sentence for people.
// Session, Message, Call and Tool are empty if the breach concerns no session,
// message, call or tool.
type Exception struct {
	Law      Law              `json:"law"`
	Detail   string           `json:"detail"`
	Session  domain.SessionID `json:"session,omitzero"`
	Stream   events.Stream    `json:"stream"`
	Revision events.Revision  `json:"revision"`
	Position events.Position  `json:"position"`
	Event    domain.EventID   `json:"event"`
	Message  domain.MessageID `json:"message,omitzero"`
	Call     domain.CallID    `json:"call,omitempty"`
	Tool     string           `json:"tool,omitempty"`
}

// A foundException is an exception with the ordinal of its event, by which exceptions
// are sorted. A Checker stores an exception that no later event can remove, and
// computes all others on demand.
type foundException struct {
	Exception
	Ordinal int `json:"ordinal"`
}

// exception returns the breach of a law by the event at the given place, in the
// stream of key.Session. Message and Call are those of key and may be empty.
func exception(law Law, key Key, tool string, at Place, format string, args ...any) foundException {
	return foundException{Exception{
		Law: law, Detail: fmt.Sprintf(format, args...), Session: key.Session, Stream: events.SessionStream(key.Session),
		Revision: at.Revision, Position: at.Position, Event: at.Event, Message: key.Message, Call: key.Call, Tool: tool,
	}, at.Ordinal}
}

// Exceptions returns every event that breaks a law, in log order; the breaches of one
// event are in the order of their texts.
//
// An unfinished call or permission request is an exception only if its process is
// recorded as stopped, because a running process will still
// end it. It is no exception in an import, whose file may end anywhere, nor in a
// session with events of unknown kinds, which may have ended it. A result without a
// call is an exception unless the session is an import, whose file may begin
// anywhere.
func (s *Checker) Exceptions() []Exception {
	all := slices.Clone(s.found)
	for known, f := range s.unfinished() {
		if s.overdue(known, f) {
			all = append(all, f)
		}
	}
	for known := range s.unusual() {
		for _, c := range known.Calls {
			if !c.Asked && !c.Imported {
				all = append(all, known.orphaned(c)...)
			}
		}
	}
	return inOrder(all)
}

// Unfinished returns the calls without a settlement and the undecided permission
// requests, in log order, as exceptions of the laws [Open] and [WaitsForDecision].
// They break no law while the process of the call runs.
func (s *Checker) Unfinished() []Exception {
	var all []foundException
	for _, f := range s.unfinished() {
		all = append(all, f)
	}
	return inOrder(all)
}

// unusual yields the sessions with an open call or with a call that no reply asks for.
// The body of the loop must not use sessions.
func (s *Checker) unusual() iter.Seq[*checkedSession] {
	return func(yield func(*checkedSession) bool) {
		for id := range s.pending.All() {
			if known := s.session(*id); known != nil && !yield(known) {
				return
			}
			s.trim()
		}
	}
}

// unfinished yields the exceptions of Unfinished, in no order, each with its session.
func (s *Checker) unfinished() iter.Seq2[*checkedSession, foundException] {
	return func(yield func(*checkedSession, foundException) bool) {
		for known := range s.unusual() {
			for _, c := range known.Calls {
				at, detail := Place{}, ""
				switch {
				case !c.Asked || c.State == Settled:
					continue
				case c.State == Asked:
					at, detail = c.Places.Asked, "it was asked for and has no end"
				default:
					at, detail = c.Places.Started, "it began and has no end"
				}
				if !yield(known, exception(Open, known.key(c), c.Tool, at, "%s", detail)) {
					return
				}
			}
		}
		for p := range s.permissions.All() {
			known, tool := s.session(p.Call.Session), ""
			if known == nil {
				return // the disk failed
			}
			if c := known.calls[callKey{p.Call.Message, p.Call.Call}]; c != nil {
				tool = c.Tool
			}
			if !yield(known, exception(WaitsForDecision, p.Call, tool, p.Place, "%s asks for %s and is not decided", p.ID, p.Action)) {
				return
			}
			s.trim()
		}
	}
}

// inOrder sorts exceptions by log order and text, in place, and returns them without
// their ordinals.
func inOrder(all []foundException) []Exception {
	slices.SortStableFunc(all, func(a, b foundException) int {
		if a.Ordinal != b.Ordinal {
			return a.Ordinal - b.Ordinal
		}
		return strings.Compare(string(a.Law)+a.Detail, string(b.Law)+b.Detail)
	})
	exceptions := make([]Exception, len(all))
	for i, f := range all {
		exceptions[i] = f.Exception
	}
	return exceptions
}

// overdue reports whether an unfinished call or request is a breach: the process that
// should have ended it is recorded as stopped. If the log does not name that process,
// every process must be stopped.
func (s *Checker) overdue(known *checkedSession, f foundException) bool {
	if known.Imported || known.Unknown {
		return false
	}
	if id := s.processOf(known, callKey{f.Message, f.Call}); !id.IsZero() {
		p := s.processes.Get(id)
		return p != nil && p.Stopped
	}
	return s.running == 0
}

// processOf returns the process that should end a call: the process that began the
// call; otherwise the owner of the layers that the turn of the call offered;
// otherwise the owner of the layers of the latest turn that offered tools. If the log
// names no such process, the result is zero.
func (s *Checker) processOf(known *checkedSession, key callKey) domain.ProcessID {
	if c := known.calls[key]; c != nil {
		if process := known.process(c); !process.IsZero() {
			return process
		}
		if turn, found := known.turns[c.Turn]; found {
			if process := s.offeredBy(known.Offers[known.Turns[turn].Offer]); !process.IsZero() {
				return process
			}
		}
	}
	for _, turn := range slices.Backward(known.Turns) {
		if process := s.offeredBy(known.Offers[turn.Offer]); !process.IsZero() {
			return process
		}
	}
	return domain.ProcessID{}
}

// offeredBy returns the process that owns the layers of an offer: the owner of the
// first layer that has one. It is zero if the offer is empty or no layer has an
// owner.
func (s *Checker) offeredBy(offer []domain.Offered) domain.ProcessID {
	for _, t := range offer {
		if l := s.layer(t.Layer); l != nil && !l.Process.IsZero() {
			return l.Process
		}
	}
	return domain.ProcessID{}
}

// orphaned returns the exceptions of a call that no reply asks for: one for its
// settlement and one for each late result. For a call that has only a start, it
// returns one for the start.
func (known *checkedSession) orphaned(c *checkedCall) []foundException {
	var all []foundException
	add := func(at Place, detail string) {
		all = append(all, exception(NeverAsked, known.key(c), c.Tool, at, "%s", detail))
	}
	if c.State == Settled {
		add(c.Places.Settled, "its settlement is on record, and no reply asks for it")
	}
	for _, at := range c.Places.Strays {
		add(at, "a late result is on record, and no reply asks for it")
	}
	if len(all) == 0 {
		add(c.Places.Started, "its start is on record, and no reply asks for it")
	}
	return all
}
