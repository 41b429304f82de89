package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

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

// noOutputs is the Outputs of a registry that has none.
type noOutputs struct{}

func (noOutputs) Keep(context.Context, domain.Ref, string, io.Reader) (domain.Retained, error) {
	return domain.Retained{}, errors.New("there is no storage for outputs")
}

func (noOutputs) Confirm(context.Context, domain.EventID) error { return nil }

// An outputBounder fits one output into limits, keeping whole what does not fit.
type outputBounder struct {
	limits     Limits
	settlement domain.EventID
	keep       func(ref domain.Ref, mime, text string) (domain.Retained, error)
	lost       int64 // bytes that the tool dropped
}

// A boundedOutput is an output within limits.
type boundedOutput struct {
	structured json.RawMessage
	content    domain.Contents
	retained   []domain.Retained
}

// bound returns tooMuchMedia, or the error of keep.
func (b outputBounder) bound(out domain.Output) (boundedOutput, error) {
	s := boundedOutput{structured: out.Structured(), content: readable(out.Content())}
	media := s.content.Media()
	if err := b.limits.checkMedia(media); err != nil {
		return boundedOutput{}, err
	}
	if len(media) > 0 {
		s.structured = nil
	}
	if text := s.content.Text(); len(s.content) > 0 && !b.limits.fits(text) {
		preview, err := b.retain(&s.retained, domain.TextChannel, "text/plain; charset=utf-8", text)
		if err != nil {
			return boundedOutput{}, err
		}
		s.content = withText(s.content, preview)
	}
	s.content = b.limits.compact(s.content)
	return s, b.boundStructured(&s)
}

// boundStructured measures the value as a model would read it: indented.
func (b outputBounder) boundStructured(s *boundedOutput) error {
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
func (b outputBounder) retain(retained *[]domain.Retained, c domain.Channel, mime, text string) (string, error) {
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
		return "", fmt.Errorf("keep %s output of %s: %w", c, b.limits.exceeded(text), err)
	}
	*retained = append(*retained, r)
	marker := fmt.Sprintf("... output truncated (%d lines, %d bytes); %s at %s ...", r.Lines, r.Bytes, rest, ref)
	return notice + preview(text, marker, b.limits.Lines-strings.Count(notice, "\n"), b.limits.Bytes-len(notice)), nil
}

// withText returns a text and the media of content behind it.
func withText(content domain.Contents, text string) domain.Contents {
	with := domain.Contents{domain.Text(text)}
	for _, m := range content.Media() {
		with = append(with, m)
	}
	return with
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
