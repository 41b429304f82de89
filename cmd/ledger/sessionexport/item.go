package sessionexport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// maxText is the number of bytes of a text that a page shows unless Options.Full is set.
const maxText = 16 << 10

// The widths of the names and the lines of an index, in columns.
const (
	maxName    = 80
	maxSummary = 160
)

// An item is a part of a page: an event, or a call with all about it.
type item struct {
	kind    string // prompt, reply, turn, call, or another word for an event
	name    string // the tool of a call
	outcome string // of a call
	at      int64  // milliseconds since the session was opened
	summary string // one line
	depth   int    // 1: a call of a reply, 2: a call that a call made
	// full has the values of fields whole.
	full bool

	Fields [][2]string `json:"fields,omitempty"`
	Blocks []block     `json:"blocks,omitempty"`
}

// A block is a text or an image of an item.
type block struct {
	Title string `json:"title"`
	Text  string `json:"text,omitempty"`
	// Form is text, json, diff or image.
	Form string `json:"form"`
	// More is the number of bytes that the page leaves out.
	More int `json:"more,omitempty"`
	// Image is the data URI of an image of a type that browsers show without running it.
	Image string `json:"image,omitempty"`
}

// A pageBuilder makes the items of a session.
type pageBuilder struct {
	session
	full bool
	// offer is the offer of the turn before, by name.
	offer   map[domain.Name]domain.Offered
	offered bool // there was a turn before
}

// items returns the items of an entry.
func (b *pageBuilder) items(e timeline.Entry) []item {
	it := item{
		kind: render.OneLine(views.KindLabel(e.Event.Kind()), maxName), at: e.Time.Sub(b.Opened).Milliseconds(), full: b.full,
		summary: render.OneLine(views.Describe(e.Event), maxSummary),
	}
	it.field("event", fmt.Sprintf("%s at %s, revision %d", e.Event.Kind(), render.Timestamp(e.Time), e.Revision))
	it.field("id", e.Place.Event.String())
	switch v := e.Event.(type) {
	case events.PromptAdmitted:
		b.text(&it, "prompt", v.Text)
		b.media(&it, v.Media)
	case events.TurnMaterialized:
		b.turn(&it, v)
	case events.ReplyReceived:
		it.summary = render.OneLine(v.Text, maxSummary)
		it.field("model", v.Model)
		it.field("tokens", tokensText(v.Tokens))
		it.field("finish", v.Finish)
		b.text(&it, "thinking", v.Thinking)
		b.text(&it, "reply", v.Text)
	case events.ReplyRefused:
		it.field("reason", v.Reason)
		b.text(&it, "thinking", v.Thinking)
		b.text(&it, "reply", v.Text)
		for _, c := range v.Calls {
			b.json(&it, "refused call "+c.Name, c.Input)
		}
	case events.ContextAdded:
		b.text(&it, v.Source, v.Text)
	case events.ContextCompacted:
		b.text(&it, "summary", v.Summary)
	case events.TextRecorded:
		it.field("digest", v.Digest)
		b.text(&it, "text", v.Text)
	case events.CommandRan:
		b.text(&it, "command", v.Command)
		b.text(&it, "output", v.Output)
	case events.CallSettled: // of a call that nothing on record asks for, or a second end
		it.name, it.outcome = render.OneLine(v.Tool, maxName), v.Outcome.String()
		b.end(&it, timeline.End{Place: e.Place, CallSettled: v})
	default:
		b.record(&it, e.Event)
	}
	all := []item{it}
	for _, c := range e.Calls {
		all = append(all, b.call(c))
	}
	return all
}

// record adds the data of an event.
func (b *pageBuilder) record(it *item, e events.Event) {
	r, err := recordOf(timeline.Place{}, e)
	if err == nil && !bytes.Equal(r.Data, []byte("{}")) {
		b.json(it, "data", r.Data)
	}
}

// tokensText returns token counts as text, or an empty text if there are none.
func tokensText(t events.Tokens) string {
	if t == (events.Tokens{}) {
		return ""
	}
	return fmt.Sprintf("%d in, %d out, %d read from the cache, %d written to it", t.Input, t.Output, t.CacheRead, t.CacheWrite)
}

// field adds a field with a value that is not empty, within the limit of texts.
func (it *item) field(name, value string) {
	if value == "" {
		return
	}
	value, more := bounded(value, it.full)
	value = render.Printable(value)
	if more > 0 {
		value += fmt.Sprintf(" … %d more bytes", more)
	}
	it.Fields = append(it.Fields, [2]string{name, value})
}

