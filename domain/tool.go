package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// A Tool is something a model can call. It is opaque: it can be described, and
// bound to an input, and that is all. Tools have no name of their own. A Tool
// is safe for concurrent use if its executor is. The zero Tool is not valid.
type Tool struct{ *toolBody }

type toolBody struct {
	description string
	action      string // empty: the name it is described by
	input       schema
	output      schema
	idempotent  bool
	bind        func(json.RawMessage) (func(context.Context, Invocation) (Output, error), error)
}

// A Spec says what a tool is; [Make] turns it into a Tool that can do nothing
// but call Execute.
type Spec[In, Out any] struct {
	Description string
	Input       Codec[In]  // zero: JSON[In]()
	Output      Codec[Out] // zero: JSON[Out]()
	// Execute does the work. Its context ends when the call is interrupted. It
	// returns Fail for an ending the model should read, a *Denied or *Declined
	// as it got it, and any other error for one the model should not read.
	Execute func(context.Context, In, Invocation) (Out, error)
	// Present renders a settled call for the model. It is pure and total and
	// sees only what the ledger keeps. Nil: an encoded string is shown as text,
	// anything else as it is.
	Present func(In, Encoded[Out]) []Content
	// Idempotent says that running the same call twice does no more than once.
	// It is on record with each start, for whoever decides about a lost call.
	Idempotent bool
	// Lost returns how many bytes the executor dropped of an output, because of
	// a limit of its own, before it returned the rest. The settlement says so
	// wherever it says where the rest is. Nil: none.
	Lost func(Out) int64
}

// An Encoded is an output as the ledger keeps it: JSON without insignificant
// space.
type Encoded[Out any] struct {
	json  json.RawMessage
	codec Codec[Out]
}

// JSON returns the document. The caller must not change it.
func (e Encoded[Out]) JSON() json.RawMessage { return e.json }

// Value returns what the document says, decoded anew.
func (e Encoded[Out]) Value() (Out, error) { return e.codec.Decode(e.json) }

// Make returns the tool of a spec. It returns ErrBadTool if there is no
// description or nothing to execute, and ErrBadSchema if a codec's schema is
// not a JSON Schema that can be checked without another document. A codec that
// panics when it is asked for its schema is a *Defect.
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
	t := &toolBody{description: s.Description, input: input, output: output, idempotent: s.Idempotent}
	t.bind = func(raw json.RawMessage) (func(context.Context, Invocation) (Output, error), error) {
		in, err := decode(s.Input, input, raw)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, inv Invocation) (Output, error) { return run(ctx, s, output, in, inv) }, nil
	}
	return Tool{t}, nil
}

func schemaFor[T any](c Codec[T]) (s schema, err error) {
	defer recoverDefect(&err)
	if broken, ok := c.(interface{ schemaError() error }); ok && broken.schemaError() != nil {
		return schema{}, broken.schemaError()
	}
	return compile(c.Schema())
}

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
	// The ledger keeps no insignificant space: what is presented is what is kept.
	var encoded bytes.Buffer
	encoded.Grow(len(document))
	if err := json.Compact(&encoded, document); err != nil {
		return Output{}, invalid(ErrInvalidOutput, err)
	}
	out = Output{structured: encoded.Bytes(), content: present(s, in, encoded.Bytes(), decoded)}
	if s.Lost != nil {
		out.lost = max(s.Lost(value), 0)
	}
	return out, nil
}

// classify lets an interruption outrank an error that came of it. A decision
// about permission did not come of it.
func classify(ctx context.Context, err error) error {
	if errors.Is(err, ErrDenied) || errors.Is(err, ErrDeclined) || ctx.Err() == nil {
		return err
	}
	return interrupted(ctx)
}

// present presents an encoded output, which says what it decodes to.
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

// WithAction returns a tool that is t but for its permission action. Guarding the
// zero Tool gives the zero Tool.
func WithAction(action string, t Tool) Tool {
	if t.toolBody == nil {
		return t
	}
	guarded := *t.toolBody
	guarded.action = action
	return Tool{&guarded}
}

