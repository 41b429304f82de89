package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// A Fingerprint is the SHA-256 of the canonical JSON of a definition and its
// permission action: equal definitions have equal fingerprints. Its text is 64
// hexadecimal digits. The zero Fingerprint, whose text is empty, means that the
// definition is unknown.
type Fingerprint [sha256.Size]byte

// Fingerprint returns the SHA-256 of the RFC 8785 canonical JSON of an object with the
// keys action, description, input and output. The name of the tool is not in the
// object. Fingerprint returns an error if a schema is not JSON that RFC 8785 can
// express.
func (d Definition) Fingerprint(action string) (Fingerprint, error) {
	data, err := json.Marshal(struct {
		Action      string          `json:"action"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"input"`
		Output      json.RawMessage `json:"output"`
	}{action, d.Description, d.Input, d.Output})
	if err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint %s: %w", d.Name, err)
	}
	canonical, err := Canonical(data)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint %s: %w", d.Name, err)
	}
	return sha256.Sum256(canonical), nil
}

// Canonical returns the RFC 8785 canonical form of a JSON document in new
// memory. It rounds each number to the nearest IEEE 754 double. Two documents
// with the same values have the same form.
func Canonical(document json.RawMessage) (json.RawMessage, error) {
	value := jsontext.Value(append([]byte(nil), document...))
	if err := value.Canonicalize(); err != nil {
		return nil, fmt.Errorf("canonicalize JSON: %w", err)
	}
	return json.RawMessage(value), nil
}

// IsZero reports whether the definition is unknown.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// String returns 64 hexadecimal digits, or the empty text for zero.
func (f Fingerprint) String() string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f[:])
}

// MarshalText returns the text of String.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses the text of String. It leaves f unchanged when it
// returns an error.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*f = Fingerprint{}
		return nil
	}
	digits, err := hex.DecodeString(string(text))
	if err != nil || len(digits) != len(f) {
		return fmt.Errorf("parse fingerprint %q: not %d hexadecimal digits", text, 2*len(f))
	}
	*f = Fingerprint(digits)
	return nil
}
