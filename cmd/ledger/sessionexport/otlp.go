package sessionexport

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// The kinds and the status of spans, as OTLP numbers them.
const (
	spanInternal = 1
	spanClient   = 3
	statusError  = 2
)

// An otlpSpan is a span in the JSON encoding of OTLP: IDs are hexadecimal, and integers of
// 64 bits are strings. The encoding is written by hand, because the protobuf package
// encodes IDs as base64 and puts blanks in its JSON at random.
type otlpSpan struct {
	Trace      string          `json:"traceId"`
	ID         string          `json:"spanId"`
	Parent     string          `json:"parentSpanId,omitempty"`
	Name       string          `json:"name"`
	Kind       int             `json:"kind"`
	Start      nanoseconds     `json:"startTimeUnixNano"`
	End        nanoseconds     `json:"endTimeUnixNano"`
	Attributes []otlpAttribute `json:"attributes,omitempty"`
	Events     []otlpEvent     `json:"events,omitempty"`
	Links      []otlpLink      `json:"links,omitempty"`
	Status     *otlpStatus     `json:"status,omitempty"`
}

// An otlpEvent is an event of a span.
type otlpEvent struct {
	Time       nanoseconds     `json:"timeUnixNano"`
	Name       string          `json:"name"`
	Attributes []otlpAttribute `json:"attributes,omitempty"`
}

// An otlpLink links a span to a span of another trace.
type otlpLink struct {
	Trace string `json:"traceId"`
	Span  string `json:"spanId"`
}

// An otlpStatus is the status of a span that failed.
type otlpStatus struct {
	Message string `json:"message,omitempty"`
	Code    int    `json:"code"`
}

// An otlpAttribute is a name with a value.
type otlpAttribute struct {
	Key   string    `json:"key"`
	Value otlpValue `json:"value"`
}

// An otlpValue is a text, an integer, a boolean or a list of texts.
type otlpValue struct {
	Text  *string    `json:"stringValue,omitempty"`
	Int   *string    `json:"intValue,omitempty"`
	Bool  *bool      `json:"boolValue,omitempty"`
	Array *otlpArray `json:"arrayValue,omitempty"`
}

// An otlpArray is a list of values.
type otlpArray struct {
	Values []otlpValue `json:"values"`
}

// A nanoseconds is a time in the encoding of OTLP.
type nanoseconds time.Time

// MarshalJSON writes the time as a string of nanoseconds.
func (n nanoseconds) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strconv.FormatInt(time.Time(n).UnixNano(), 10) + `"`), nil
}

// An attributes is a list of attributes in progress. It has no empty value.
type attributes []otlpAttribute

// text adds a text.
func (a *attributes) text(key, value string) {
	if value != "" {
		*a = append(*a, otlpAttribute{key, otlpValue{Text: &value}})
	}
}

// number adds an integer that is not zero.
func (a *attributes) number(key string, value int64) {
	if value != 0 {
		text := strconv.FormatInt(value, 10)
		*a = append(*a, otlpAttribute{key, otlpValue{Int: &text}})
	}
}

// truth adds a boolean.
func (a *attributes) truth(key string, value bool) {
	*a = append(*a, otlpAttribute{key, otlpValue{Bool: &value}})
}

// list adds a list of texts.
func (a *attributes) list(key string, values ...string) {
	var all []otlpValue
	for _, v := range values {
		if v != "" {
			all = append(all, otlpValue{Text: &v})
		}
	}
	if all != nil {
		*a = append(*a, otlpAttribute{key, otlpValue{Array: &otlpArray{all}}})
	}
}

// traceOf returns the trace of a session: the 16 bytes of its ID.
func traceOf(id domain.SessionID) string {
	bytes := id.Bytes()
	return hex.EncodeToString(bytes[:])
}

// spanOf returns the ID of a span: the first bytes of a digest of what identifies it.
func spanOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// callSpan returns the span of a call.
func callSpan(session domain.SessionID, message domain.MessageID, call domain.CallID) string {
	return spanOf("call", session.String(), message.String(), string(call))
}

