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
	// returns, or keeps nothing. If it goes on for longer than the grace of an
	// interruption, Settle stops waiting, and no settlement names the output.
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
// apart, each by lines and bytes. The text of a call that did not succeed, its
// progress, and the types and names of its media are held to the limits of a
// text. The zero Limits are [DefaultLimits].
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

// A tooMuchMedia says which limit media are over.
type tooMuchMedia struct {
	what        string
	size, limit int64
	unit        string
}

func (t tooMuchMedia) Error() string {
	return fmt.Sprintf("%s is over the limit of %d %s", fmt.Sprintf(t.what, t.size), t.limit, t.unit)
}

// A bounding fits one output into limits, keeping whole what does not fit.
type bounding struct {
	limits     Limits
	settlement domain.EventID
	keep       func(ref domain.Ref, mime, text string) (domain.Retained, error)
	lost       int64 // bytes that the tool dropped
}

// bound returns tooMuchMedia, or the error of keep.
func (b bounding) bound(out domain.Output) (shown, error) {
	s := shown{structured: out.Structured(), content: readable(out.Content())}
	media := s.content.Media()
	if err := b.limits.checkMedia(media); err != nil {
		return shown{}, err
	}
	if len(media) > 0 {
		s.structured = nil
	}
	if text := s.content.Text(); len(s.content) > 0 && !b.limits.fits(text) {
		preview, err := b.retain(&s.retained, domain.TextChannel, "text/plain; charset=utf-8", text)
		if err != nil {
			return shown{}, err
		}
		s.content = withText(s.content, preview)
	}
	s.content = b.limits.compact(s.content)
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

// withText returns a text and the media of content behind it.
func withText(content domain.Contents, text string) domain.Contents {
	with := domain.Contents{domain.Text(text)}
	for _, m := range content.Media() {
		with = append(with, m)
	}
	return with
}

// compact joins texts that follow each other, where there are more parts than
// lines may be. It is the same text, in fewer parts.
func (l Limits) compact(content domain.Contents) domain.Contents {
	if len(content) <= l.Lines {
		return content
	}
	var joined domain.Contents
	var text []string
	flush := func() {
		if len(text) > 0 {
			joined, text = append(joined, domain.Text(strings.Join(text, ""))), text[:0]
		}
	}
	for _, c := range content {
		if t, ok := c.(domain.Text); ok {
			text = append(text, string(t))
			continue
		}
		flush()
		joined = append(joined, c)
	}
	flush()
	return joined
}

// checkMedia returns a tooMuchMedia if the data of media are over the limit, or
// the media types and names, which are held to the limits of a text with a line
// for each of them.
func (l Limits) checkMedia(media []domain.Media) error {
	var size, labels int64
	for _, m := range media {
		size += int64(base64.StdEncoding.EncodedLen(len(m.Data)))
		labels += int64(len(m.MIME) + len(m.Name))
	}
	switch {
	case size > l.Media:
		return tooMuchMedia{"media of %d bytes in base64", size, l.Media, "bytes"}
	case labels > int64(l.Bytes):
		return tooMuchMedia{"media with types and names of %d bytes", labels, int64(l.Bytes), "bytes"}
	case len(media) > l.Lines:
		return tooMuchMedia{"media in %d parts", int64(len(media)), int64(l.Lines), "parts"}
	}
	return nil
}

// boundStructured measures the value as a model would read it: indented.
func (b bounding) boundStructured(s *shown) error {
	if s.structured == nil {
		return nil
	}
	text := indented(s.structured)
	if b.limits.fits(text) {
		return nil
	}
	preview, err := b.retain(&s.retained, domain.StructuredChannel, "application/json", text)
	if err != nil {
		return err
	}
	s.structured = nil
	if len(s.content) == 0 {
		s.content = domain.Contents{domain.Text(preview)}
	}
	return nil
}

// retain keeps a text whole, adds it to what is retained, and returns its
// preview. The first line of both says what the tool lost, if it lost some; a
// JSON document is kept as it is.
func (b bounding) retain(retained *[]domain.Retained, c domain.Channel, mime, text string) (string, error) {
	ref, notice, rest := domain.NewRef(b.settlement, c), "", "full output"
	if b.lost > 0 {
		notice = fmt.Sprintf("[%d bytes of this output were lost and are kept nowhere]\n", b.lost)
		rest = fmt.Sprintf("%d bytes lost; the rest", b.lost)
	}
	whole := text
	if c == domain.TextChannel {
		whole = notice + text
	}
	r, err := b.keep(ref, mime, whole)
	if err != nil {
		return "", fmt.Errorf("keep %s output of %s: %w", c, b.limits.broken(text), err)
	}
	*retained = append(*retained, r)
	marker := fmt.Sprintf("... output truncated (%d lines, %d bytes); %s at %s ...", r.Lines, r.Bytes, rest, ref)
	return notice + preview(text, marker, b.limits.Lines-strings.Count(notice, "\n"), b.limits.Bytes-len(notice)), nil
}

// broken names the limits that a text is over, and its size in each.
func (l Limits) broken(text string) string {
	var over []string
	if len(text) > l.Bytes {
		over = append(over, fmt.Sprintf("%d bytes, over the limit of %d", len(text), l.Bytes))
	}
	if lines := countLines(text); lines > l.Lines {
		over = append(over, fmt.Sprintf("%d lines, over the limit of %d", lines, l.Lines))
	}
	return strings.Join(over, ", and ")
}

func (l Limits) fits(text string) bool {
	return len(text) <= l.Bytes && countLines(text) <= l.Lines
}

// Cut returns a text within limits: one that does not fit as its head and tail
// around a marker that says how much is left out.
func (l Limits) Cut(text string) string {
	if l.fits(text) {
		return text
	}
	marker := func(left int) string {
		return fmt.Sprintf("... text truncated (%d lines, %d bytes); %d bytes are left out here and not kept ...", countLines(text), len(text), left)
	}
	first, last := split(text, len(marker(len(text))), l.Lines, l.Bytes)
	return around(marker(len(text)-len(first)-len(last)), first, last)
}

func countLines(text string) int { return 1 + strings.Count(text, "\n") }

// indented returns a document as a model would read it. One that indentation
// would make many times as long, as its lines are nested deeply, is returned as
// it is.
func indented(document json.RawMessage) string {
	if indentedSize(document) > 16*len(document)+64<<10 {
		return string(document)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return string(document)
	}
	return b.String()
}

// indentedSize returns about how many bytes a document has when it is indented,
// and no less.
func indentedSize(document json.RawMessage) int {
	size, depth, inString := len(document), 0, false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case c == '\\' && inString:
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			size += 1 + 2*depth
		case c == '}' || c == ']':
			depth--
			size += 1 + 2*depth
		case c == ',':
			size += 1 + 2*depth
		case c == ':':
			size++
		}
	}
	return size
}

// preview shows the head and the tail of a text around a marker, in maxLines
// lines and maxBytes bytes at most. Four of each are set aside for the blank
// lines around the marker. Where that leaves nothing, it is the marker, cut.
func preview(text, marker string, maxLines, maxBytes int) string {
	if maxLines <= 4 || maxBytes <= len(marker)+4 {
		return headLines(head(marker, maxBytes), maxLines)
	}
	first, last := split(text, len(marker), maxLines, maxBytes)
	return around(marker, first, last)
}

// split returns the head and the tail of a text that leave room for a marker of
// so many bytes.
func split(text string, marker, maxLines, maxBytes int) (first, last string) {
	first, last = sample(text, maxLines-4)
	budget := maxBytes - marker - 4
	if joined := join(first, last); len(joined) > budget {
		first, last = head(joined, (budget+1)/2), tail(joined, budget/2)
	}
	return first, last
}

func around(marker, first, last string) string {
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
