package domain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// A RecordedSpec describes a tool whose definition and results are on record, so that its
// calls can be replayed without side effects. [MakeRecorded] turns it into a Tool. Each
// function may be nil, except Execute.
type RecordedSpec struct {
	// Description, Input and Output are those of the recorded definition; Input and Output
	// are JSON Schemas.
	Description   string
	Input, Output json.RawMessage
	// Action is the recorded permission action. Empty: the name of the registration.
	Action string
	// Idempotent, AsksFirst and Available are the recorded promises and conditions.
	Idempotent, AsksFirst bool
	Available             Availability
	// DescribeTurn returns the description that the recorded turn has.
	DescribeTurn func(TurnFacts) string
	// Refuses returns the text with which the tool refused an input that fits the schema,
	// or answered one that does not. Empty: the input is accepted, or the text is derived
	// from the schema.
	Refuses func(input json.RawMessage) string
	// Title returns the recorded title of the call.
	Title func(input json.RawMessage) string
	// Execute returns the recorded end of the run.
	Execute func(context.Context, json.RawMessage, Invocation) (RecordedOutput, error)
}

// A RecordedOutput is the output of a run as it is on record.
type RecordedOutput struct {
	// Structured is the encoded output. Nil: it is not on record, as beside media.
	Structured json.RawMessage
	// Content is the presentation.
	Content Contents
	// Lost is the number of bytes that the tool dropped.
	Lost int64
	// Files are the files that the call read or changed.
	Files []FileAccess
}

// MakeRecorded returns the tool of a recorded definition. An input is checked against the
// schema like that of any tool. An output is not, because it was checked before it was
// recorded, and the record may lack a part of it. MakeRecorded returns ErrBadTool if the
// description or the executor is missing, and ErrBadSchema for an invalid schema.
func MakeRecorded(s RecordedSpec) (Tool, error) {
	if s.Execute == nil || s.Description == "" {
		return Tool{}, fmt.Errorf("make recorded tool: %w: it needs a description and an executor", ErrBadTool)
	}
	input, err := compile(s.Input)
	if err != nil {
		return Tool{}, fmt.Errorf("make recorded tool: input: %w", err)
	}
	output, err := compile(s.Output)
	if err != nil {
		return Tool{}, fmt.Errorf("make recorded tool: output: %w", err)
	}
	t := &toolBody{
		description: s.Description, action: s.Action, input: input, output: output, idempotent: s.Idempotent, asksFirst: s.AsksFirst,
		available: s.Available, describeTurn: s.DescribeTurn,
	}
	t.bind = func(raw json.RawMessage) (Bound, error) { return s.bind(input, raw) }
	return Tool{t}, nil
}

// bind checks an input as the tool on record did.
func (s RecordedSpec) bind(input schema, raw json.RawMessage) (b Bound, err error) {
	document, err := input.accept(raw, nil)
	text := ""
	if s.Refuses != nil {
		text = s.Refuses(bytes.Clone(raw))
	}
	if fault, ok := errors.AsType[*ValidationError](err); ok {
		fault.ownText = text
	} else if err == nil && text != "" {
		err = &ValidationError{Violations: []Violation{{Detail: text}}, kind: ErrInvalidInput, ownText: text}
	}
	if err != nil {
		return Bound{}, err
	}
	if s.Title != nil {
		b.title = titleLine(s.Title(document))
	}
	b.run = func(ctx context.Context, inv Invocation) (out Output, err error) {
		defer recoverDefect(&err)
		r, err := s.Execute(ctx, document, inv)
		if err != nil {
			return Output{}, classify(ctx, err)
		}
		return Output{structured: r.Structured, content: r.Content, lost: r.Lost, files: r.Files}, nil
	}
	return b, nil
}