// bounded returns the beginning of a text within maxText, and the number of bytes after
// it. With full set the text stays whole.
func bounded(text string, full bool) (kept string, more int) {
	if full || len(text) <= maxText {
		return text, 0
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], len(text) - end
}

// text adds a text that is not empty.
func (b *pageBuilder) text(it *item, title, text string) { b.block(it, title, "text", text) }

// json adds a JSON value, indented.
func (b *pageBuilder) json(it *item, title string, value json.RawMessage) {
	b.block(it, title, "json", render.Indented(value))
}

// block adds a text within the limit.
func (b *pageBuilder) block(it *item, title, form, text string) {
	if text == "" {
		return
	}
	added := block{Title: render.OneLine(title, maxSummary), Form: form}
	text, added.More = bounded(text, b.full)
	added.Text = render.Printable(strings.ReplaceAll(text, "\r\n", "\n"))
	it.Blocks = append(it.Blocks, added)
}

// shownImages are the types of images that browsers show and never run.
var shownImages = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// media adds images, and the names of other files. An image is shown if its bytes are of
// the type that it is said to have.
func (b *pageBuilder) media(it *item, contents domain.Contents) {
	for _, m := range contents.Media() {
		title := render.OneLine(strings.TrimSpace(m.Name+" "+m.MIME+", "+render.Bytes(int64(len(m.Data)))), maxSummary)
		if !slices.Contains(shownImages, m.MIME) || http.DetectContentType(m.Data) != m.MIME {
			it.field("file", title+", not shown")
			continue
		}
		it.Blocks = append(it.Blocks, block{Title: title, Form: "image", Image: m.URI()})
	}
}

// turn adds the offer of a turn and how it differs from the one before.
func (b *pageBuilder) turn(it *item, v events.TurnMaterialized) {
	it.field("turn", v.Turn.String())
	it.field("agent", string(v.Agent))
	it.field("model", strings.TrimSpace(v.Provider+" "+v.Model))
	it.field("system prompt", v.System)
	it.field("rules", v.Rules)
	if v.Disabled {
		it.field("offer", "no tools: the last step allowed")
	}
	offer := map[domain.Name]domain.Offered{}
	var lines strings.Builder
	changes := 0
	for _, o := range v.Tools {
		offer[o.Name] = o
		mark := " "
		before, known := b.offer[o.Name]
		switch {
		case b.offered && !known:
			mark = "+"
		case b.offered && before.Fingerprint != o.Fingerprint:
			mark = "~"
		}
		if mark != " " {
			changes++
		}
		fmt.Fprintf(&lines, "%s %s  %s\n", mark, o.Name, o.Registration)
	}
	for _, name := range sortedNames(b.offer) {
		if _, still := offer[name]; !still {
			changes++
			fmt.Fprintf(&lines, "- %s\n", name)
		}
	}
	if b.offered && !v.Observed {
		it.field("changes", render.Count(changes, "change")+" since the turn before")
		if changes > 0 {
			it.summary = render.OneLine(render.Count(changes, "change")+" of the offer; "+it.summary, maxSummary)
		}
	}
	b.block(it, "offered tools (+ new, - gone, ~ changed)", "text", lines.String())
	var hiddenTools strings.Builder
	for _, h := range v.Hidden {
		why := "a condition of the tool is not met"
		if h.Rule != (domain.Rule{}) {
			why = fmt.Sprintf("rule %s %s %s %s", h.Rule.Effect, h.Rule.Action, h.Rule.Resource, h.Rule.Source)
		}
		fmt.Fprintf(&hiddenTools, "%s: %s\n", h.Name, strings.TrimSpace(why))
	}
	b.text(it, "hidden tools", hiddenTools.String())
	b.offer, b.offered = offer, true
}

