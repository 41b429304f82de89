package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
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

// metadata is the JSON beside an event, with the keys that EventStoreDB's own
// tools expect.
type metadata struct {
	Correlation domain.SessionID `json:"$correlationId,omitzero"`
	Causation   domain.EventID   `json:"$causationId,omitzero"`
}

// Encode returns the record of an event. The time is kept to the microsecond.
func Encode(d Draft) (Record, error) { return (&scratch{}).encode(d) }

// A scratch is memory for records that are kept by nobody: it may be used
// again once they are of no use. The zero scratch is empty.
type scratch struct {
	b       []byte // what was written so far; it is shared with the records, and never written twice
	records []Record
}

// roomOf is for an event of the usual size with its metadata.
const roomOf = 768

// encode is Encode with the bytes of the record in the scratch.
func (s *scratch) encode(d Draft) (Record, error) {
	if d.Event == nil {
		return Record{}, fmt.Errorf("encode %s: there is no event", d.ID)
	}
	version := kinds[d.Event.Kind()].version
	data, err := []byte(nil), error(nil)
	if u, ok := d.Event.(Unknown); ok {
		version, data = u.Version, u.Data
		if !json.Valid(data) {
			return Record{}, fmt.Errorf("encode %s: its data are not JSON", u.Name)
		}
	} else if data, err = s.marshal(d.Event); err != nil {
		return Record{}, fmt.Errorf("encode %s: %w", d.Event.Kind(), err)
	}
	return Record{
		ID: d.ID, Kind: d.Event.Kind(), Version: version, Time: d.Time.UTC().Truncate(time.Microsecond),
		Data: data, Metadata: s.metadata(metadata{d.Correlation, d.Causation}),
	}, nil
}

// marshal leaves <, > and & as they are: records are read by people, too.
func (s *scratch) marshal(e Event) ([]byte, error) {
	if s.b == nil {
		s.b = make([]byte, 0, roomOf)
	}
	f := form{b: s.b}
	if !f.write(e) {
		return marshalAny(e)
	}
	return s.took(f.b), nil
}

func (s *scratch) metadata(m metadata) []byte {
	f := form{b: s.b}
	m.form(&f)
	return s.took(f.b)
}

// took keeps what was appended to the scratch, and returns that.
func (s *scratch) took(b []byte) []byte {
	was := len(s.b)
	s.b = b
	return b[was:len(b):len(b)]
}

// maxScratch bounds the bytes of a scratch that is kept for another append.
const maxScratch = 64 << 10

// scratches are those that no append uses.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// done gives a scratch back, whose records are used no more.
func (s *scratch) done() {
	if cap(s.b) > maxScratch {
		return
	}
	clear(s.records)
	s.b, s.records = s.b[:0], s.records[:0]
	scratches.Put(s)
}

// marshalAny is marshal by encoding/json.
func marshalAny(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode returns the envelope of an entry. A kind that is not known, or a
// version later than the one that is, gives an Unknown, which shares its data
// with the entry. Metadata of one that are not as the ledger writes them say
// nothing. Nothing else is shared. Data or metadata of any other kind that do
// not decode are an ErrDamaged that names stream, revision and position.
func Decode(e Entry) (Envelope, error) { return (&decoder{}).decode(e) }

func damaged(e Entry, err error) error {
	return fmt.Errorf("decode %s at revision %d of %s, position %s: %w: %w", e.Kind, e.Revision, e.Stream, e.Position, ErrDamaged, err)
}
