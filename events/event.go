package events

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// An Event is a recorded fact, typed and in the past tense. The types of this
// package and [Unknown] are the only implementations.
type Event interface {
	// Kind returns the name under which the event is stored. It never changes.
	Kind() string
	event()
}

// ErrUnknownKind reports an event of a kind or version that this program does
// not know, to a reader that cannot skip it.
var ErrUnknownKind = errors.New("kind of event is not known")

// An Unknown is an event of a kind or version that this program does not know,
// with its data unchanged.
type Unknown struct {
	Name    string
	Version int
	Data    json.RawMessage
}

// Kind returns the name of the unknown kind.
func (u Unknown) Kind() string { return u.Name }
func (Unknown) event()         {}

// An Envelope is an event with its ID, its stream, revision and position, and
// its cause.
type Envelope struct {
	ID          domain.EventID
	Stream      Stream
	Revision    Revision // the length of the stream with this event
	Position    Position // zero in the result of an append, which does not return positions
	Time        time.Time
	Correlation domain.SessionID // the session of the stream; zero for other streams
	Causation   domain.EventID   // the event that led to it, or zero
	Event       Event
}