// sortedNames returns the names of an offer in order.
func sortedNames(offer map[domain.Name]domain.Offered) []domain.Name {
	names := make([]domain.Name, 0, len(offer))
	for name := range offer {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// call returns the item of a call.
func (b *pageBuilder) call(c *timeline.Call) item {
	it := item{
		kind: "call", name: render.OneLine(c.Tool(), maxName), outcome: outcomeOf(c), at: c.AskedAt.Time.Sub(b.Opened).Milliseconds(), depth: 1, full: b.full,
		summary: render.OneLine(views.MainField(c.Asked.Input), maxSummary),
	}
	if c.Parent != "" {
		it.depth = 2
		it.field("made by", string(c.Parent))
	}
	it.field("call", string(c.Asked.ID))
	it.field("asked", render.Timestamp(c.AskedAt.Time).String())
	b.block(&it, "changes", "diff", diffOf(c))
	b.json(&it, "input", c.Asked.Input)
	for i, start := range c.Starts {
		text := render.Timestamp(start.Time).String()
		if i > 0 {
			text += " again"
		}
		it.field("started", text)
		it.field("title", start.Title)
		b.json(&it, "input that ran", start.Input)
	}
	for _, l := range c.Loops {
		it.field("loop", fmt.Sprintf("%d calls %d times", l.Period, l.Rounds))
	}
	for _, p := range c.Permissions {
		it.field("permission", permissionText(p))
	}
	for _, q := range c.Questions {
		it.field("question", questionText(q))
	}
	if c.End == nil {
		it.field("outcome", "open: the log has no end of the call up to here")
	} else {
		b.end(&it, *c.End)
	}
	for _, l := range c.Late {
		b.text(&it, fmt.Sprintf("late result (%s)", l.Outcome), l.Text)
		b.json(&it, fmt.Sprintf("late result (%s)", l.Outcome), l.Structured)
	}
	return it
}

// end adds the settlement of a call.
func (b *pageBuilder) end(it *item, e timeline.End) {
	it.field("outcome", e.Outcome.String()+" at "+render.Timestamp(e.Time).String())
	if e.RanMS > 0 {
		it.field("ran", render.Duration(time.Duration(e.RanMS)*time.Millisecond))
	}
	if e.Interruption != 0 {
		it.field("interruption", e.Interruption.String())
	}
	it.field("detail", e.Detail)
	if e.Rule != (domain.Rule{}) {
		it.field("rule", strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Rule.Effect, e.Rule.Action, e.Rule.Resource, e.Rule.Source)))
	}
	for _, r := range e.Allowed {
		it.field("allowed by rule", strings.TrimSpace(r.Action+" "+r.Resource+" "+r.Source))
	}
	if !e.Agrees && !e.Offered.IsZero() && !e.Effective.IsZero() && e.Offered.Fingerprint != e.Effective.Fingerprint {
		it.field("registration", "the offered and the effective definition differ, by "+e.ChangedBy.String())
	}
	for _, f := range e.Files {
		it.field("file", f.Access+" "+f.Path)
	}
	for _, r := range e.Retained {
		text := fmt.Sprintf("%s, %s, %s, sha256 %s", r.Ref, render.Bytes(r.Bytes), render.Count(int(r.Lines), "line"), r.SHA256)
		if p, gone := b.pruned[r.Ref]; gone {
			text += ", pruned " + render.Timestamp(p.Pruned).String() + ": " + p.Policy
		}
		it.field("stored output", text)
	}
	if e.Lost > 0 {
		it.field("dropped by the tool", render.Bytes(e.Lost))
	}
	s := e.Settlement(e.Place.Event)
	result := s.ToolResult()
	switch {
	case result.Error != "":
		b.text(it, "result", result.Error)
	case result.Content != nil:
		b.text(it, "result", result.Content.Text())
		b.media(it, result.Content)
	case result.Text != "":
		b.text(it, "result", result.Text)
	}
	b.json(it, "structured output", e.Structured)
	if e.Progress != nil {
		b.text(it, "last progress", e.Progress.Content.Text())
		b.json(it, "last progress", e.Progress.Structured)
	}
}

// permissionText returns a permission request and its decision on one line.
func permissionText(p timeline.Permission) string {
	text := p.Action + " " + strings.Join(p.Resources, ", ")
	d := p.Decision
	if d == nil {
		return text + ": undecided"
	}
	text += fmt.Sprintf(": %s %s by %s", d.Effect, d.Scope, d.By)
	if d.Person != "" {
		text += " " + d.Person
	}
	if d.Rule.Source != "" {
		text += " " + d.Rule.Source
	}
	if d.WaitedMS > 0 {
		text += " after " + render.Duration(time.Duration(d.WaitedMS)*time.Millisecond)
	}
	if d.Feedback != "" {
		text += ": " + d.Feedback
	}
	return strings.Join(strings.Fields(text), " ")
}

// questionText returns questions and their answers on one line.
func questionText(q timeline.Question) string {
	text := views.Describe(q.QuestionAsked)
	if q.Answer == nil {
		return text + ": unanswered"
	}
	text += ": " + views.Describe(q.Answer.QuestionAnswered) + " by " + string(q.Answer.By)
	if q.Answer.Person != "" {
		text += " " + q.Answer.Person
	}
	return text
}

// elapsed returns milliseconds as a time since the beginning of the session.
func elapsed(ms int64) string {
	sign := "+"
	if ms < 0 {
		sign, ms = "-", -ms
	}
	return sign + strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) + " s"
}