// A tracer writes the spans of a session.
type tracer struct {
	session
	out  *bufio.Writer
	full bool
	root string // the span of the session
	n    int    // spans written
	// open are the turns without a reply so far, and turns has the span of each turn.
	open  []openTurn
	turns map[domain.TurnID]string
	agent domain.AgentID // of the calls that follow
	err   error          // of writing
}

// An openTurn is a turn without a reply so far, with its failed requests.
type openTurn struct {
	timeline.Place
	events.TurnMaterialized
	failures []otlpEvent
}

// writeOTLP writes a session as one TracesData of OTLP in JSON: a span for the session,
// below it one for each turn, and below the turns one for each call, also for a lost or an
// open one.
func (e *export) writeOTLP(out *bufio.Writer, known calls.Session) error {
	s, err := e.open(known)
	if err != nil {
		return err
	}
	var resource attributes
	resource.text("service.name", "ledger")
	resource.text("ledger.session.origin", strings.TrimSpace(string(s.Origin.Kind)+" "+s.Origin.Format))
	resource.truth("ledger.redacted", e.opts.Redactor != nil)
	head, err := render.EncodeJSON(resource)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `{"resourceSpans":[{"resource":{"attributes":%s},"scopeSpans":[{"scope":{"name":"ledger export session","version":"%d"},"spans":[`, head, formatVersion)
	t := &tracer{session: s, out: out, full: e.opts.Full, root: spanOf("session", s.ID.String()), turns: map[domain.TurnID]string{}, agent: s.Agent}
	root := otlpSpan{Trace: traceOf(s.ID), ID: t.root, Kind: spanInternal, Start: nanoseconds(s.Opened), End: nanoseconds(s.LastEvent)}
	err = e.read(s, func(entry timeline.Entry) error {
		t.add(&root, entry)
		return t.err
	})
	if err != nil {
		return err
	}
	for _, turn := range t.open {
		t.unanswered(turn, "no_reply", "the log has no reply to this turn", s.LastEvent)
	}
	t.finish(&root)
	if t.err != nil {
		return t.err
	}
	_, err = out.WriteString("\n]}]}]}\n")
	return err
}

// write writes a span on a line of its own.
func (t *tracer) write(span otlpSpan) {
	data, err := render.EncodeJSON(span)
	if err != nil {
		t.err = err
		return
	}
	separator := ",\n"
	if t.n == 0 {
		separator = "\n"
	}
	t.n++
	if _, err := fmt.Fprintf(t.out, "%s%s", separator, data); err != nil && t.err == nil {
		t.err = err
	}
}

// finish writes the span of the session.
func (t *tracer) finish(root *otlpSpan) {
	var a attributes
	a.text("gen_ai.operation.name", "invoke_agent")
	a.text("gen_ai.agent.name", string(t.Agent))
	a.text("gen_ai.conversation.id", t.ID.String())
	a.text("gen_ai.request.model", t.Model)
	a.text("ledger.session.state", t.state())
	a.number("ledger.session.revision", int64(t.Revision))
	root.Attributes = a
	root.Name = strings.TrimSpace("invoke_agent " + string(t.Agent))
	t.write(*root)
}

// add adds an entry: spans, or an event of the span of the session.
func (t *tracer) add(root *otlpSpan, e timeline.Entry) {
	switch v := e.Event.(type) {
	case events.SessionOpened:
		if !v.Parent.IsZero() && v.ParentCall != "" {
			root.Links = append(root.Links, otlpLink{traceOf(v.Parent), callSpan(v.Parent, v.ParentMessage, v.ParentCall)})
		}
	case events.SessionSpawned:
		if v.Call != "" {
			root.Links = append(root.Links, otlpLink{traceOf(v.Parent), callSpan(v.Parent, v.Message, v.Call)})
		}
	case events.AgentSwitched:
		t.agent = v.Agent
	case events.TurnMaterialized:
		t.turns[v.Turn] = spanOf("turn", e.Place.Event.String())
		t.open = append(t.open, openTurn{Place: e.Place, TurnMaterialized: v})
	case events.ProviderFailed:
		t.failed(root, e.Place, v)
	case events.ReplyReceived:
		t.reply(e.Place, v)
	case events.ReplyRefused:
		if turn, ok := t.take(v.Turn); ok {
			t.unanswered(turn, "reply_refused", v.Reason, e.Time)
		}
	case events.ContextCompacted:
		if n := len(t.open); n > 0 && !t.open[n-1].Summarizes.IsZero() { // the summary takes the place of a reply
			turn := t.open[n-1]
			t.open = t.open[:n-1]
			t.chat(turn, e.Time, v.Model, v.Tokens, "", nil)
		}
	case events.PromptAdmitted:
		root.Events = append(root.Events, otlpEvent{Time: nanoseconds(e.Time), Name: "ledger.prompt"})
	case events.SessionInterrupted:
		var a attributes
		a.text("reason", v.Reason.String())
		a.text("detail", v.Detail)
		root.Events = append(root.Events, otlpEvent{nanoseconds(e.Time), "ledger.interrupted", a})
	}
	for _, c := range e.Calls {
		t.call(c)
	}
}

