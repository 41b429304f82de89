package events

import (
	"encoding/json"
	"errors"
	"fmt"
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

// A kind holds the current version of one kind of event, its decoder and the
// upcasts from older versions.
type kind struct {
	version int
	// upcasts[i] converts data of version i+1 to version i+2.
	upcasts []func(json.RawMessage) (json.RawMessage, error)
	decode  func(json.RawMessage) (Event, error)
}

// of returns the kind of the event type E with its upcasts, oldest first. The
// version is one more than the number of upcasts.
func of[E Event](upcasts ...func(json.RawMessage) (json.RawMessage, error)) kind {
	return kind{version: len(upcasts) + 1, upcasts: upcasts, decode: func(data json.RawMessage) (Event, error) {
		var e E
		err := json.Unmarshal(data, &e)
		return e, err
	}}
}

// read decodes data of any version from 1 to that of k.
func (k kind) read(version int, data json.RawMessage) (Event, error) {
	for i, upcast := range k.upcasts[version-1:] {
		var err error
		if data, err = upcast(data); err != nil {
			return nil, fmt.Errorf("upcast version %d: %w", version+i, err)
		}
	}
	return k.decode(data)
}

// kinds maps the name of every kind that this program writes or reads.
var kinds = map[string]kind{
	"ProcessStarted":      of[ProcessStarted](unchanged),
	"LeaseRenewed":        of[LeaseRenewed](),
	"ProcessStopped":      of[ProcessStopped](),
	"LayerOpened":         of[LayerOpened](),
	"ToolsRegistered":     of[ToolsRegistered](),
	"RegistrationClosed":  of[RegistrationClosed](),
	"LayerClosed":         of[LayerClosed](),
	"SessionOpened":       of[SessionOpened](),
	"PromptAdmitted":      of[PromptAdmitted](),
	"TurnMaterialized":    of[TurnMaterialized](),
	"ReplyReceived":       of[ReplyReceived](),
	"ReplyRefused":        of[ReplyRefused](),
	"CallStarted":         of[CallStarted](),
	"CallSettled":         of[CallSettled](),
	"LateResultObserved":  of[LateResultObserved](),
	"PermissionRequested": of[PermissionRequested](),
	"PermissionDecided":   of[PermissionDecided](),
	"ApprovalSaved":       of[ApprovalSaved](),
	"ApprovalRevoked":     of[ApprovalRevoked](),
	"LoopDetected":        of[LoopDetected](),
	"OutputPruned":        of[OutputPruned](),
	"SessionInterrupted":  of[SessionInterrupted](),
	"SessionClosed":       of[SessionClosed](),
	"SettingChanged":      of[SettingChanged](),
	"SessionSpawned":      of[SessionSpawned](),
	"ContextAdded":        of[ContextAdded](),
	"ContextCompacted":    of[ContextCompacted](),
	"CommandRan":          of[CommandRan](),
	"ProviderFailed":      of[ProviderFailed](),
}
