package comparison

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// A kind is the kind of a step: prompt, reply, or the kind of another event.
type kind string

// The kinds of steps with a comparison of their own.
const (
	promptKind kind = "prompt"
	replyKind  kind = "reply"
)

// A digest identifies a content.
type digest [sha256.Size]byte

// digestOf returns the digest of parts.
func digestOf(parts ...string) digest {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return digest(h.Sum(nil))
}

// A step is a prompt, a reply with its calls, or another event.
type step struct {
	kind   kind
	at     timeline.Place
	number int
	text   string
	// turn is the turn of a reply, as far as it is on record.
	turn   *events.TurnMaterialized
	reply  events.ReplyReceived
	calls  []call
	offers bool   // turn has all tools that the model was offered
	key    digest // of all content but outcomes and results
}

// A call is a call of a step.
type call struct {
	*timeline.Call
	input json.RawMessage // in a canonical form
	key   digest          // of the tool and the input
}

// newCall returns a call with its canonical input.
func newCall(c *timeline.Call) call {
	input := canonical(c.Asked.Input)
	return call{c, input, digestOf(c.Asked.Name, string(input))}
}

// canonical returns JSON with sorted names and without space, or data unchanged if it is no
// JSON. An absent input is an empty object.
func canonical(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return json.RawMessage("{}")
	}
	v, ok := decoded(data)
	if !ok {
		return data
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return data
	}
	return bytes.TrimSpace(b.Bytes())
}

// decoded returns the value of JSON, with numbers as they are written.
func decoded(data json.RawMessage) (v any, ok bool) {
	if !json.Valid(data) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return v, d.Decode(&v) == nil
}

// finish sets the key of a step whose calls are complete.
func (s *step) finish() {
	parts := []string{string(s.kind), s.text}
	for _, c := range s.calls {
		parts = append(parts, string(c.Parent), string(c.key[:]))
	}
	s.key = digestOf(parts...)
}

// similarity returns how alike two steps are: 0 if they cannot be a pair.
func (s *step) similarity(o *step) int {
	if s.kind != o.kind {
		return 0
	}
	if s.key == o.key {
		return 100
	}
	n := 1
	if s.text == o.text && s.text != "" {
		n += 40
	}
	if len(s.calls) > 0 && len(o.calls) > 0 {
		same, tools := 0, 0
		for i := range min(len(s.calls), len(o.calls), 8) {
			if s.calls[i].key == o.calls[i].key {
				same++
			}
			if s.calls[i].Asked.Name == o.calls[i].Asked.Name {
				tools++
			}
		}
		shorter := min(len(s.calls), len(o.calls), 8)
		n += 30*same/shorter + 20*tools/shorter
	}
	return n
}

// compared reports whether an event is a step of its own, and returns its content without
// IDs and times. Texts by digest, turns, settings and the opening belong to no step.
func compared(e events.Event) (content string, ok bool) {
	switch e := e.(type) {
	case events.ReplyRefused:
		lines := []string{e.Reason, e.Text}
		for _, c := range e.Calls {
			lines = append(lines, c.Name+" "+string(canonical(c.Input)))
		}
		return strings.Join(lines, "\n"), true
	case events.ContextCompacted:
		return strings.TrimSpace(e.Trigger + "\n" + e.Summary), true
	case events.ContextAdded:
		return e.Source + "\n" + e.Text, true
	case events.CommandRan:
		return strings.Join([]string{e.Command, e.Outcome, e.Output}, "\n"), true
	case events.AgentSwitched:
		return string(e.Agent), true
	case events.SessionInterrupted:
		return strings.TrimSpace(e.Reason.String() + " " + e.Detail), true
	case events.SessionClosed:
		return e.Reason, true
	case events.ProviderFailed:
		return strings.TrimSpace(e.Failure + " " + e.Detail), true
	case events.CallSettled: // of a call that nothing asks for, or a second one
		return fmt.Sprintf("%s %s", e.Tool, e.Outcome), true
	case events.Unknown:
		return fmt.Sprintf("version %d\n%s", e.Version, canonical(e.Data)), true
	}
	return "", false
}