// take removes the last open turn of an ID and returns it.
func (t *tracer) take(id domain.TurnID) (openTurn, bool) {
	for i := len(t.open) - 1; i >= 0; i-- {
		if t.open[i].Turn == id {
			turn := t.open[i]
			t.open = append(t.open[:i], t.open[i+1:]...)
			return turn, true
		}
	}
	return openTurn{}, false
}

// failed adds a failed request to its turn, or to the session if it is not known.
func (t *tracer) failed(root *otlpSpan, at timeline.Place, v events.ProviderFailed) {
	var a attributes
	a.text("error.type", v.Failure)
	a.number("http.response.status_code", v.Status)
	a.number("ledger.attempt", v.Attempt)
	a.text("detail", v.Detail)
	event := otlpEvent{nanoseconds(at.Time), "ledger.provider_failed", a}
	for i := range t.open {
		if t.open[i].Turn == v.Turn {
			t.open[i].failures = append(t.open[i].failures, event)
			return
		}
	}
	root.Events = append(root.Events, event)
}

// reply writes the span of the turn that a reply answers.
func (t *tracer) reply(at timeline.Place, v events.ReplyReceived) {
	if turn, ok := t.take(v.Turn); ok {
		t.chat(turn, at.Time, v.Model, v.Tokens, v.Finish, nil)
	}
}

// unanswered writes the span of a turn without a usable reply.
func (t *tracer) unanswered(turn openTurn, class, message string, end time.Time) {
	t.chat(turn, end, "", events.Tokens{}, class, &otlpStatus{message, statusError})
}

// chat writes the span of a turn. The finish is the class of the error if there is a
// status.
func (t *tracer) chat(turn openTurn, end time.Time, model string, tokens events.Tokens, finish string, status *otlpStatus) {
	var a attributes
	a.text("gen_ai.operation.name", "chat")
	a.text("gen_ai.provider.name", turn.Provider)
	a.text("gen_ai.request.model", turn.Model)
	a.text("gen_ai.response.model", model)
	a.text("gen_ai.conversation.id", t.ID.String())
	a.text("gen_ai.agent.name", string(turn.Agent))
	a.number("gen_ai.usage.input_tokens", tokens.Input+tokens.CacheRead+tokens.CacheWrite)
	a.number("gen_ai.usage.cache_read.input_tokens", tokens.CacheRead)
	a.number("gen_ai.usage.cache_creation.input_tokens", tokens.CacheWrite)
	a.number("gen_ai.usage.output_tokens", tokens.Output)
	if status == nil {
		a.list("gen_ai.response.finish_reasons", finish)
	} else {
		a.text("error.type", finish)
	}
	a.text("ledger.turn.id", turn.Turn.String())
	a.number("ledger.turn.tools", int64(len(turn.Tools)))
	a.number("ledger.turn.hidden_tools", int64(len(turn.Hidden)))
	t.write(otlpSpan{
		Trace: traceOf(t.ID), ID: spanOf("turn", turn.Place.Event.String()), Parent: t.root, Name: strings.TrimSpace("chat " + turn.Model), Kind: spanClient,
		Start: nanoseconds(turn.Time), End: nanoseconds(end), Attributes: a, Events: turn.failures, Status: status,
	})
}

