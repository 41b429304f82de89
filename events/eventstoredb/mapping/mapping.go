package mapping

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// ErrUnmappable is the error for a record that EventStoreDB cannot store: one with a
// time that has no form in RFC 3339.
var ErrUnmappable = errors.New("record has no form in EventStoreDB")

// The content types of data.
const (
	// JSON is the content type of data that are valid JSON.
	JSON = "application/json"
	// Octets is the content type of all other data.
	Octets = "application/octet-stream"
)

// LedgerKey is the member of the custom metadata that belongs to the ledger. The
// package doc describes its value.
const LedgerKey = "$ledger"

// A RawEvent is an event of EventStoreDB, as a client sends or receives it. Its
// slices may be shared with a record; the owner of the event must not change them.
type RawEvent struct {
	// ID is the bytes of the UUID, which are the bytes of the record's ID.
	ID   [16]byte
	Type string
	Data []byte
	// Metadata is the custom metadata.
	Metadata []byte
	// Created is the time at which the server stored the event. It is not sent to a
	// server.
	Created time.Time

	// ContentType is JSON, or any other type, which EventStoreDB treats as Octets.
	// Empty: the ContentType of the data.
	ContentType string
}

// timeLayout formats a time with microseconds and a constant length.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// FromRecord returns the event of a record. Created is not set, since the server
// chooses it. The event shares the data of the record, and its metadata are newly
// allocated. FromRecord returns ErrUnmappable for a year outside 0 to 9999.
func FromRecord(r events.Record) (RawEvent, error) {
	if year := r.Time.Year(); year < 0 || year > 9999 {
		return RawEvent{}, fmt.Errorf("%w: %s %s has a time in the year %d, not 0 to 9999", ErrUnmappable, r.Kind, r.ID, year)
	}
	f := RawEvent{ID: r.ID.Bytes(), Type: r.Kind, Data: r.Data, Metadata: wrapMetadata(r), ContentType: ContentType(r.Data)}
	if _, declared, ok := untagContentType(r.Metadata); ok {
		f.ContentType = declared
	}
	return f, nil
}

// ForeignEvent converts a record back to the event that another program wrote, an event
// without $ledger. It returns false if the record comes from no such event. It ignores
// the time of the record, because a client sends an event without a time.
func ForeignEvent(r events.Record) (RawEvent, bool) {
	if r.Version != 1 {
		return RawEvent{}, false
	}
	f := RawEvent{ID: r.ID.Bytes(), Type: r.Kind, Data: r.Data, Metadata: r.Metadata, ContentType: ContentType(r.Data)}
	if !f.HasLedgerKey() {
		return f, true
	}
	metadata, declared, ok := untagContentType(r.Metadata)
	if !ok || declared == f.ContentType {
		return RawEvent{}, false
	}
	f.Metadata, f.ContentType = metadata, declared
	return f, true
}

// wrapMetadata returns the custom metadata of a record: $ledger with the version and
// the time, and the metadata of the record.
func wrapMetadata(r events.Record) []byte {
	metadata := r.Metadata
	b := make([]byte, 0, len(metadata)+len(timeLayout)+40)
	b = append(b, versionPrefix...)
	b = strconv.AppendInt(b, int64(r.Version), 10)
	b = append(b, timePrefix...)
	b = r.Time.UTC().AppendFormat(b, timeLayout)
	return appendMetadata(append(b, '"'), metadata)
}

// appendMetadata adds the metadata of a record to b, and closes the value of $ledger in
// b. Metadata for which canEmbed is true become further members of the object. Other
// metadata become the base64 member m of $ledger.
func appendMetadata(b, metadata []byte) []byte {
	if !canEmbed(metadata) {
		b = append(b, `,"m":"`...)
		b = base64.StdEncoding.AppendEncode(b, metadata)
		return append(b, `"}}`...)
	}
	b = append(b, '}')
	if string(metadata) != "{}" {
		b = append(b, ',')
	}
	return append(b, metadata[1:]...)
}

