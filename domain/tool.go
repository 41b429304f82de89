package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// A Tool is something that a model can call. It is opaque: callers can
// describe it and bind it to an input. A Tool has no name; the registration
// names it. It is safe for concurrent use if its executor is. The zero Tool is
// not valid.
type Tool struct{ *toolBody }

// A toolBody is the content of a Tool. It is immutable.
type toolBody struct {
	description string
	// action is the permission action. Empty: the name of the registration.
	action     string
	input      schema
	output     schema
	idempotent bool
	asksFirst  bool
	available  Availability
	// describeTurn returns the description for one turn. Nil: description.
	describeTurn func(TurnFacts) string
	// bind validates and decodes an input and returns the tool with it. It hides the
	// types In and Out.
	bind func(json.RawMessage) (Bound, error)
}

// A Spec describes a tool. [Make] turns it into a Tool.
type Spec[In, Out any] struct {
	// Description is the purpose of the tool, for the model. It must not be
	// empty.
	Description string
	// Input is the codec of the input. Nil: JSON[In]().
	Input Codec[In]
	// Output is the codec of the output. Nil: JSON[Out]().
	Output Codec[Out]
	// Execute does the work. Its context ends when the call is interrupted. It
	// returns an error of Fail for the model to read, a *Denied or *Declined
	// unchanged, and any other error for the operator.
	Execute func(context.Context, In, Invocation) (Out, error)
	// Present renders a settled call for the model from the stored input and
	// output alone, and without side effects. Nil: a string is presented as
	// text, any other value as JSON.
	Present func(In, Encoded[Out]) []Content
	// Idempotent promises that a second run of the same call has no further
	// effect. It is recorded with each start, for the decision about a lost call.
	Idempotent bool
	// AsksFirst promises that Execute requests permission before its first side effect,
	// so that a call that waits for an answer has done nothing yet. It is recorded with
	// the registration and with each start.
	AsksFirst bool
	// Available says in which turns the tool is offered. Empty: in every turn.
	Available Availability
	// DescribeTurn returns the description for one turn, such as one that lists the
	// skills of an agent. It runs when the offer of the turn is made, and the turn
	// records the text. Nil or an empty text: Description.
	DescribeTurn func(TurnFacts) string
	// Title returns one line about a call for a person, such as the path that it reads.
	// It is recorded with the start. Nil: no title.
	Title func(In) string
	// InvalidInput returns the text that the model reads for an input that does not fit
	// the schema. Nil or an empty text: a text that lists every violation.
	InvalidInput func(input json.RawMessage, fault *ValidationError) string
	// Lost returns how many bytes of the output the executor dropped because of a limit
	// of its own. The settlement reports the number. Nil: no bytes.
	Lost func(Out) int64
	// Files returns the files that the call read or changed. The settlement records
	// them. Nil: no files.
	Files func(In, Out) []FileAccess
}

// An Encoded is an output as the ledger stores it: JSON without insignificant
// space.
type Encoded[Out any] struct {
	json  json.RawMessage
	codec Codec[Out]
}

// JSON returns the document. The caller must not change it.
func (e Encoded[Out]) JSON() json.RawMessage { return e.json }

// Value decodes the document. Each call decodes it again.
func (e Encoded[Out]) Value() (Out, error) { return e.codec.Decode(e.json) }

// Make returns the tool of a spec. It returns ErrBadTool if the description or
// the executor is missing, ErrBadSchema if a schema is invalid or refers to
// another document, and a *Defect if a codec panics in Schema.
func Make[In, Out any](s Spec[In, Out]) (Tool, error) {
	if s.Execute == nil || s.Description == "" {
		return Tool{}, fmt.Errorf("make tool: %w: it needs a description and an executor", ErrBadTool)
	}
	if s.Input == nil {
		s.Input = JSON[In]()
	}
	if s.Output == nil {
		s.Output = JSON[Out]()
	}
	input, err := schemaFor(s.Input)
	if err != nil {
		return Tool{}, fmt.Errorf("make tool: input: %w", err)
	}
	output, err := schemaFor(s.Output)
	if err != nil {
		return Tool{}, fmt.Errorf("make tool: output: %w", err)
	}
	t := &toolBody{
		description: s.Description, input: input, output: output, idempotent: s.Idempotent, asksFirst: s.AsksFirst,
		available: s.Available, describeTurn: s.DescribeTurn,
	}
	t.bind = func(raw json.RawMessage) (Bound, error) { return bind(s, input, output, raw) }
	return Tool{t}, nil
}

