package receipts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// Version is the version of the form of receipts that this program makes and reads.
const Version = 1

// maxReceipt is the maximum size of a receipt in bytes.
const maxReceipt = 128 << 20

// timeForm is the form of times: UTC with six digits of a second.
const timeForm = "2006-01-02T15:04:05.000000Z"

// A Receipt has the events of a call and the digests of its outputs.
type Receipt struct {
	ReceiptVersion int     `json:"receipt_version"`
	Program        Program `json:"program"`
	// Made is the time at which the receipt was made.
	Made  string   `json:"made"`
	Store StoreRef `json:"store"`
	Call  CallRef  `json:"call"`
	// Head is the end of the session when the receipt was made. The receipt has every event of
	// the call up to it.
	Head    Head            `json:"head"`
	Events  []RecordedEvent `json:"events"`  // in the order of the session
	Outputs []NamedOutput   `json:"outputs"` // in the order of the settlement
	// TreeHead is null. It is the place of a signed head of the log.
	TreeHead jsontext.Value `json:"tree_head"`
	// SHA256 is the SHA-256 of the RFC 8785 form of the receipt without this member.
	SHA256 string `json:"receipt_sha256"`

	// computed is what SHA256 should be, if Read parsed the receipt.
	computed string
}

// A Program is the program that made a receipt.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// A StoreRef identifies a store and its copies by the first record of the log.
type StoreRef struct {
	FirstEvent domain.EventID `json:"first_event"`
	SHA256     string         `json:"sha256"` // the digest of the record, as of a RecordedEvent
}

// A CallRef identifies a call.
type CallRef struct {
	Session domain.SessionID `json:"session"`
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call"`
}

// key returns the key of the call.
func (c CallRef) key() calls.Key {
	return calls.Key{Session: c.Session, Message: c.Message, Call: c.Call}
}

// A Head is the last event of a session.
type Head struct {
	Revision events.Revision `json:"revision"`
	Event    domain.EventID  `json:"event"`
	Position events.Position `json:"position"`
}

// A RecordedEvent is a record of the log with its place and its role in the call.
type RecordedEvent struct {
	Role     calls.Role      `json:"role"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Position events.Position `json:"position"`
	ID       domain.EventID  `json:"event"`
	Kind     string          `json:"kind"`
	Version  int             `json:"version"`
	Time     string          `json:"time"`
	// Data and Metadata are the recorded bytes as a text, or in base64 if they are not UTF-8.
	Data           string `json:"data"`
	DataBase64     []byte `json:"data_base64,omitempty"`
	Metadata       string `json:"metadata"`
	MetadataBase64 []byte `json:"metadata_base64,omitempty"`
	// SHA256 is the events.Digest of the record alone.
	SHA256 string `json:"sha256"`
}

// A NamedOutput is an output that the settlement names, and its state when the receipt was made.
type NamedOutput struct {
	domain.Retained
	State OutputState `json:"state"`
}

// An OutputState is the state of an output.
type OutputState string

// The states of an output.
const (
	Kept        OutputState = "kept"        // the store had it, and its bytes matched its digest
	Pruned      OutputState = "pruned"      // its bytes were deleted under a policy
	Unreachable OutputState = "unreachable" // another node had it, which did not answer
	Missing     OutputState = "missing"     // the store did not have it
)

// newEvent returns an entry as an event of a receipt.
func newEvent(role calls.Role, e events.Entry) RecordedEvent {
	v := RecordedEvent{
		Role: role, Stream: e.Stream, Revision: e.Revision, Position: e.Position, ID: e.ID, Kind: e.Kind, Version: e.Version,
		Time: e.Time.UTC().Format(timeForm), SHA256: digestOf(e),
	}
	v.Data, v.DataBase64 = split(e.Data)
	v.Metadata, v.MetadataBase64 = split(e.Metadata)
	return v
}

// split returns bytes as a text, or unchanged if they are not UTF-8.
func split(b []byte) (text string, encoded []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// join is the inverse of split.
func join(text string, encoded []byte) []byte {
	if len(encoded) > 0 {
		return encoded
	}
	return []byte(text)
}

// entry is the inverse of newEvent. The error names the first member without a valid value.
func (v RecordedEvent) entry() (events.Entry, error) {
	at, err := parseTime(v.Time)
	if err != nil {
		return events.Entry{}, err
	}
	if v.Data != "" && len(v.DataBase64) > 0 || v.Metadata != "" && len(v.MetadataBase64) > 0 {
		return events.Entry{}, fmt.Errorf("it has the same bytes twice, as a text and in base64")
	}
	r := events.Record{ID: v.ID, Kind: v.Kind, Version: v.Version, Time: at, Data: join(v.Data, v.DataBase64), Metadata: join(v.Metadata, v.MetadataBase64)}
	if err := r.Valid(); err != nil {
		return events.Entry{}, err
	}
	return events.Entry{Record: r, Stream: v.Stream, Revision: v.Revision, Position: v.Position}, nil
}

// parseTime parses a time in timeForm.
func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(timeForm, text)
	if err != nil {
		return at, fmt.Errorf("%q is not a time like %s", text, timeForm)
	}
	return at, nil
}

// digestOf returns the events.Digest of one entry.
func digestOf(e events.Entry) string {
	d := events.NewDigest()
	d.Add(e)
	return d.String()
}

// Encode returns the receipt as JSON, with its SHA256. Characters that a terminal does not print
// are escaped, so it shows the text and does not obey it.
func (r *Receipt) Encode() ([]byte, error) {
	sealed := *r
	sealed.SHA256 = ""
	data, err := json.Marshal(sealed, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode receipt: %w", err)
	}
	if sealed.SHA256, err = sealOf(data); err != nil {
		return nil, err
	}
	data, err = json.Marshal(sealed, jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encode receipt: %w", err)
	}
	if len(data) > maxReceipt {
		return nil, fmt.Errorf("encode receipt: it has %d bytes, and a receipt has at most %d", len(data), maxReceipt)
	}
	return escapeUnprintable(data), nil
}

// escapeUnprintable escapes the characters of a JSON document that are not printable, such as
// control characters of Unicode and those that change the direction of text. They occur in strings
// only, except the line ends and spaces between its values.
func escapeUnprintable(data []byte) []byte {
	if bytes.IndexFunc(data, unprintable) < 0 {
		return data
	}
	escaped := make([]byte, 0, len(data)+len(data)/16)
	for _, r := range string(data) {
		if !unprintable(r) {
			escaped = utf8.AppendRune(escaped, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
	}
	return escaped
}

// unprintable reports whether a character of a JSON document is to be escaped.
func unprintable(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }

// sealOf returns the SHA-256 of the RFC 8785 form of a receipt without its member receipt_sha256.
func sealOf(data []byte) (string, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(data, &members); err != nil {
		return "", err
	}
	delete(members, "receipt_sha256")
	rest, err := json.Marshal(members)
	if err != nil {
		return "", err
	}
	canonical := jsontext.Value(rest)
	if err := canonical.Canonicalize(); err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}
