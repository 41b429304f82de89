package secrets

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// RedactJSON returns a document with [Redacted] in place of each secret in its keys and
// strings, however they are escaped, and reports whether it found one. The order of keys
// and the digits of numbers stay, space between tokens does not, and invalid bytes are
// replaced. It returns an error for a document that is not JSON.
func (s *Set) RedactJSON(document []byte) (clean []byte, found bool, err error) {
	var out bytes.Buffer
	allow := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	in := jsontext.NewDecoder(bytes.NewReader(document), allow...)
	to := jsontext.NewEncoder(&out, allow...)
	for depth := 0; ; {
		token, err := in.ReadToken()
		if err != nil {
			return nil, false, err
		}
		switch token.Kind() {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			text := token.String()
			redacted := s.Redact(text)
			found = found || redacted != text
			token = jsontext.String(redacted)
		}
		if err := to.WriteToken(token); err != nil {
			return nil, false, err
		}
		if depth == 0 {
			return bytes.TrimSpace(out.Bytes()), found, nil
		}
	}
}