// steps yields the steps of a timeline, and counts them in side.
func steps(entries iter.Seq2[timeline.Entry, error], side *Side) iter.Seq2[*step, error] {
	return func(yield func(*step, error) bool) {
		var last *step // a reply that may get more calls
		var turn *events.TurnMaterialized
		imported := false
		number := 0
		flush := func() bool {
			if last == nil {
				return true
			}
			s := last
			last = nil
			s.finish()
			return yield(s, nil)
		}
		begin := func(e timeline.Entry, k kind, text string) *step {
			number++
			return &step{kind: k, at: e.Place, number: number, text: text}
		}
		for e, err := range entries {
			if err != nil {
				yield(nil, err)
				return
			}
			side.see(e)
			switch event := e.Event.(type) {
			case events.SessionOpened:
				imported = event.Origin.Kind == events.Imported
			case events.TurnMaterialized:
				if turn != nil && turn.Turn == event.Turn {
					event.Tools = slices.Concat(turn.Tools, event.Tools)
				}
				turn = &event
			case events.PromptAdmitted:
				if !flush() {
					return
				}
				last = begin(e, promptKind, event.Text)
			case events.ReplyReceived:
				if last != nil && last.kind == replyKind && last.reply.Message == event.Message {
					last.add(event, e.Calls) // a reply that was recorded in parts
					continue
				}
				if !flush() {
					return
				}
				last = begin(e, replyKind, "")
				last.reply = events.ReplyReceived{Message: event.Message}
				if turn != nil && turn.Turn == event.Turn {
					last.turn, last.offers = turn, !imported && !turn.Observed
				}
				last.add(event, e.Calls)
			case events.CallsAdded:
				if last != nil && last.kind == replyKind && last.reply.Message == event.Message {
					for _, c := range e.Calls {
						last.calls = append(last.calls, newCall(c))
					}
				}
			default:
				content, ok := compared(event)
				if !ok {
					continue
				}
				if !flush() {
					return
				}
				last = begin(e, kind(event.Kind()), content)
			}
		}
		flush()
	}
}

// add adds one event of a reply.
func (s *step) add(e events.ReplyReceived, calls []*timeline.Call) {
	s.text += e.Text
	s.reply.Model = cmp.Or(e.Model, s.reply.Model)
	s.reply.Tokens.Input += e.Tokens.Input
	s.reply.Tokens.Output += e.Tokens.Output
	s.reply.Tokens.CacheRead += e.Tokens.CacheRead
	s.reply.Tokens.CacheWrite += e.Tokens.CacheWrite
	for _, c := range calls {
		s.calls = append(s.calls, newCall(c))
	}
}

// model returns the model that answered a step, or else the requested one.
func (s *step) model() string {
	if s.reply.Model == "" && s.turn != nil {
		return s.turn.Model
	}
	return s.reply.Model
}

// result returns the result of a call as the model reads it, without references to outputs.
func (c call) result() string {
	if c.End == nil {
		return ""
	}
	r := c.End.Settlement(c.End.Event).ToolResult()
	text := r.Error
	switch {
	case r.Text != "":
		text = r.Text
	case r.Structured != nil:
		text = string(canonical(r.Structured))
	case r.Content != nil:
		var parts []string
		for _, part := range r.Content {
			switch part := part.(type) {
			case domain.Text:
				parts = append(parts, string(part))
			case domain.Media:
				parts = append(parts, fmt.Sprintf("[%s %s, %d bytes, sha256 %x]", part.Name, part.MIME, len(part.Data), sha256.Sum256(part.Data)))
			}
		}
		text = strings.Join(parts, "\n")
	}
	for _, kept := range c.End.Retained {
		text = strings.ReplaceAll(text, kept.Ref.String(), "output://"+kept.Ref.Channel().String())
	}
	return text
}

// kept returns the digests of the outputs of a call that are kept outside the log.
func (c call) kept() string {
	if c.End == nil {
		return ""
	}
	lines := make([]string, len(c.End.Retained))
	for i, kept := range c.End.Retained {
		lines[i] = fmt.Sprintf("%s: %d bytes, sha256 %s", kept.Ref.Channel(), kept.Bytes, kept.SHA256)
	}
	return strings.Join(lines, "\n")
}

// outcome returns the outcome of a call, or open.
func (c call) outcome() string {
	if c.End == nil {
		return "open"
	}
	return c.End.Outcome.String()
}
