package timeline

import (
	"context"
	"iter"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The limits of the entries that wait for the ends of calls.
const (
	maxHeld      = 1_000
	maxHeldBytes = 64 << 20
)

// A Place is the identity and the time of an event of the session.
type Place struct {
	Event    domain.EventID
	Revision events.Revision
	Position events.Position
	Time     time.Time
}

// placeOf returns the place of an event.
func placeOf(v events.Envelope) Place {
	return Place{Event: v.ID, Revision: v.Revision, Position: v.Position, Time: v.Time}
}

// An Entry is an event of the session. The caller must not change it.
type Entry struct {
	Place
	Event events.Event
	// Calls are the calls that Event asks for first, in its order, if it is a
	// ReplyReceived or a CallsAdded.
	Calls []*Call
}

// settled reports whether all calls of the entry are settled.
func (e *Entry) settled() bool {
	for _, c := range e.Calls {
		if c.End == nil {
			return false
		}
	}
	return true
}

// A Call is a call of a reply with the events about it.
type Call struct {
	Turn    domain.TurnID
	Message domain.MessageID
	// Parent is the call of the same reply that made this one; empty: the model did.
	Parent domain.CallID
	// Asked is the call as the model, or Parent, asked for it, and AskedAt the event.
	Asked   domain.Call
	AskedAt Place
	// Starts are the starts of the call. A call has more than one only if a later
	// process started it again.
	Starts []Start
	// Loops are the detected loops that end in the call.
	Loops []Loop
	// Permissions are its permission requests, and Questions those to a person, in the
	// order of the requests.
	Permissions []Permission
	Questions   []Question
	// End is the settlement; nil: the call is open.
	End *End
	// Late are the results that came after the settlement.
	Late []LateResult
}

// Tool returns the name of the tool, as the model wrote it.
func (c *Call) Tool() string { return c.Asked.Name }

// A Start is a start of a call.
type Start struct {
	Place
	events.CallStarted
}

// A Loop is a loop of calls that was detected.
type Loop struct {
	Place
	events.LoopDetected
}

// A Permission is a permission request with its decision.
type Permission struct {
	Place
	events.PermissionRequested
	// Decision is nil while the request is undecided. A request has one; the first counts.
	Decision *Decision
}

// A Decision is the decision on a permission request.
type Decision struct {
	Place
	events.PermissionDecided
}

// A Question is a request of questions to a person with its answer.
type Question struct {
	Place
	events.QuestionAsked
	// Answer is nil while the questions are open. The first counts.
	Answer *Answer
}

// An Answer is the end of a question.
type Answer struct {
	Place
	events.QuestionAnswered
}

// An End is the settlement of a call.
type End struct {
	Place
	events.CallSettled
}

// A LateResult is a result that came after the settlement of its call.
type LateResult struct {
	Place
	events.LateResultObserved
}

// Read yields the entries of a session up to the revision until, which it includes; zero:
// to the end of the stream. A session without events has no entries.
func Read(ctx context.Context, l *events.Ledger, session domain.SessionID, until events.Revision) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var b Builder
		for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if until > 0 && v.Revision > until {
				break
			}
			b.Add(v)
			for e := range b.Take {
				if !yield(e, nil) {
					return
				}
			}
		}
		for e := range b.Rest {
			if !yield(e, nil) {
				return
			}
		}
	}
}
