package mcp

import (
	"encoding/json"
	"strings"

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

// json returns a document without secrets in its keys and strings, as RedactJSON does.
func (c cleaner) json(document json.RawMessage) (json.RawMessage, error) {
	clean, _, err := c.secrets.RedactJSON(document)
	return clean, err
}

// bytes returns data without secrets. Data without a secret stays as it is.
func (c cleaner) bytes(data []byte) []byte {
	if s := string(data); c.secrets.Redact(s) != s {
		return []byte(c.secrets.Redact(s))
	}
	return data
}