// typePrefix is the beginning of the metadata that tagContentType writes. The declared
// content type follows it.
const typePrefix = `{"$ledger":{"c":"`

// tagContentType returns the metadata of a record whose event declared another content
// type than ContentType finds in the data. They are the metadata of the event and the
// declared type, as the member c of $ledger.
func tagContentType(metadata []byte, declared string) []byte {
	b := make([]byte, 0, len(metadata)+len(typePrefix)+len(declared)+10)
	b = append(b, typePrefix...)
	b = append(b, declared...)
	return appendMetadata(append(b, '"'), metadata)
}

// untagContentType is the inverse of tagContentType. ok is false if the metadata differ
// in any byte from the form that tagContentType writes.
func untagContentType(metadata []byte) (original []byte, declared string, ok bool) {
	text, ok := bytes.CutPrefix(metadata, []byte(typePrefix))
	if !ok {
		return nil, "", false
	}
	if declared = Octets; bytes.HasPrefix(text, []byte(JSON)) {
		declared = JSON
	}
	text, ok = bytes.CutPrefix(text, []byte(declared+`"`))
	if !ok {
		return nil, "", false
	}
	switch encoded, inside := bytes.CutPrefix(text, []byte(`,"m":"`)); {
	case inside:
		var err error
		if original, err = base64.StdEncoding.DecodeString(string(bytes.TrimSuffix(encoded, []byte(`"}}`)))); err != nil {
			return nil, "", false
		}
	case string(text) == "}}":
		original = []byte("{}")
	default:
		original = append([]byte{'{'}, bytes.TrimPrefix(text, []byte("},"))...)
	}
	return original, declared, bytes.Equal(tagContentType(original, declared), metadata)
}