// A Definition is what a model is told of a tool.
type Definition struct {
	Name        Name            `json:"name"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input"`  // a JSON Schema
	Output      json.RawMessage `json:"output"` // a JSON Schema
}

// Describe returns the definition of t under a name: the same each time. The
// caller must not change its schemas.
func (t Tool) Describe(name Name) Definition {
	return Definition{name, t.description, t.input.source, t.output.source}
}

// Action returns the permission action of t under a name: the one that WithAction
// gave it, or the name.
func (t Tool) Action(name Name) string {
	if t.action == "" {
		return string(name)
	}
	return t.action
}

// Idempotent reports whether running the same call twice does no more than
// once.
func (t Tool) Idempotent() bool { return t.idempotent }

// Bind checks an input against the tool's schema and decodes it. No input at
// all counts as an empty object. A number may be written as a string, as in
// "limit": "10", where the schema allowsType a number and no string. It returns a *ValidationError, which is an
// ErrInvalidInput, or a *Defect if the codec panics: then there is nothing to
// run.
func (t Tool) Bind(input json.RawMessage) (Bound, error) {
	if t.toolBody == nil {
		return Bound{}, fmt.Errorf("bind: %w: it is zero", ErrBadTool)
	}
	if len(bytes.TrimSpace(input)) == 0 {
		input = json.RawMessage("{}")
	}
	run, err := t.bind(input)
	return Bound{run}, err
}

// A Bound is a tool with an input that fits. It can be had only from Bind.
type Bound struct {
	run func(context.Context, Invocation) (Output, error)
}

// Run executes the tool once on the calling goroutine, encodes what it returns
// and presents that. It returns a *Failure; an ErrInterrupted if the context
// ended and the tool returned an error; a *Defect if anything panicked; a
// *ValidationError, which is an ErrInvalidOutput; or the tool's own error.
func (b Bound) Run(ctx context.Context, inv Invocation) (Output, error) {
	if b.run == nil {
		return Output{}, fmt.Errorf("run: %w: nothing is bound", ErrBadTool)
	}
	return b.run(ctx, inv)
}

// An Output is what a tool returned: its encoded value, and how that is
// presented to the model. It can be had only from Run.
type Output struct {
	structured json.RawMessage
	content    Contents
	lost       int64
}

// Lost returns how many bytes the tool dropped before it returned the rest.
func (o Output) Lost() int64 { return o.lost }

// Structured returns the encoded value. The caller must not change it.
func (o Output) Structured() json.RawMessage { return o.structured }

// Content returns the presentation. The caller must not change it.
func (o Output) Content() Contents { return o.content }

// WithContent returns o with another presentation.
func (o Output) WithContent(content Contents) Output { return Output{o.structured, content, o.lost} }

// An Invocation says on whose behalf a tool runs: exactly these four, supplied
// by the runner, never inferred.
type Invocation struct {
	Session  SessionID
	Agent    AgentID
	Message  MessageID // the reply that asks for the call
	Call     CallID
	progress *progressSink
}

type progressSink struct{ report func(Progress) }

// A Progress is how far a running call is. It is live only: it never enters
// the log, but the last one is kept with a failure.
type Progress struct {
	Structured json.RawMessage `json:"structured,omitempty"`
	Content    Contents        `json:"content,omitempty"`
}

// Reporting returns the invocation with a receiver for its progress, which is
// called on the goroutine that reports and must not block.
func (i Invocation) Reporting(to func(Progress)) Invocation {
	i.progress = &progressSink{to}
	return i
}

// Report says how far the call is, in place of what was said last.
func (i Invocation) Report(p Progress) {
	if i.progress != nil {
		i.progress.report(p)
	}
}

// A Call is what a model asks.
type Call struct {
	ID    CallID          `json:"call"`
	Name  string          `json:"tool"`            // as the model wrote it
	Input json.RawMessage `json:"input,omitempty"` // as the model wrote it: JSON that need not fit; nil where there was none
}
