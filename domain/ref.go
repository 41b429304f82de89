package domain

import (
	"fmt"
	"strings"
)

// A Channel is a part of an output that is bounded by itself. The zero Channel
// is not valid.
type Channel uint8

// The channels that can be kept whole in managed storage.
const (
	TextChannel       Channel = iota + 1 // the text parts, joined without a separator
	StructuredChannel                    // the encoded output
)

var channels = enumNames[Channel]{"", "text", "structured"}

func (c Channel) String() string               { return channels.name(c) }
func (c Channel) MarshalText() ([]byte, error) { return channels.marshal(c) }

// UnmarshalText accepts what String gives; the empty text is zero.
func (c *Channel) UnmarshalText(text []byte) error { return channels.unmarshal(c, text) }

// A Ref names a managed output: the complete text or value of which a
// settlement holds only a preview. To a model it is opaque. The zero Ref names
// nothing.
type Ref struct {
	settlement EventID
	channel    Channel
}

// NewRef names the output of a channel that was kept for a settlement.
func NewRef(settlement EventID, c Channel) Ref { return Ref{settlement, c} }

const refScheme = "output://"

// Settlement returns the event that the output belongs to.
func (r Ref) Settlement() EventID { return r.settlement }

// Channel returns the channel that the output is of.
func (r Ref) Channel() Channel { return r.channel }

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String returns output://SETTLEMENT/CHANNEL. [ParseRef] is its inverse.
func (r Ref) String() string {
	if r.IsZero() {
		return ""
	}
	return refScheme + r.settlement.String() + "/" + r.channel.String()
}

// MarshalText gives what String gives.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts what ParseRef accepts, and the empty text for zero.
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

// IsRef reports whether text is meant as a reference: it begins as one.
func IsRef(text string) bool { return strings.HasPrefix(text, refScheme) }

// ParseRef is the inverse of [Ref.String]. It returns an ErrBadRef.
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

// A Retained is an output that is kept whole in managed storage.
type Retained struct {
	Ref    Ref    `json:"ref"`
	Bytes  int64  `json:"bytes"`
	Lines  int64  `json:"lines"` // one more than there are line ends
	MIME   string `json:"mime"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits
}
