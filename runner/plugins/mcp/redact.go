package mcp

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/settlement-ledger/ledger/runner/secrets"
)

// A cleaner removes the secrets of a server from its texts.
type cleaner struct{ secrets *secrets.Set }

// text returns a text without secrets as valid UTF-8.
func (c cleaner) text(s string) string {
	return c.secrets.Redact(strings.ToValidUTF8(s, "\uFFFD"))
}

// line returns at most limit bytes of a text without secrets.
func (c cleaner) line(s string, limit int) string {
	s = c.text(s)
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// json returns a document without secrets in its keys and strings. The order of keys and
// the digits of numbers stay. It returns an error for a document that is not JSON.
func (c cleaner) json(document json.RawMessage) (json.RawMessage, error) {
	var out bytes.Buffer
	allow := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	in := jsontext.NewDecoder(bytes.NewReader(document), allow...)
	to := jsontext.NewEncoder(&out, allow...)
	for depth := 0; ; {
		token, err := in.ReadToken()
		if err != nil {
			return nil, err
		}
		switch token.Kind() {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			token = jsontext.String(c.text(token.String()))
		}
		if err := to.WriteToken(token); err != nil {
			return nil, err
		}
		if depth == 0 {
			return bytes.TrimSpace(out.Bytes()), nil
		}
	}
}

// bytes returns data without secrets. Data without a secret stays as it is.
func (c cleaner) bytes(data []byte) []byte {
	if s := string(data); c.secrets.Redact(s) != s {
		return []byte(c.secrets.Redact(s))
	}
	return data
}