// canEmbed reports whether metadata can be further members of an object with $ledger:
// an object without that member and without white space at its ends.
func canEmbed(metadata []byte) bool {
	if string(metadata) == "{}" {
		return true
	}
	if !bytes.HasPrefix(metadata, []byte(`{"`)) || !bytes.HasSuffix(metadata, []byte(`}`)) {
		return false
	}
	if !mayHaveLedgerKey(metadata) {
		return json.Valid(metadata)
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(metadata, &members) != nil {
		return false
	}
	_, found := members[LedgerKey]
	return !found
}

// mayHaveLedgerKey reports whether metadata may have a member $ledger. It does not
// parse the metadata; it searches for the name and for backslashes. If it returns
// false, there is no such member. If it returns true, the name may also be in a value,
// and an escape sequence may spell another text.
func mayHaveLedgerKey(metadata []byte) bool {
	return bytes.Contains(metadata, []byte(LedgerKey)) || bytes.IndexByte(metadata, '\\') >= 0
}

// A ledgerMember is the value of $ledger. A nil field is absent.
type ledgerMember struct {
	Version  *int    `json:"v"`
	Time     *string `json:"t"`
	Metadata *string `json:"m"`
}

// Record returns the record of an event. The result own is true if the custom metadata
// have a $ledger. An event of another program has no $ledger; its record has version 1
// and the time Created. Record returns events.ErrDamaged for an event that is not a
// valid record, and for a $ledger that FromRecord does not write, for example one
// without a version. The record shares the data of the event.
func (f RawEvent) Record() (r events.Record, own bool, err error) {
	r = events.Record{Kind: f.Type, Data: f.Data}
	r.ID = domain.EventIDFromBytes(f.ID)
	own = readFast(&r, f.Metadata)
	if !own {
		own, err = f.parse(&r)
	}
	if err == nil {
		err = r.Valid()
	}
	if err != nil {
		return events.Record{}, own, fmt.Errorf("read %s %s: %w: %w", f.Type, r.ID, events.ErrDamaged, err)
	}
	return r, own, nil
}

// parse sets the version, time and metadata of r with a JSON decoder. The result own
// reports whether the custom metadata have a $ledger.
func (f RawEvent) parse(r *events.Record) (own bool, err error) {
	members, own := f.parseMembers()
	if own {
		return true, unwrapMetadata(r, f.Metadata, members)
	}
	r.Version, r.Time, r.Metadata = 1, f.Created.UTC().Truncate(time.Microsecond), f.Metadata
	if declared := f.declaredType(); declared != ContentType(f.Data) {
		r.Metadata = tagContentType(f.Metadata, declared)
	}
	return false, nil
}

// declaredType returns the content type that the event declares, JSON or Octets. For
// an event that declares no type it returns the type of its data.
func (f RawEvent) declaredType() string {
	switch f.ContentType {
	case "":
		return ContentType(f.Data)
	case JSON:
		return JSON
	}
	return Octets
}

// HasLedgerKey reports whether the custom metadata have a $ledger with any value,
// valid or not.
func (f RawEvent) HasLedgerKey() bool {
	_, own := f.parseMembers()
	return own
}

// parseMembers returns the members of the custom metadata and true if one of them is
// $ledger. It returns false for metadata that are not a JSON object.
func (f RawEvent) parseMembers() (map[string]json.RawMessage, bool) {
	if !mayHaveLedgerKey(f.Metadata) {
		return nil, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(f.Metadata, &members) != nil {
		return nil, false
	}
	_, own := members[LedgerKey]
	return members, own
}

// unwrapMetadata sets the version, time and metadata of a record from the members of
// the custom metadata. It returns an error for a $ledger with missing or unknown
// members, a time in another layout, or base64 metadata next to other members.
func unwrapMetadata(r *events.Record, metadata []byte, members map[string]json.RawMessage) error {
	var e ledgerMember
	d := json.NewDecoder(bytes.NewReader(members[LedgerKey]))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return fmt.Errorf("its %s: %w", LedgerKey, err)
	}
	if e.Version == nil || e.Time == nil {
		return fmt.Errorf("its %s has no version or no time", LedgerKey)
	}
	at, err := time.Parse(timeLayout, *e.Time)
	if err != nil {
		return fmt.Errorf("its %s: %w", LedgerKey, err)
	}
	r.Version, r.Time = *e.Version, at.UTC()
	if e.Metadata != nil {
		if len(members) > 1 {
			return fmt.Errorf("its %s holds the metadata, and it has other members as well", LedgerKey)
		}
		r.Metadata, err = base64.StdEncoding.Strict().DecodeString(*e.Metadata)
		if err != nil || strings.ContainsAny(*e.Metadata, "\r\n") {
			return fmt.Errorf("the metadata in its %s are not base64", LedgerKey)
		}
		return nil
	}
	r.Metadata, err = removeLedgerKey(metadata, members[LedgerKey])
	return err
}

// removeLedgerKey returns the metadata of a record: the custom metadata, an object,
// without the member $ledger. If that member comes first, as FromRecord writes it, the
// other bytes are unchanged. Otherwise removeLedgerKey also removes the white space.
func removeLedgerKey(metadata, ledger []byte) ([]byte, error) {
	head := append([]byte(`{"`+LedgerKey+`":`), ledger...)
	if tail, ok := bytes.CutPrefix(metadata, head); ok {
		others := append([]byte{'{'}, bytes.TrimPrefix(tail, []byte{','})...)
		if canEmbed(others) {
			return others, nil
		}
	}
	var b bytes.Buffer
	b.WriteByte('{')
	d := json.NewDecoder(bytes.NewReader(metadata))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if name == LedgerKey {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b.Write(quoted)
		b.WriteByte(':')
		if err := json.Compact(&b, value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// ContentType returns JSON for valid JSON and Octets for other data. It reads all
// data.
func ContentType(data []byte) string {
	if json.Valid(data) {
		return JSON
	}
	return Octets
}

// Size returns the size of f in bytes, as a server counts it against the limit of an
// append: the lengths of the data and the metadata, and two bytes for each UTF-16 unit
// of the type.
func (f RawEvent) Size() int {
	size := len(f.Data) + len(f.Metadata)
	for _, r := range f.Type {
		size += 2 * utf16.RuneLen(r) // range yields the replacement rune for invalid UTF-8
	}
	return size
}
