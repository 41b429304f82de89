package views

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// readingLimit bounds the part of a result that a timeline without --full has, in bytes.
const readingLimit = 1 << 10

// shortReading returns a part of a result as the model reads it, and whether it is not the
// whole. Media are named in the text and left out.
func shortReading(r *modelResult) (*modelResult, bool) {
	if r == nil {
		return nil, false
	}
	short := modelResult{Type: r.Type}
	cut := false
	shorten := func(text string) *string {
		if len(text) > readingLimit {
			text, cut = strings.ToValidUTF8(text[:readingLimit], ""), true
		}
		return &text
	}
	switch {
	case r.Error != nil:
		short.Error = shorten(*r.Error)
	case r.Text != nil:
		short.Text = shorten(*r.Text)
	case r.Structured != nil:
		short.Structured, cut = shortenInput(r.Structured)
	case r.Content != nil:
		short.Text = shorten(contentText(r.Content))
		cut = true
	}
	return &short, cut
}

// maxOutputInJSON is the size of a retained output, in bytes, up to which the JSON of a
// session has its text.
const maxOutputInJSON = 16 << 20

// A wholeOutput is a retained output of a call with its text.
type wholeOutput struct {
	Ref  domain.Ref `json:"ref"`
	Text *string    `json:"text"` // null: not available, or too large
	Why  *string    `json:"why"`  // why Text is null
}

// readWhole reads a retained output. An output that is not there any more has no text, and
// the reason.
func readWhole(ctx context.Context, s *stores.Store, ref domain.Ref) (wholeOutput, error) {
	o := wholeOutput{Ref: ref}
	err := withOutput(ctx, s, ref, func(size int64, from io.Reader) error {
		if size > maxOutputInJSON {
			o.Why = render.OrNull(fmt.Sprintf("it has %s; ledger output %s prints it", render.Bytes(size), ref))
			return nil
		}
		var b strings.Builder
		if err := copyLines(ctx, &b, from); err != nil {
			return err
		}
		text := b.String()
		o.Text = &text
		return nil
	})
	if gone, ok := errors.AsType[*outputGoneError](err); ok {
		o.Why, err = render.OrNull(gone.Error()), nil
	}
	return o, err
}

// An outputGoneError reports an output that cannot be opened: pruned, or lost.
type outputGoneError struct{ err error }

// Error returns the text of the store of outputs.
func (e *outputGoneError) Error() string { return e.err.Error() }

// withOutput calls use with the size and the bytes of an output.
func withOutput(ctx context.Context, s *stores.Store, ref domain.Ref, use func(size int64, from io.Reader) error) error {
	o, err := s.Outputs.Open(ctx, ref)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &outputGoneError{err}
	}
	return errors.Join(use(o.Retained().Bytes, o), o.Close())
}

// A printableWriter writes text with characters that control a terminal replaced, and each
// line indented.
type printableWriter struct {
	to   io.Writer
	rest []byte // the beginning of a character
}

// Write writes the complete characters of p. The rest waits for the next Write.
func (w *printableWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	end := len(w.rest)
	for back := 1; back <= min(utf8.UTFMax, end); back++ {
		if b := w.rest[end-back:]; utf8.RuneStart(b[0]) {
			if !utf8.FullRune(b) {
				end -= back
			}
			break
		}
	}
	_, err := io.WriteString(w.to, indented(render.Printable(string(w.rest[:end]))))
	w.rest = append(w.rest[:0], w.rest[end:]...)
	return len(p), err
}

// printWhole prints an entry of the timeline with its whole texts.
func (p *sessionPage) printWhole(h timelineEntry) error {
	at := elapsed(time.Time(h.Time).Sub(p.session.Opened))
	if h.Call != nil {
		return p.printWholeCall(at, h.Call)
	}
	head := p.out.Styled(render.Bold, KindLabel(h.Kind)) + " " + nameOf(h)
	p.out.Line("%s  %s", p.out.Styled(render.Dim, at), strings.TrimSpace(head))
	for _, part := range wholeTexts(h.event) {
		if text := strings.TrimRight(part.Text, "\n"); text != "" {
			if part.Name != "" {
				p.out.Line("  %s", p.out.Styled(render.Dim, part.Name))
			}
			p.out.Line("  %s", indented(render.Printable(text)))
		}
	}
	p.out.Line("")
	return nil
}

