package calls

import (
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Law is a promise of the log that a real history can break.
type Law string

// The laws of calls. Each is checked in every session, but where it says
// otherwise.
const (
	EndedTwice         Law = "a call ends once"
	StartedTwice       Law = "a call begins at most once" // one that is idempotent may begin again
	StartedAfterEnd    Law = "a call that ended does not begin"
	AskedAsAnother     Law = "an ID in a reply names one call" // not checked in an import
	NeverAsked         Law = "a result is that of a call"      // an orphan result
	Open               Law = "a call ends"
	StartDenied        Law = "a call that began says so"               // not checked in an import
	StartMissing       Law = "a call runs once its start is on record" // not checked in an import
	NotOffered         Law = "a call runs under what its turn offered"
	NoMaterialization  Law = "a settlement names a materialization" // an import need not know
	NoRegistration     Law = "a registration that is named exists"
	NotLive            Law = "a turn offers what is in effect" // neither closed nor hidden; not checked for what was only observed
	ForeignReference   Law = "an output belongs to one settlement"
	PrunedUnkept       Law = "what is pruned was kept"
	WaitsForDecision   Law = "a request for permission is decided"
	DecidedUnrequested Law = "a decision is about a request"
	NeverOpened        Law = "a session begins with its opening"
)

// An Exception is a place where a history breaks a law.
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

// A found is an exception and the ordinal of its event.
type found struct {
	Exception
	Ordinal int `json:"ordinal"`
}

// exception returns the breach of a law by the event at a place, about a call.
func exception(law Law, key Key, tool string, at Place, format string, args ...any) found {
	return found{Exception{
		Law: law, Detail: fmt.Sprintf(format, args...), Session: key.Session, Stream: events.SessionStream(key.Session),
		Revision: at.Revision, Position: at.Position, Event: at.Event, Message: key.Message, Call: key.Call, Tool: tool,
	}, at.Ordinal}
}

// Exceptions returns every place where the events folded break a law, in the
// order of the log, and of one event in the order of the laws' texts. What a
// later event can still mend is among them until it does: a call that runs is
// open, a request that a person has not answered waits.
func (s *State) Exceptions() []Exception {
	all := slices.Clone(s.kept.Found)
	for c := range s.unusual() {
		all = append(all, c.unfinished()...)
	}
	for id, p := range s.kept.Permissions {
		tool := ""
		if c, ok := s.Call(p.Call); ok {
			tool = c.Tool
		}
		all = append(all, exception(WaitsForDecision, p.Call, tool, p.Place, "%s asks for %s and is not decided", id, p.Action))
	}
	slices.SortStableFunc(all, func(a, b found) int {
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

// unfinished returns what a later event can still mend: a call without an end,
// and a start or a result without a call.
func (c *record) unfinished() []found {
	var all []found
	add := func(law Law, at Place, detail string) {
		all = append(all, exception(law, c.Key(), c.Tool, at, "%s", detail))
	}
	if !c.Asked.IsZero() {
		switch c.State {
		case Asked:
			add(Open, c.AskedAt, "it was asked for and has no end")
		case Begun:
			add(Open, c.StartedAt, "it began and has no end")
		}
		return all
	}
	if c.State == Settled {
		add(NeverAsked, c.SettledAt, "its settlement is on record, and no reply asks for it")
	}
	for _, at := range c.Strays {
		add(NeverAsked, at, "a late result is on record, and no reply asks for it")
	}
	if len(all) == 0 {
		add(NeverAsked, c.StartedAt, "its start is on record, and no reply asks for it")
	}
	return all
}