// bind decodes an input and titles the call. It returns a *ValidationError with the
// tool's own text for the model, if the tool has one, or a *Defect.
func bind[In, Out any](s Spec[In, Out], input, output schema, raw json.RawMessage) (b Bound, err error) {
	defer recoverDefect(&err)
	in, err := decode(s.Input, input, raw)
	if fault, ok := errors.AsType[*ValidationError](err); ok && s.InvalidInput != nil {
		fault.ownText = s.InvalidInput(bytes.Clone(raw), fault)
	}
	if err != nil {
		return Bound{}, err
	}
	if s.Title != nil {
		b.title = titleLine(s.Title(in))
	}
	b.run = func(ctx context.Context, inv Invocation) (Output, error) { return run(ctx, s, output, in, inv) }
	return b, nil
}

// maxTitle is the maximum length of a title in runes.
const maxTitle = 200

// titleLine returns a title as one line of valid UTF-8 within maxTitle, without control
// characters.
func titleLine(text string) string {
	line := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if runes := []rune(line); len(runes) > maxTitle {
		return string(runes[:maxTitle-1]) + "…"
	}
	return validUTF8(line)
}

// schemaFor compiles the schema of a codec. A panic of the codec becomes a
// *Defect.
func schemaFor[T any](c Codec[T]) (s schema, err error) {
	defer recoverDefect(&err)
	if broken, ok := c.(interface{ schemaError() error }); ok && broken.schemaError() != nil {
		return schema{}, broken.schemaError()
	}
	return compile(c.Schema())
}

// decode validates an input and decodes it. It returns a *ValidationError or a
// *Defect.
func decode[In any](c Codec[In], s schema, raw json.RawMessage) (in In, err error) {
	defer recoverDefect(&err)
	document, err := s.accept(raw, ignored(c))
	if err != nil {
		return in, err
	}
	if in, err = c.Decode(document); err != nil {
		return in, invalid(ErrInvalidInput, err)
	}
	return in, nil
}

// run executes a spec, then encodes, validates and presents its output, as
// Bound.Run documents.
func run[In, Out any](ctx context.Context, s Spec[In, Out], schema schema, in In, inv Invocation) (out Output, err error) {
	defer recoverDefect(&err)
	value, err := s.Execute(ctx, in, inv)
	if err != nil {
		return Output{}, classify(ctx, err)
	}
	document, err := s.Output.Encode(value)
	if err != nil {
		return Output{}, invalid(ErrInvalidOutput, err)
	}
	decoded, err := schema.check(document, ErrInvalidOutput)
	if err != nil {
		return Output{}, err
	}
	// The presentation receives the same bytes that the ledger stores.
	var encoded bytes.Buffer
	encoded.Grow(len(document))
	if err := json.Compact(&encoded, document); err != nil {
		return Output{}, invalid(ErrInvalidOutput, err)
	}
	out = Output{structured: encoded.Bytes(), content: present(s, in, encoded.Bytes(), decoded)}
	if s.Lost != nil {
		out.lost = max(s.Lost(value), 0)
	}
	if s.Files != nil {
		out.files = s.Files(in, value)
	}
	return out, nil
}

// classify returns an ErrInterrupted in place of err if ctx has ended, since the
// interruption is the likely cause of err. It returns a Denied or a Declined unchanged,
// because no interruption causes a permission decision.
func classify(ctx context.Context, err error) error {
	if errors.Is(err, ErrDenied) || errors.Is(err, ErrDeclined) || ctx.Err() == nil {
		return err
	}
	return interrupted(ctx)
}

// present returns the content that Spec.Present makes of an encoded output. Without
// Present, the content is the text of a string, and nil for any other value: the model
// then reads the JSON.
func present[In, Out any](s Spec[In, Out], in In, encoded json.RawMessage, decoded any) Contents {
	if s.Present != nil {
		return s.Present(in, Encoded[Out]{bytes.Clone(encoded), s.Output})
	}
	if text, ok := decoded.(string); ok {
		return Contents{Text(text)}
	}
	return nil
}

// IsZero reports whether t is the zero Tool, which is not valid.
func (t Tool) IsZero() bool { return t.toolBody == nil }

// WithAction returns a copy of t with another permission action. For the zero
// Tool it returns the zero Tool.
func WithAction(action string, t Tool) Tool {
	if t.toolBody == nil {
		return t
	}
	guarded := *t.toolBody
	guarded.action = action
	return Tool{&guarded}
}

// A Definition is the description of a tool in a request to a model. Two tools
// with equal definitions look the same to the model.
type Definition struct {
	Name        Name            `json:"name"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input"`  // a JSON Schema
	Output      json.RawMessage `json:"output"` // a JSON Schema
}

// Describe returns the definition of t under a name. Equal names give equal
// definitions. The caller must not change the schemas of the definition.
func (t Tool) Describe(name Name) Definition {
	return Definition{name, t.description, t.input.source, t.output.source}
}

// Action returns the permission action that WithAction set or, without one, name.
func (t Tool) Action(name Name) string {
	if t.action == "" {
		return string(name)
	}
	return t.action
}