// A NamedText is one text of an event; the main one has no name.
type NamedText struct{ Name, Text string }

// Texts returns the whole texts of an event, those of its calls too.
func Texts(e events.Event) []NamedText {
	switch e := e.(type) {
	case events.ReplyReceived:
		return append(wholeTexts(e), NamedText{"calls", callsText(e.Calls)})
	case events.CallsAdded:
		return append(wholeTexts(e), NamedText{"calls", callsText(e.Calls)})
	case events.CallStarted:
		return append(wholeTexts(e), NamedText{"input that ran", render.Indented(e.Input)})
	case events.PermissionRequested:
		return append(wholeTexts(e), NamedText{"shown", e.Shown.Text})
	}
	return wholeTexts(e)
}

// wholeTexts returns the whole texts of an event in a timeline, whose calls have entries of
// their own.
func wholeTexts(e events.Event) []NamedText {
	switch e := e.(type) {
	case events.PromptAdmitted:
		return []NamedText{{"", e.Text}, {"media", contentText(e.Media)}}
	case events.ReplyReceived:
		return []NamedText{{"thinking", e.Thinking}, {"", e.Text}}
	case events.ReplyRefused:
		return []NamedText{{"", e.Reason}, {"thinking", e.Thinking}, {"reply", e.Text}, {"its calls", callsText(e.Calls)}}
	case events.TextRecorded:
		return []NamedText{{"", e.Digest}, {"text", e.Text}}
	case events.ContextAdded:
		return []NamedText{{"", e.Source}, {"text", e.Text}}
	case events.ContextCompacted:
		return []NamedText{{"", describeCompaction(e)}, {"summary", e.Summary}}
	case events.CommandRan:
		return []NamedText{{"", strings.TrimSpace(e.By + " " + e.Name + " " + e.Outcome)}, {"command", e.Command}, {"output", e.Output}}
	case events.Unknown:
		return []NamedText{{"", Describe(e)}, {"data", render.Indented(e.Data)}}
	case events.CallSettled:
		return []NamedText{{"", fmt.Sprintf("%s %s %s", e.Outcome, e.Tool, e.Call)}, {"result", resultText(e)}}
	}
	return []NamedText{{"", Describe(e)}}
}

// callsText returns the name, the ID and the input of each call.
func callsText(all []domain.Call) string {
	lines := make([]string, len(all))
	for i, c := range all {
		lines[i] = fmt.Sprintf("%s %q %s", c.Name, c.ID, c.Input)
	}
	return strings.Join(lines, "\n")
}

// printWholeCall prints a call: its outcome, deciders and times, its input, what the model
// read, and its retained outputs.
func (p *sessionPage) printWholeCall(at string, c *timelineCall) error {
	out, d := p.out, c.detail
	head := fmt.Sprintf("%s%s  %s %s  %s", out.Outcome(c.Outcome), outcomeSuffix(out, d), out.Styled(render.Bold, render.OneLine(c.Tool, 60)), render.Printable(string(c.Call)), render.Took(d.call))
	out.Line("%s    %s", out.Styled(render.Dim, at), strings.TrimSpace(head))
	if text := decidersText(c.Deciders); text != "" {
		out.Line("  by %s", render.Printable(text))
	}
	printSection(out, "input", render.Indented(c.Input))
	printSection(out, "input that ran", render.Indented(d.InputRan))
	printPermissions(out, c.Permissions)
	printQuestions(out, c.Questions)
	printSection(out, "the model reads", modelResultText(out, d.Reading))
	for _, kept := range c.Retained {
		out.Line("\n%s", out.Styled(render.Bold, "output "+kept.Ref.String()))
		err := withOutput(p.ctx, p.s, kept.Ref, func(_ int64, from io.Reader) error {
			out.Out.WriteString("  ") // Out keeps an error until it is flushed
			err := copyLines(p.ctx, &printableWriter{to: out.Out}, from)
			out.Line("")
			return err
		})
		if gone, ok := errors.AsType[*outputGoneError](err); ok {
			out.Line("  %s", out.Styled(render.Yellow, render.Printable("not available: "+gone.Error())))
		} else if err != nil {
			return err
		}
	}
	for _, late := range c.LateResults {
		printSection(out, "late result", fmt.Sprintf("%s %s\n%s", late.Outcome, out.LongTime(render.TimeOf(late.Time)), render.ValueOf(late.Text)))
	}
	out.Line("")
	return nil
}
