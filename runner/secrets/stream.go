package secrets

import "strings"

// A Stream redacts a text that arrives in pieces. Without a Flush in between, the texts
// that it returns are together the text that Set.Redact returns for the pieces together.
// It is for one goroutine.
type Stream struct {
	set *Set
	// pending is the end of the text so far that may begin a secret. Its first passed
	// bytes were returned by Flush.
	pending string
	passed  int
	found   bool
}

// Stream returns a Stream without text.
func (s *Set) Stream() *Stream { return &Stream{set: s} }

// Write adds a piece and returns the redacted text that it completes. It keeps only the
// longest end of the text that is the beginning of a secret and not a whole one.
func (s *Stream) Write(piece string) string { return s.scan(s.pending+piece, true) }

// Flush returns the text that Write kept. If later pieces continue a secret that begins in
// this text, Write returns [Redacted] in place of its rest.
func (s *Stream) Flush() string { return s.scan(s.pending, false) }

// Found reports whether a secret was replaced so far.
func (s *Stream) Found() bool { return s.found }

// scan returns the redacted text behind the bytes that were passed on. If wait is set, it
// stops where the text may go on as a secret.
func (s *Stream) scan(text string, wait bool) string {
	var out strings.Builder
	from, last, at := s.passed, 0, 0 // last is the end of the last secret
	for ; at < len(text) && !(wait && s.set.begins(text[at:])); at++ {
		n := s.set.match(text[at:])
		if n == 0 {
			continue
		}
		out.WriteString(text[min(from, at):at])
		out.WriteString(Redacted)
		s.found = true
		last = at + n
		from, at = last, last-1
	}
	if out.WriteString(text[min(from, at):at]); !wait {
		from, at = at, last
		for at < len(text) && !s.set.begins(text[at:]) {
			at++
		}
	}
	s.pending, s.passed = text[at:], max(from-at, 0)
	return out.String()
}

// begins reports whether text is the beginning of a secret and not a whole one.
func (s *Set) begins(text string) bool {
	if s == nil || !s.first[text[0]] {
		return false
	}
	for _, form := range s.forms {
		if len(form) <= len(text) {
			return false
		}
		if strings.HasPrefix(form, text) {
			return true
		}
	}
	return false
}

// match returns the length of the longest secret at the beginning of text, or 0.
func (s *Set) match(text string) int {
	if s == nil || !s.first[text[0]] {
		return 0
	}
	for _, form := range s.forms {
		if strings.HasPrefix(text, form) {
			return len(form)
		}
	}
	return 0
}