// Idempotent reports Spec.Idempotent: whether a second run of the same call has no
// further effect.
func (t Tool) Idempotent() bool { return t.idempotent }

// AsksFirst reports Spec.AsksFirst.
func (t Tool) AsksFirst() bool { return t.asksFirst }

// Available returns Spec.Available. The caller must not change it.
func (t Tool) Available() Availability { return t.available }

// DescribesTurns reports whether the tool has Spec.DescribeTurn. The zero Tool has not.
func (t Tool) DescribesTurns() bool { return t.toolBody != nil && t.describeTurn != nil }

// DescribeTurn returns the description of t in one turn. Without Spec.DescribeTurn, or if
// that returns an empty text, it is the description of the definition. A panic of
// Spec.DescribeTurn is a *Defect. The caller checks DescribesTurns first: DescribeTurn of
// the zero Tool panics.
func (t Tool) DescribeTurn(f TurnFacts) (text string, err error) {
	defer recoverDefect(&err)
	if t.describeTurn != nil {
		text = validUTF8(t.describeTurn(f))
	}
	if text == "" {
		text = t.description
	}
	return text, nil
}

// Bind validates and decodes an input. A blank input counts as an empty
// object. A string such as "10" is accepted where the schema requires a number
// and no string. It returns a *ValidationError, which matches ErrInvalidInput,
// or a *Defect if the codec panics.
func (t Tool) Bind(input json.RawMessage) (Bound, error) {
	if t.toolBody == nil {
		return Bound{}, fmt.Errorf("bind: %w: it is zero", ErrBadTool)
	}
	if len(bytes.TrimSpace(input)) == 0 {
		input = json.RawMessage("{}")
	}
	return t.bind(input)
}

// A Bound is a tool with a valid input. Only Bind returns one.
type Bound struct {
	title string
	run   func(context.Context, Invocation) (Output, error)
}

// Title returns one line about the call for a person. It may be empty.
func (b Bound) Title() string { return b.title }

// Run executes the tool once on the calling goroutine, then encodes, validates
// and presents its output. It returns a *Failure; an ErrInterrupted if ctx
// ended and the tool returned an error; a *Defect for a panic; a
// *ValidationError, which matches ErrInvalidOutput; or the tool's own error.
func (b Bound) Run(ctx context.Context, inv Invocation) (Output, error) {
	if b.run == nil {
		return Output{}, fmt.Errorf("run: %w: no call is bound", ErrBadTool)
	}
	return b.run(ctx, inv)
}

// An Output is the result of a run: the encoded value and its presentation. Only Run
// creates one; WithContent copies one with another presentation.
type Output struct {
	structured json.RawMessage
	content    Contents
	lost       int64
	files      []FileAccess
}

// Lost returns how many bytes the tool dropped from its output.
func (o Output) Lost() int64 { return o.lost }

// Files returns the files that the call read or changed. The caller must not change the
// slice.
func (o Output) Files() []FileAccess { return o.files }

// Structured returns the encoded value. The caller must not change it.
func (o Output) Structured() json.RawMessage { return o.structured }

// Content returns the presentation. The caller must not change it.
func (o Output) Content() Contents { return o.content }

// WithContent returns a copy of o with content as its presentation.
func (o Output) WithContent(content Contents) Output {
	o.content = content
	return o
}

// An Invocation identifies the call for which a tool runs. The runner supplies
// all four identities.
type Invocation struct {
	// Session, Agent, Message and Call identify the call. Message is the reply
	// that asks for it; a CallID is unique within a Message only.
	Session SessionID
	Agent   AgentID
	Message MessageID
	Call    CallID
	// progress is nil if Reporting was not called.
	progress *progressSink
}

// A progressSink receives the progress of one call.
type progressSink struct{ report func(Progress) }

// A Progress is an intermediate report of a running call. Reports are not
// recorded, except that the settlement of an unsuccessful call has the last
// one.
type Progress struct {
	Structured json.RawMessage `json:"structured,omitempty"`
	Content    Contents        `json:"content,omitempty"`
}

// Reporting returns a copy of i whose Report calls the given function. The function
// runs on the goroutine of the tool, so it must not block.
func (i Invocation) Reporting(to func(Progress)) Invocation {
	i.progress = &progressSink{to}
	return i
}

// Report passes p to the function that Reporting set, if there is one. Each report
// replaces the one before.
func (i Invocation) Report(p Progress) {
	if i.progress != nil {
		i.progress.report(p)
	}
}

// A Call is a model's request to run a tool.
type Call struct {
	ID    CallID          `json:"call" codec:"intern"`
	Name  string          `json:"tool" codec:"intern"` // as the model wrote it
	Input json.RawMessage `json:"input,omitempty"`     // as the model wrote it: any JSON; nil if absent
}
