package calls

import (
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Law is a promise of the log that an imported or foreign history can break.
type Law string

// The laws of calls. Each is checked in every session, but where it says
// otherwise.
const (
	EndedTwice         Law = "a call ends once"
	StartedTwice       Law = "a call begins at most once" // one that is idempotent may begin again
	StartedAfterEnd    Law = "a call that ended does not begin"
	AskedAsAnother     Law = "an ID in a reply names one call"         // not checked in an import
	NeverAsked         Law = "a result is that of a call"              // an orphan result; not checked in an import
	Open               Law = "a call ends"                             // by the end of its process; not checked in an import
	StartDenied        Law = "a call that began says so"               // not checked in an import
	StartMissing       Law = "a call runs once its start is on record" // not checked in an import
	NotOffered         Law = "a call runs under what its turn offered"
	NoMaterialization  Law = "a settlement names a materialization" // an import need not know
	NoRegistration     Law = "a registration that is named exists"
	NotLive            Law = "a turn offers what is in effect" // neither closed nor hidden; not checked for what was only observed
	ForeignReference   Law = "an output belongs to one settlement"
	PrunedUnkept       Law = "what is pruned was kept"
	WaitsForDecision   Law = "a request for permission is decided" // by the end of its process
	DecidedUnrequested Law = "a decision is about a request"
	NeverOpened        Law = "a session begins with its opening"
)

// An Exception is an event that breaks a law.
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

// A foundException is an exception with the ordinal of its event.
type foundException struct {
	Exception
	Ordinal int `json:"ordinal"`
}

// exception returns the breach of a law by the event at a place, about a call.
func exception(law Law, key Key, tool string, at Place, format string, args ...any) foundException {
	return foundException{Exception{
		Law: law, Detail: fmt.Sprintf(format, args...), Session: key.Session, Stream: events.SessionStream(key.Session),
		Revision: at.Revision, Position: at.Position, Event: at.Event, Message: key.Message, Call: key.Call, Tool: tool,
	}, at.Ordinal}
}

// Exceptions returns every event that breaks a law, in log order, and those of
// one event in the order of their texts.
//
// A call or permission request of [State.Unfinished] is an exception only
// while its process is recorded as stopped: that process would have ended it.
// This does not apply to imports, whose file may end anywhere, and to sessions
// with unknown kinds, one of which may have ended it. A result without a call
// is an exception only in a session that ran here: the file of an import may
// begin anywhere.
func (s *State) Exceptions() []Exception {
	all := slices.Clone(s.kept.Found)
	for _, f := range s.unfinished() {
		if s.overdue(f) {
			all = append(all, f)
		}
	}
	for c := range s.unusual() {
		if c.Asked.IsZero() && !c.elsewhere() {
			all = append(all, c.orphaned()...)
		}
	}
	return inOrder(all)
}

// Unfinished returns the calls without an end and the undecided permission
// requests, as exceptions of [Open] and [WaitsForDecision], in log order.
// While their process runs they break no law.
func (s *State) Unfinished() []Exception { return inOrder(s.unfinished()) }

func (s *State) unfinished() (all []foundException) {
	for c := range s.unusual() {
		switch {
		case c.Asked.IsZero():
		case c.State == Asked:
			all = append(all, exception(Open, c.Key(), c.Tool, c.AskedAt, "it was asked for and has no end"))
		case c.State == Begun:
			all = append(all, exception(Open, c.Key(), c.Tool, c.StartedAt, "it began and has no end"))
		}
	}
	for id, p := range s.kept.Permissions {
		tool := ""
		if c, ok := s.Call(p.Call); ok {
			tool = c.Tool
		}
		all = append(all, exception(WaitsForDecision, p.Call, tool, p.Place, "%s asks for %s and is not decided", id, p.Action))
	}
	return all
}

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

// overdue reports whether the process of an unfinished call or request is
// recorded as stopped. If the process is unknown, all processes must be
// stopped.
func (s *State) overdue(f foundException) bool {
	known := s.sessions[f.Session]
	if known.Imported() || known.Unknown {
		return false
	}
	if process := s.processOf(known, Key{f.Session, f.Message, f.Call}); !process.IsZero() {
		return s.kept.Processes[process]
	}
	for _, stopped := range s.kept.Processes {
		if !stopped {
			return false
		}
	}
	return true
}

// processOf returns the process of a call: the one that began it, or whose
// tools its turn offered, or of the last turn that offered tools. It is zero
// if unknown.
func (s *State) processOf(known *session, key Key) domain.ProcessID {
	c, ok := s.Call(key)
	if ok && !c.Process.IsZero() {
		return c.Process
	}
	if turn, found := known.turns.find(c.Turn); ok && found {
		if process := s.offeredBy(known.offered[turn]); !process.IsZero() {
			return process
		}
	}
	for _, offer := range slices.Backward(known.offered) {
		if process := s.offeredBy(offer); !process.IsZero() {
			return process
		}
	}
	return domain.ProcessID{}
}

// offeredBy returns the process that owns the layers of an offer.
func (s *State) offeredBy(offer int) domain.ProcessID {
	for _, t := range s.kept.Offers[offer] {
		if l := s.kept.Layers[t.Layer]; l != nil && !l.Process.IsZero() {
			return l.Process
		}
	}
	return domain.ProcessID{}
}

// elsewhere reports whether another program ran the call: an imported one
// without a turn of this program.
func (c *callRecord) elsewhere() bool { return c.Imported && c.Turn.IsZero() }

// orphaned returns the exceptions of a call that no reply asks for.
func (c *callRecord) orphaned() []foundException {
	var all []foundException
	add := func(at Place, detail string) {
		all = append(all, exception(NeverAsked, c.Key(), c.Tool, at, "%s", detail))
	}
	if c.State == Settled {
		add(c.SettledAt, "its settlement is on record, and no reply asks for it")
	}
	for _, at := range c.Strays {
		add(at, "a late result is on record, and no reply asks for it")
	}
	if len(all) == 0 {
		add(c.StartedAt, "its start is on record, and no reply asks for it")
	}
	return all
}
