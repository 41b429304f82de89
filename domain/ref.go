package domain

import (
	"fmt"
	"strings"
)

// A Channel is a part of an output with its own limits and its own stored
// copy. The zero Channel is not valid.
type Channel uint8

// The channels that can be kept whole in managed storage.
const (
	// TextChannel has the text parts of an output, joined without a separator.
	TextChannel Channel = iota + 1
	// StructuredChannel has the encoded output.
	StructuredChannel
)

var channels = enumNames[Channel]{"", "text", "structured"}

// String returns the name of the constant, as events and the CLI write it;
// "?N" for a value N outside the set.
func (c Channel) String() string { return channels.name(c) }

// MarshalText returns the text of String, or an ErrBadWord for a value outside
// the set.
func (c Channel) MarshalText() ([]byte, error) { return channels.marshal(c) }

// UnmarshalText accepts the texts of String, and the empty text for zero. It
// returns an ErrBadWord for any other text.
func (c *Channel) UnmarshalText(text []byte) error { return channels.unmarshal(c, text) }

// A Ref names an output in managed storage: the complete text or value. The settlement
// has its preview. A Ref is opaque to the model. The zero Ref names no output.
type Ref struct {
	settlement EventID
	channel    Channel
}

// NewRef returns the reference of one channel of the output of a settlement.
func NewRef(settlement EventID, c Channel) Ref { return Ref{settlement, c} }

// refScheme begins the text of every reference.
const refScheme = "output://"

// Settlement returns the event that records the settlement.
func (r Ref) Settlement() EventID { return r.settlement }

// Channel returns the channel of the output.
func (r Ref) Channel() Channel { return r.channel }

// IsZero reports whether r is the zero Ref.
func (r Ref) IsZero() bool { return r == Ref{} }

// String returns output://SETTLEMENT/CHANNEL, and the empty text for the zero
// Ref. [ParseRef] is its inverse.
func (r Ref) String() string {
	if r.IsZero() {
		return ""
	}
	return refScheme + r.settlement.String() + "/" + r.channel.String()
}

// MarshalText returns the text of String.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts the texts of ParseRef, and the empty text for zero. It
// leaves r unchanged when it returns an error.
func (r *Ref) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Ref{}
		return nil
	}
	parsed, err := ParseRef(string(text))
	if err == nil {
		*r = parsed
	}
	return err
}

// IsRef reports whether text begins like a reference. ParseRef may still
// reject it.
func IsRef(text string) bool { return strings.HasPrefix(text, refScheme) }

// ParseRef is the inverse of [Ref.String]. It returns an ErrBadRef with the
// reason for any other text.
func ParseRef(text string) (Ref, error) {
	rest, ok := strings.CutPrefix(text, refScheme)
	id, part, two := strings.Cut(rest, "/")
	if !ok || !two {
		return Ref{}, fmt.Errorf("parse %q: %w: it is not %sSETTLEMENT/CHANNEL", text, ErrBadRef, refScheme)
	}
	settlement, err := ParseID[eventKind](id)
	if err != nil {
		return Ref{}, fmt.Errorf("%w: %w", ErrBadRef, err)
	}
	var c Channel
	if err := c.UnmarshalText([]byte(part)); err != nil || c == 0 {
		return Ref{}, fmt.Errorf("parse %q: %w: its channel is not text or structured", text, ErrBadRef)
	}
	return Ref{settlement, c}, nil
}

// A Retained describes an output that is stored complete in managed storage.
type Retained struct {
	// Ref is the reference under which the output is stored.
	Ref   Ref   `json:"ref"`
	Bytes int64 `json:"bytes"`
	// Lines is the number of line ends plus one.
	Lines int64  `json:"lines"`
	MIME  string `json:"mime" codec:"intern"`
	// SHA256 is the digest of the stored bytes in 64 hexadecimal digits.
	SHA256 string `json:"sha256"`
}
