package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// An Event is something that happened, past tense and typed. The set is
// closed but for [Unknown].
type Event interface {
	// Kind is the name under which the event is kept, for ever.
	Kind() string
	event()
}

// ErrUnknownKind says that a reader met a kind of event, or a version of one,
// that this program does not know and that it cannot do without.
var ErrUnknownKind = errors.New("kind of event is not known")

// An Unknown is an event of a kind or version that this program does not know,
// as it is kept.
type Unknown struct {
	Name    string
	Version int
	Data    json.RawMessage
}

// Kind returns the name under which the event is kept.
func (u Unknown) Kind() string { return u.Name }
func (Unknown) event()         {}

// An Envelope is an event in its place.
type Envelope struct {
	ID          domain.EventID
	Stream      Stream
	Revision    Revision // the length of the stream with this event
	Position    Position // zero where the event was just appended, as only readers learn it
	Time        time.Time
	Correlation domain.SessionID // the session it belongs to; zero where none
	Causation   domain.EventID   // the event that led to it; zero where none
	Event       Event
}

// A kind says how one kind of event is written and read.
type kind struct {
	version int
	// upcasts[i] turns the data of version i+1 into that of version i+2.
	upcasts []func(json.RawMessage) (json.RawMessage, error)
	decode  func(json.RawMessage) (Event, error)
}

func of[E Event](upcasts ...func(json.RawMessage) (json.RawMessage, error)) kind {
	return kind{version: len(upcasts) + 1, upcasts: upcasts, decode: func(data json.RawMessage) (Event, error) {
		var e E
		err := json.Unmarshal(data, &e)
		return e, err
	}}
}

// read returns the event of data that were written in a version from 1 to that
// of k.
func (k kind) read(version int, data json.RawMessage) (Event, error) {
	for i, upcast := range k.upcasts[version-1:] {
		var err error
		if data, err = upcast(data); err != nil {
			return nil, fmt.Errorf("upcast version %d: %w", version+i, err)
		}
	}
	return k.decode(data)
}

// kinds are all kinds of events that this program writes or reads.
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
