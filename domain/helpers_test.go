package domain_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// newMint returns a mint whose IDs are the same in each run.
func newMint() *domain.Mint {
	return domain.NewMint(stoppedClock, rand.NewChaCha8([32]byte{1}))
}

func stoppedClock() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func invocation() domain.Invocation {
	m := newMint()
	return domain.Invocation{Session: m.Session(), Agent: "reviewer", Message: m.Message(), Call: "call-opaque"}
}

type question struct {
	Query string `json:"query"`
	Limit int    `json:"limit,omitempty"`
}

type answer struct {
	Text string `json:"text"`
}

// reply is an executor that returns an answer to the query.
func reply(_ context.Context, q question, _ domain.Invocation) (answer, error) {
	return answer{q.Query}, nil
}

func makeTool[In, Out any](t testing.TB, s domain.Spec[In, Out]) domain.Tool {
	t.Helper()
	if s.Description == "" {
		s.Description = "for a test"
	}
	tool, err := domain.Make(s)
	if err != nil {
		t.Fatalf("Make: %v", err)
	}
	return tool
}

func bind(t testing.TB, tool domain.Tool, input string) domain.Bound {
	t.Helper()
	bound, err := tool.Bind(json.RawMessage(input))
	if err != nil {
		t.Fatalf("Bind(%s): %v", input, err)
	}
	return bound
}

// run binds and runs a tool that must succeed.
func run(t testing.TB, tool domain.Tool, input string) domain.Output {
	t.Helper()
	output, err := bind(t, tool, input).Run(t.Context(), invocation())
	if err != nil {
		t.Fatalf("Run after Bind(%s): %v", input, err)
	}
	return output
}

// A codec is a Codec made of functions.
type codec[T any] struct {
	schema string
	decode func(json.RawMessage) (T, error)
	encode func(T) (json.RawMessage, error)
}

func (c codec[T]) Schema() json.RawMessage                   { return json.RawMessage(c.schema) }
func (c codec[T]) Decode(data json.RawMessage) (T, error)    { return c.decode(data) }
func (c codec[T]) Encode(value T) (json.RawMessage, error)   { return c.encode(value) }
func verbatim(data json.RawMessage) (json.RawMessage, error) { return data, nil }
func raw(schema string) domain.Codec[json.RawMessage] {
	return codec[json.RawMessage]{schema, verbatim, verbatim}
}
func rawTool(t testing.TB, in, out string) domain.Tool {
	t.Helper()
	return makeTool(t, domain.Spec[json.RawMessage, json.RawMessage]{
		Input: raw(in), Output: raw(out),
		Execute: func(_ context.Context, in json.RawMessage, _ domain.Invocation) (json.RawMessage, error) {
			return in, nil
		},
	})
}
