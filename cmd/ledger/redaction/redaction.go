package redaction

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// window is the length of the longest part of a secret, in bytes.
const window = 16 << 10

// markStart begins each mark.
const markStart = "[hidden: "

// A Redactor hides the secrets of the texts of one export. A nil Redactor hides nothing.
type Redactor struct {
	numbers map[secret]int // of the secrets found so far
	last    map[string]int // by rule: the highest number
	hidden  map[string]int // by rule: the replacements
}

// A secret identifies a secret by its rule and the digest of its value.
type secret struct {
	rule   string
	digest [sha256.Size]byte
}

// New returns a Redactor that has found nothing.
func New() *Redactor {
	return &Redactor{numbers: map[secret]int{}, last: map[string]int{}, hidden: map[string]int{}}
}

// A Count is the number of replacements by one rule.
type Count struct {
	Rule   string `json:"rule"`
	Hidden int    `json:"hidden"`
}

// Counts returns the number of replacements of each rule that made some, in the order of
// Rules.
func (r *Redactor) Counts() []Count {
	counts := []Count{}
	if r == nil {
		return counts
	}
	for _, rule := range Rules() {
		if n := r.hidden[rule.Name]; n > 0 {
			counts = append(counts, Count{rule.Name, n})
		}
	}
	return counts
}

// Text returns a text with its secrets replaced.
func (r *Redactor) Text(text string) string {
	if r == nil {
		return text
	}
	var out strings.Builder
	done, _ := r.scan(&out, text, 0, len(text))
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// User returns the mark of the name of a person, and Host that of a machine. An empty name
// stays empty.
func (r *Redactor) User(name string) string { return r.name(userName, name) }

// Host returns the mark of the name of a machine.
func (r *Redactor) Host(name string) string { return r.name(hostName, name) }

// name returns the mark of a name from metadata.
func (r *Redactor) name(rule, name string) string {
	if r == nil || name == "" || strings.HasPrefix(name, markStart) {
		return name
	}
	return r.mark(rule, name)
}

// scan finds the secrets that begin in text[from:to] and writes text up to the end of the
// last one to out, with the secrets replaced. It returns that end, or 0 if it found none,
// and the place at which the scan ended, which is at least to.
func (r *Redactor) scan(out *strings.Builder, text string, from, to int) (done, at int) {
	copied := from
	var next finding // the secret that was found and begins later; to is 0 if there is none
	for at = from; at < to || next.to > at; {
		if next.to > 0 && at >= next.from {
			next.from = at
			if at < next.to {
				out.WriteString(text[copied:at])
				out.WriteString(r.mark(next.rule, text[at:next.to]))
				copied, done, at = next.to, next.to, next.to
			}
			next = finding{}
			continue
		}
		if beginnings[text[at]] {
			found, ok := find(text, at)
			if ok && (next.to == 0 || found.from <= next.from) {
				next = found
				if found.from == at {
					continue
				}
			}
		}
		at++
	}
	return done, at
}

// mark counts a replacement and returns the text in place of a secret.
func (r *Redactor) mark(rule, value string) string {
	r.hidden[rule]++
	if rule == homeFolder {
		return "~"
	}
	key := secret{rule, sha256.Sum256([]byte(value))}
	number, known := r.numbers[key]
	if !known {
		r.last[rule]++
		number = r.last[rule]
		r.numbers[key] = number
	}
	return fmt.Sprintf("%s%s %d]", markStart, rule, number)
}

// JSON returns a document with the secrets in its strings replaced, however they are
// escaped. A string of a member whose name says that it is secret is one. All other bytes
// stay. Of bytes that are not a JSON document it returns Text.
func (r *Redactor) JSON(document []byte) []byte {
	if r == nil || len(document) == 0 {
		return document
	}
	in := jsontext.NewDecoder(bytes.NewReader(document), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var out bytes.Buffer
	copied, name := 0, ""
	for {
		kind := in.PeekKind()
		if kind != '"' {
			if _, err := in.ReadToken(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return []byte(r.Text(string(document)))
			}
			continue
		}
		inside, length := in.StackIndex(in.StackDepth())
		quoted, err := in.ReadValue()
		if err != nil {
			return []byte(r.Text(string(document)))
		}
		unquoted, _ := jsontext.AppendUnquote(nil, quoted) // an error is about invalid UTF-8, which it replaces
		text := string(unquoted)
		clean := r.Text(text)
		if isName := inside == '{' && length%2 == 0; isName {
			name = text
		} else if inside == '{' && clean == text && saysSecret(name) && !placeholder(name, text) {
			clean = r.mark(assigned, text)
		}
		if clean != text {
			end := int(in.InputOffset())
			out.Write(document[copied : end-len(quoted)])
			out.Write(quote(clean))
			copied = end
		}
	}
	if copied == 0 {
		return document
	}
	out.Write(document[copied:])
	return out.Bytes()
}

// quote returns a text as a JSON string.
func quote(text string) []byte {
	quoted, _ := jsontext.AppendQuote(nil, text) // an error is about invalid UTF-8, which it replaces
	return quoted
}
