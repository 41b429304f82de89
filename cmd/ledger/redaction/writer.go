package redaction

import (
	"io"
	"strings"
)

const (
	// context is the number of bytes before a place that the rules look at, and reach more
	// than the number of those behind it.
	context = 128
	reach   = 4 * window
)

// A Writer redacts a text that arrives in pieces. The caller calls Close at its end.
type Writer struct {
	to io.Writer
	r  *Redactor
	// text is the end of the text so far, of which the first passed bytes were written.
	text   []byte
	passed int
}

// Writer returns a Writer that writes to another writer.
func (r *Redactor) Writer(to io.Writer) *Writer { return &Writer{to: to, r: r} }

// Write adds a piece. It writes the text before the last bytes, in which a secret may be
// that is not complete.
func (w *Writer) Write(piece []byte) (int, error) {
	if w.r == nil {
		return w.to.Write(piece)
	}
	w.text = append(w.text, piece...)
	if len(w.text) < 2*reach {
		return len(piece), nil
	}
	return len(piece), w.flush(len(w.text) - reach)
}

// Close writes the rest. It does not close the other writer.
func (w *Writer) Close() error { return w.flush(len(w.text)) }

// flush writes the redacted text up to a place, or up to the end of the secret there.
func (w *Writer) flush(to int) error {
	if w.passed >= to {
		return nil
	}
	var out strings.Builder
	text := string(w.text)
	done, at := w.r.scan(&out, text, w.passed, to)
	out.WriteString(text[max(done, w.passed):at])
	cut := max(0, at-context)
	w.text, w.passed = append(w.text[:0], text[cut:]...), at-cut
	_, err := io.WriteString(w.to, out.String())
	return err
}
