package domain

import (
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"
)

type (
	sessionKind      struct{}
	messageKind      struct{}
	turnKind         struct{}
	eventKind        struct{}
	registrationKind struct{}
	scopeKind        struct{}
	layerKind        struct{}
	processKind      struct{}
	permissionKind   struct{}
)

func (sessionKind) prefix() string      { return "ses" }
func (messageKind) prefix() string      { return "msg" }
func (turnKind) prefix() string         { return "trn" }
func (eventKind) prefix() string        { return "evt" }
func (registrationKind) prefix() string { return "reg" }
func (scopeKind) prefix() string        { return "scp" }
func (layerKind) prefix() string        { return "lay" }
func (processKind) prefix() string      { return "prc" }
func (permissionKind) prefix() string   { return "per" }

// IDKind is the closed set of the things that an [ID] can identify.
type IDKind interface {
	sessionKind | messageKind | turnKind | eventKind | registrationKind | scopeKind | layerKind | processKind | permissionKind
	prefix() string
}

// An ID identifies one thing of kind K: a prefix, an underscore and a ULID. IDs
// of different kinds are different types. IDs of one kind are comparable with
// ==. The zero ID identifies no thing; it means that an ID is absent.
type ID[K IDKind] struct{ u ulid.ULID }

// The types of IDs. Each comment names the thing that the ID identifies.
type (
	// A SessionID identifies a session of one agent.
	SessionID = ID[sessionKind]
	// A MessageID identifies a prompt or a reply in a session.
	MessageID = ID[messageKind]
	// A TurnID identifies one request to the model, with its offer and its reply.
	TurnID = ID[turnKind]
	// An EventID identifies an event. Its bytes are the UUID of the event in
	// EventStoreDB.
	EventID = ID[eventKind]
	// A RegistrationID identifies a registration. It has the bytes of the ID of
	// the event that recorded it.
	RegistrationID = ID[registrationKind]
	// A ScopeID identifies a scope of registrations.
	ScopeID = ID[scopeKind]
	// A LayerID identifies a layer of registrations.
	LayerID = ID[layerKind]
	// A ProcessID identifies one run of a program.
	ProcessID = ID[processKind]
	// A PermissionID identifies one permission request.
	PermissionID = ID[permissionKind]
)

// IsZero reports whether id is the zero ID.
func (id ID[K]) IsZero() bool { return id.u == ulid.ULID{} }

// Bytes returns the sixteen bytes of the ULID. EventStoreDB uses them as a
// UUID.
func (id ID[K]) Bytes() [16]byte { return id.u }

// Compare orders IDs of one [Mint] by the order in which it made them. Records
// are ordered by position and revision, never by ID.
func (id ID[K]) Compare(other ID[K]) int { return id.u.Compare(other.u) }

// String returns the prefix, an underscore and the ULID, or the empty text for
// the zero ID. [ParseID] is its inverse.
func (id ID[K]) String() string {
	text, _ := id.AppendText(nil)
	return string(text)
}

// AppendText appends the text of String to b. Its error is nil.
func (id ID[K]) AppendText(b []byte) ([]byte, error) {
	if id.IsZero() {
		return b, nil
	}
	var k K
	b = append(append(b, k.prefix()...), '_')
	n := len(b)
	b = append(b, make([]byte, ulid.EncodedSize)...)
	return b, id.u.MarshalTextTo(b[n:])
}

// MarshalText returns the text of String.
func (id ID[K]) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText accepts the texts of ParseID, and the empty text for the zero
// ID. It leaves id unchanged when it returns an error.
func (id *ID[K]) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID[K]{}
		return nil
	}
	parsed, err := ParseID[K](string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Prefix returns the prefix of the IDs of kind K, without the underscore.
func (id ID[K]) Prefix() string {
	var k K
	return k.prefix()
}

// ParseID is the inverse of [ID.String]. Letters of the ULID may have either
// case. It returns an [ErrBadID] with the reason.
func ParseID[K IDKind](text string) (ID[K], error) {
	var k K
	rest, ok := strings.CutPrefix(text, k.prefix()+"_")
	if !ok {
		return ID[K]{}, fmt.Errorf("parse %q: %w: does not begin with %s_", text, ErrBadID, k.prefix())
	}
	u, err := ulid.ParseStrict(rest)
	if err != nil {
		return ID[K]{}, fmt.Errorf("parse %q: %w: %w", text, ErrBadID, err)
	}
	if u == (ulid.ULID{}) {
		return ID[K]{}, fmt.Errorf("parse %q: %w: the zero ID", text, ErrBadID)
	}
	return ID[K]{u}, nil
}

// IDFromBytes is the inverse of [ID.Bytes].
func IDFromBytes[K IDKind](b [16]byte) ID[K] { return ID[K]{b} }

// EventIDFromBytes is [IDFromBytes] for an event.
func EventIDFromBytes(b [16]byte) EventID { return IDFromBytes[eventKind](b) }

// RegistrationOf returns the ID of the registration that event e recorded. The
// bytes are the same.
func RegistrationOf(e EventID) RegistrationID { return RegistrationID(e) }

// EventOf returns the ID of the event that recorded registration r.
func EventOf(r RegistrationID) EventID { return EventID(r) }
