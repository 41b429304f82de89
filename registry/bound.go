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

// Outputs stores complete outputs that exceed the limits. Package outputs implements it
// over Pebble. Its methods are safe for concurrent use. An output is stored before its
// settlement is recorded, so a crash can leave an output without a settlement, and never
// a settlement without its output.
type Outputs interface {
	// Keep reads r to its end and stores it in full under ref, durable when it returns
	// nil. After an error it has stored no output. If Keep runs longer than the grace
	// period of an interruption, Settle stops waiting and no settlement names the output.
	Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error)
	// Confirm tells the store that the settlement that names its outputs is on record.
	// A recovery may remove an unconfirmed output that no settlement names. An error of
	// Confirm has no effect on the call.
	Confirm(ctx context.Context, settlement domain.EventID) error
}

// noOutputs is the Outputs of a registry without storage: every Keep fails.
type noOutputs struct{}

func (noOutputs) Keep(context.Context, domain.Ref, string, io.Reader) (domain.Retained, error) {
	return domain.Retained{}, errors.New("there is no storage for outputs")
}

func (noOutputs) Confirm(context.Context, domain.EventID) error { return nil }

// An outputBounder fits the output of one settlement into the limits and retains in full
// each part that does not fit. It belongs to the goroutine that settles the call.
type outputBounder struct {
	limits Limits
	// settlement is the ID under which the outputs are stored.
	settlement domain.EventID
	// keep stores one text, within the grace period of the call.
	keep func(ref domain.Ref, mime, text string) (domain.Retained, error)
	// lost is the number of bytes that the tool itself dropped.
	lost int64
}

// A boundedOutput is an output within the limits. It has references to the complete
// outputs that were stored because they exceed the limits.
type boundedOutput struct {
	structured json.RawMessage
	content    domain.Contents
	retained   []domain.Retained
}

// bound returns the output within the limits. Text over the limits is replaced by its
// preview, and a structured value by the preview of its JSON; media are never cut. The
// structured value of an output with media is dropped, since the model reads the media.
// bound returns a mediaLimitError, or the error of keep.
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

// boundStructured replaces a structured value by a preview if its indented JSON, the form
// that a model reads, exceeds the limits. The preview becomes the content if the output
// has no other content.
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

// retain stores a text in full, appends its reference to retained, and returns its
// preview. If the tool dropped bytes, the stored text and the preview begin with a line
// that gives their number. A JSON document is stored without this line, which would
// make it invalid.
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

// withText returns contents that consist of text and the media of content.
func withText(content domain.Contents, text string) domain.Contents {
	with := domain.Contents{domain.Text(text)}
	for _, m := range content.Media() {
		with = append(with, m)
	}
	return with
}

// readable returns a copy of content whose texts are valid UTF-8, so that the settlement
// in memory equals the one that is read back from the log.
func readable(content domain.Contents) domain.Contents {
	content = slices.Clone(content)
	for i, c := range content {
		if text, ok := c.(domain.Text); ok {
			content[i] = domain.Text(valid(string(text)))
		}
	}
	return content
}

// valid replaces invalid UTF-8 by U+FFFD.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// indented returns a JSON document in the form that a model reads. It returns the
// document unchanged if it is not JSON, or if deep nesting would multiply its size.
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

// indentedSize returns an upper bound of the bytes of an indented document. It allocates
// no memory.
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
