package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// Outputs keeps complete outputs. Package outputs has one on Pebble.
type Outputs interface {
	// Keep reads r to its end and keeps it whole under ref, durable when it
	// returns, or keeps nothing.
	Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error)
	// Confirm says that the settlement is on record which names what was kept
	// for it. What is never confirmed may be removed by a recovery.
	Confirm(ctx context.Context, settlement domain.EventID) error
}

// nowhere is the Outputs of a registry that has none.
type nowhere struct{}

func (nowhere) Keep(context.Context, domain.Ref, string, io.Reader) (domain.Retained, error) {
	return domain.Retained{}, errors.New("there is no storage for outputs")
}

func (nowhere) Confirm(context.Context, domain.EventID) error { return nil }

// Limits bound what a settlement shows. Text and structured output are bounded
// apart, each by lines and bytes. The zero Limits are [DefaultLimits].
type Limits struct {
	Lines int   // of text, and of structured output as indented JSON
	Bytes int   // of the same, in UTF-8
	Media int64 // of all media of a call, in bytes of base64
}

// DefaultLimits are 2,000 lines and 51,200 bytes, and 5 MiB of media.
var DefaultLimits = Limits{Lines: 2000, Bytes: 50 << 10, Media: 5 << 20}

// The least limits with which a preview always holds its reference whole.
const (
	minLines = 8
	minBytes = 256
)

func (l Limits) checked() (Limits, error) {
	if l == (Limits{}) {
		return DefaultLimits, nil
	}
	if l.Lines < minLines || l.Bytes < minBytes || l.Media < 0 {
		return Limits{}, fmt.Errorf("check limits of %d lines, %d bytes, %d bytes of media: %w: there must be %d lines, %d bytes and 0 bytes of media at least",
			l.Lines, l.Bytes, l.Media, ErrBadLimits, minLines, minBytes)
	}
	return l, nil
}

// A shown is an output within limits.
type shown struct {
	structured json.RawMessage
	content    domain.Contents
	retained   []domain.Retained
}

// A tooMuchMedia says that media are over the limit.
type tooMuchMedia struct{ size, limit int64 }

func (t tooMuchMedia) Error() string {
	return fmt.Sprintf("media of %d bytes in base64 is over the limit of %d bytes", t.size, t.limit)
}

// A bounding fits one output into limits, keeping whole what does not fit.
type bounding struct {
	limits     Limits
	outputs    Outputs
	settlement domain.EventID
	within     func() context.Context // in which an output is kept; asked where there is one to keep
}

// bound returns tooMuchMedia, or the error of the outputs.
func (b bounding) bound(out domain.Output) (shown, error) {
	s := shown{structured: out.Structured(), content: readable(out.Content())}
	media := s.content.Media()
	if err := b.checkMedia(media); err != nil {
		return shown{}, err
	}
	if len(media) > 0 {
		s.structured = nil
	}
	if text := s.content.Text(); len(s.content) > 0 && !b.fits(text) {
		preview, err := b.keep(&s, domain.TextChannel, "text/plain; charset=utf-8", text)
		if err != nil {
			return shown{}, err
		}
		s.content = domain.Contents{domain.Text(preview)}
		for _, m := range media {
			s.content = append(s.content, m)
		}
	}
	return s, b.boundStructured(&s)
}

// readable returns content whose texts are read back from the log as they are.
func readable(content domain.Contents) domain.Contents {
	content = slices.Clone(content)
	for i, c := range content {
		if text, ok := c.(domain.Text); ok {
			content[i] = domain.Text(valid(string(text)))
		}
	}
	return content
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func (b bounding) checkMedia(media []domain.Media) error {
	var size int64
	for _, m := range media {
		size += int64(base64.StdEncoding.EncodedLen(len(m.Data)))
	}
	if size > b.limits.Media {
		return tooMuchMedia{size, b.limits.Media}
	}
	return nil
}

// boundStructured measures the value as a model would read it: indented.
func (b bounding) boundStructured(s *shown) error {
	if s.structured == nil {
		return nil
	}
	text := indented(s.structured)
	if b.fits(text) {
		return nil
	}
	preview, err := b.keep(s, domain.StructuredChannel, "application/json", text)
	if err != nil {
		return err
	}
	s.structured = nil
	if len(s.content) == 0 {
		s.content = domain.Contents{domain.Text(preview)}
	}
	return nil
}

func (b bounding) keep(s *shown, c domain.Channel, mime, text string) (string, error) {
	ref := domain.NewRef(b.settlement, c)
	retained, err := b.outputs.Keep(b.within(), ref, mime, strings.NewReader(text))
	if err != nil {
		return "", fmt.Errorf("keep %s output of %d bytes, over the limit of %d: %w", c, len(text), b.limits.Bytes, err)
	}
	s.retained = append(s.retained, retained)
	marker := fmt.Sprintf("... output truncated (%d lines, %d bytes); full output at %s ...", retained.Lines, retained.Bytes, ref)
	return preview(text, marker, b.limits.Lines, b.limits.Bytes), nil
}

func (b bounding) fits(text string) bool {
	return len(text) <= b.limits.Bytes && countLines(text) <= b.limits.Lines
}

func countLines(text string) int { return 1 + strings.Count(text, "\n") }

func indented(document json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return string(document)
	}
	return b.String()
}

// preview shows the head and the tail of a text around a marker, in maxLines
// lines and maxBytes bytes at most. Four of each are set aside for the blank
// lines around the marker. Where that leaves nothing, it is the marker, cut.
func preview(text, marker string, maxLines, maxBytes int) string {
	if maxLines <= 4 || maxBytes <= len(marker)+4 {
		return headLines(head(marker, maxBytes), maxLines)
	}
	first, last := sample(text, maxLines-4)
	budget := maxBytes - len(marker) - 4
	if joined := join(first, last); len(joined) > budget {
		first, last = head(joined, (budget+1)/2), tail(joined, budget/2)
	}
	if last == "" {
		return first + "\n\n" + marker
	}
	return first + "\n\n" + marker + "\n\n" + last
}

// sample returns the first and the last lines of a text, n in all, the odd one
// to the first; or the whole text and nothing.
func sample(text string, n int) (first, last string) {
	lines := strings.Split(text, "\n")
	if len(lines) <= n {
		return text, ""
	}
	first = strings.Join(lines[:(n+1)/2], "\n")
	return first, strings.Join(lines[len(lines)-n/2:], "\n")
}

func join(first, last string) string {
	if last == "" {
		return first
	}
	return first + "\n" + last
}

func headLines(text string, n int) string {
	lines := strings.SplitN(text, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

// head returns the longest start of text of n bytes at most that splits no
// code point.
func head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// tail returns the longest end of text of n bytes at most that splits no code
// point.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	at := len(text) - n
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return text[at:]
}
