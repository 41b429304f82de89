// Package secrets removes known secrets from texts before the texts are recorded or shown.
//
// A [Set] has the values of keys, tokens and environment variables that must not reach the
// log, such as the key of a model's provider or the environment of an MCP server. Redact
// replaces each occurrence of a value, RedactJSON those in the strings of a document, and a
// [Stream] those in a text that arrives in pieces.
//
// # Promises
//
//   - A text that Redact returns contains no value of the set, in plain form or as it is
//     written in JSON, in a URL query or in base64.
//   - Redact does not change a text without such a value.
//   - A Stream finds a value that is spread over pieces, and keeps no more of the text than
//     the beginning of a value.
//   - Values of fewer than [MinLength] bytes are ignored: they also occur by chance.
//
// A Set is safe for concurrent use, a Stream is not. Only RedactJSON returns errors.
//
// Packages runner/providers/modelapi and runner/plugins/mcp use it.
package secrets

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// MinLength is the length in bytes from which on a value counts as a secret.
const MinLength = 8

// Redacted replaces each secret.
const Redacted = "[redacted]"

// A Set is a set of secrets. The zero Set has none.
type Set struct {
	replacer *strings.Replacer
	// forms are the written forms of the secrets, the longest first, and first has their
	// first bytes.
	forms []string
	first [256]bool
}

// New returns a set with the given values. It ignores values of fewer than MinLength
// bytes.
func New(values ...string) *Set {
	var forms []string
	for _, v := range values {
		if len(v) < MinLength {
			continue
		}
		quoted, _ := json.Marshal(v) // encoding a string never fails
		forms = append(forms, v, string(quoted[1:len(quoted)-1]), url.QueryEscape(v), url.PathEscape(v),
			base64.StdEncoding.EncodeToString([]byte(v)), base64.RawStdEncoding.EncodeToString([]byte(v)), base64.URLEncoding.EncodeToString([]byte(v)))
	}
	// The longest form comes first, so that a secret that contains another one is replaced
	// as a whole.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	set := &Set{forms: slices.Compact(forms)}
	var pairs []string
	for _, form := range set.forms {
		pairs = append(pairs, form, Redacted)
		set.first[form[0]] = true
	}
	set.replacer = strings.NewReplacer(pairs...)
	return set
}

// Redact returns text with [Redacted] in place of each secret.
func (s *Set) Redact(text string) string {
	if s == nil || s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}