// call writes the span of a call. A call that never ran lasts from the reply to its end,
// and an open one to the last event of the session.
func (t *tracer) call(c *timeline.Call) {
	span := otlpSpan{
		Trace: traceOf(t.ID), ID: callSpan(t.ID, c.Message, c.Asked.ID), Parent: t.turns[c.Turn], Name: "execute_tool " + c.Tool(), Kind: spanInternal,
		Start: nanoseconds(c.AskedAt.Time), End: nanoseconds(t.LastEvent),
	}
	switch {
	case c.Parent != "":
		span.Parent = callSpan(t.ID, c.Message, c.Parent)
	case span.Parent == "":
		span.Parent = t.root
	}
	if len(c.Starts) > 0 {
		span.Start = nanoseconds(c.Starts[0].Time)
	}
	outcome := outcomeOf(c)
	var a attributes
	a.text("gen_ai.operation.name", "execute_tool")
	a.text("gen_ai.tool.name", c.Tool())
	a.text("gen_ai.tool.call.id", string(c.Asked.ID))
	a.text("gen_ai.tool.type", "function")
	a.text("gen_ai.conversation.id", t.ID.String())
	a.text("gen_ai.agent.name", string(t.agent))
	a.text("ledger.call.outcome", outcome)
	a.truth("ledger.call.began", len(c.Starts) > 0 || c.End != nil && c.End.Began)
	if outcome != domain.Succeeded.String() {
		a.text("error.type", outcome)
		span.Status = &otlpStatus{Code: statusError}
	}
	if t.full {
		a.text("gen_ai.tool.call.arguments", string(c.Asked.Input))
	}
	if c.End != nil {
		span.End = nanoseconds(c.End.Time)
		a.text("ledger.settlement.id", c.End.Place.Event.String())
		a.number("ledger.call.ran_ms", c.End.RanMS)
		if span.Status != nil {
			span.Status.Message = c.End.Detail
		} else if t.full {
			a.text("gen_ai.tool.call.result", resultText(c))
		}
	}
	span.Attributes, span.Events = a, callEvents(c)
	t.write(span)
}

// resultText returns what the model read of a successful call, as text.
func resultText(c *timeline.Call) string {
	if text, ok := resultOf(c).(string); ok {
		return text
	}
	return c.End.Content.Text()
}

// callEvents returns the waits of a call for permissions and answers, its loops and its
// late results, as events of its span.
func callEvents(c *timeline.Call) (all []otlpEvent) {
	add := func(at timeline.Place, name string, fill func(*attributes)) {
		var a attributes
		fill(&a)
		all = append(all, otlpEvent{nanoseconds(at.Time), name, a})
	}
	for i, s := range c.Starts {
		if i > 0 {
			add(s.Place, "ledger.started_again", func(*attributes) {})
		}
	}
	for _, l := range c.Loops {
		add(l.Place, "ledger.loop", func(a *attributes) { a.number("period", int64(l.Period)); a.number("rounds", int64(l.Rounds)) })
	}
	for _, p := range c.Permissions {
		add(p.Place, "ledger.permission.requested", func(a *attributes) { a.text("action", p.Action); a.list("resources", p.Resources...) })
		if d := p.Decision; d != nil {
			add(d.Place, "ledger.permission.decided", func(a *attributes) {
				a.text("effect", d.Effect.String())
				a.text("scope", d.Scope)
				a.text("by", string(d.By))
				a.text("person", d.Person)
				a.text("rule", d.Rule.Source)
				a.number("waited_ms", d.WaitedMS)
			})
		}
	}
	for _, q := range c.Questions {
		add(q.Place, "ledger.question.asked", func(a *attributes) { a.number("questions", int64(len(q.Questions))) })
		if w := q.Answer; w != nil {
			add(w.Place, "ledger.question.answered", func(a *attributes) {
				a.text("by", string(w.By))
				a.truth("dismissed", w.Dismissed)
				a.number("waited_ms", w.WaitedMS)
			})
		}
	}
	for _, l := range c.Late {
		add(l.Place, "ledger.late_result", func(a *attributes) { a.text("outcome", l.Outcome.String()) })
	}
	return all
}
