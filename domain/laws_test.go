package domain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// Run calls the executor of its tool once, with the invocation.
// Scenario 1.
// Scenario 10.
func TestToolIsOpaqueAndRunsItsExecutorOnceWithTheInvocation(t *testing.T) {
	t.Parallel()
	type seen struct {
		in  question
		inv domain.Invocation
	}
	var runs []seen
	tool := makeTool(t, domain.Spec[question, answer]{Execute: func(_ context.Context, q question, inv domain.Invocation) (answer, error) {
		runs = append(runs, seen{q, inv})
		return answer{"found"}, nil
	}})
	for f := range reflect.TypeFor[domain.Tool]().Fields() {
		if f.IsExported() {
			t.Errorf("Tool has the field %s that others can see", f.Name)
		}
	}
	inv := invocation()
	bound := bind(t, tool, `{"query":"once"}`)
	if len(runs) != 0 {
		t.Fatalf("Bind ran the executor: %v", runs)
	}
	output, err := bound.Run(t.Context(), inv)
	if err != nil || string(output.Structured()) != `{"text":"found"}` {
		t.Errorf("Run = %s, %v", output.Structured(), err)
	}
	if want := []seen{{question{Query: "once"}, inv}}; !reflect.DeepEqual(runs, want) {
		t.Errorf("executor saw %v, want %v", runs, want)
	}
	if _, err := bound.Run(t.Context(), inv); err != nil || len(runs) != 2 {
		t.Errorf("a second Run = %v after %d runs, want 2", err, len(runs))
	}
}

// The exported fields of an Invocation are its four identities.
func TestInvocationHasFourIdentitiesAndNothingElseToSee(t *testing.T) {
	t.Parallel()
	var names []string
	for f := range reflect.TypeFor[domain.Invocation]().Fields() {
		if f.IsExported() {
			names = append(names, f.Name)
		}
	}
	if got, want := strings.Join(names, " "), "Session Agent Message Call"; got != want {
		t.Errorf("an Invocation has %s, want %s", got, want)
	}
}

// Make and WithAction do not change their arguments.
// Scenario 14.
func TestMakingAndGuardingLeaveTheirArgumentsAlone(t *testing.T) {
	t.Parallel()
	runs := 0
	spec := domain.Spec[question, answer]{Description: "search", Execute: func(context.Context, question, domain.Invocation) (answer, error) {
		runs++
		return answer{}, nil
	}}
	first := makeTool(t, spec)
	for range 2 {
		makeTool(t, spec)
	}
	guarded := domain.WithAction("c", domain.WithAction("b", domain.WithAction("a", first)))
	if spec.Input != nil || spec.Output != nil {
		t.Errorf("Make filled in the spec of its caller: %v", spec)
	}
	if got := first.Action("search"); got != "search" {
		t.Errorf("action of the tool that was guarded = %q, want its name", got)
	}
	if got := guarded.Action("search"); got != "c" {
		t.Errorf("action of the guarded tool = %q, want that of the last Guard", got)
	}
	if run(t, guarded, `{"query":"q"}`); runs != 1 {
		t.Errorf("a tool made three times and guarded three times ran %d times, want 1", runs)
	}
	if got, want := guarded.Describe("x"), first.Describe("x"); !reflect.DeepEqual(got, want) {
		t.Errorf("Guard changed the definition: %v, want %v", got, want)
	}
}

// Describe returns the same definition each time.
// Scenario 8.
func TestDefinitionIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	tool := makeTool(t, domain.Spec[question, answer]{Description: "search", Execute: reply})
	first, err := tool.Describe("search").Fingerprint("search")
	if err != nil {
		t.Fatal(err)
	}
	second, err := tool.Describe("search").Fingerprint("search")
	if err != nil || first != second || first.IsZero() {
		t.Errorf("fingerprints = %s and %s, %v", first, second, err)
	}
	anew, err := makeTool(t, domain.Spec[question, answer]{Description: "search", Execute: reply}).Describe("other").Fingerprint("search")
	if err != nil || anew != first {
		t.Errorf("fingerprint of the same definition made anew under another name = %s, %v, want %s", anew, err, first)
	}
}

// A tool is idempotent only if its Spec says so.
func TestOnlyTheSpecSaysIdempotent(t *testing.T) {
	t.Parallel()
	for _, want := range []bool{true, false} {
		tool := domain.WithAction("a", makeTool(t, domain.Spec[question, answer]{Execute: reply, Idempotent: want}))
		if got := tool.Idempotent(); got != want {
			t.Errorf("Idempotent() = %t, want %t", got, want)
		}
	}
}

// Make returns ErrBadTool for a Spec without a description or an executor.
func TestIncompleteSpecsAreRefused(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]domain.Spec[question, answer]{
		"no description": {Execute: reply},
		"no executor":    {Description: "search"},
	} {
		if tool, err := domain.Make(spec); !errors.Is(err, domain.ErrBadTool) || !tool.IsZero() {
			t.Errorf("%s: Make = %v, %v, want ErrBadTool", name, tool, err)
		}
	}
}

// The zero Tool and the zero Bound return ErrBadTool and run no executor.
func TestZeroToolAndZeroBoundRunNothing(t *testing.T) {
	t.Parallel()
	var zero domain.Tool
	if _, err := zero.Bind(nil); !errors.Is(err, domain.ErrBadTool) {
		t.Errorf("Bind of the zero Tool = %v, want ErrBadTool", err)
	}
	if _, err := (domain.Bound{}).Run(t.Context(), invocation()); !errors.Is(err, domain.ErrBadTool) {
		t.Errorf("Run of the zero Bound = %v, want ErrBadTool", err)
	}
	if !domain.WithAction("a", zero).IsZero() {
		t.Error("guarding the zero Tool gives a Tool")
	}
}

// Bind returns ErrInvalidInput for an input that does not match the schema, and
// no executor runs.
func TestInputThatDoesNotFitRunsNothing(t *testing.T) {
	t.Parallel()
	runs := 0
	tool := makeTool(t, domain.Spec[question, answer]{Execute: func(context.Context, question, domain.Invocation) (answer, error) {
		runs++
		return answer{}, nil
	}})
	for _, input := range []string{`{`, `[]`, `null`, `"q"`, `{}`, ``, `{"query":1}`, `{"query":"q","more":1}`, `{"query":"q"}{}`, `{"Query":"q"}`, `{"query":"q","limit":99999999999999999999}`, `{"query":"q","limit":1e999}`, `{"query":"q","limit":1e999999999}`} {
		bound, err := tool.Bind(json.RawMessage(input))
		if !errors.Is(err, domain.ErrInvalidInput) || errors.Is(err, domain.ErrInvalidOutput) {
			t.Errorf("Bind(%s) = %v, want ErrInvalidInput", input, err)
		}
		if m, ok := errors.AsType[*domain.ValidationError](err); !ok || len(m.Violations) == 0 {
			t.Errorf("Bind(%s) = %#v, want a Mismatch with a fault", input, err)
		}
		if _, err := bound.Run(t.Context(), invocation()); err == nil || runs != 0 {
			t.Fatalf("Run after Bind(%s) = %v, after %d runs: want an error and none", input, err, runs)
		}
	}
}

// A blank input is an empty object.
func TestNoInputIsAnEmptyObject(t *testing.T) {
	t.Parallel()
	tool := rawTool(t, `{"type":"object"}`, `{}`)
	for _, input := range []string{"", " \n"} {
		if got := string(run(t, tool, input).Structured()); got != "{}" {
			t.Errorf("input %q reached the executor as %s, want {}", input, got)
		}
	}
}

// The executor receives the decoded input, and the presentation the encoded
// output.
// Scenario 4.
func TestExecutorReceivesDecodedInputAndPresentationEncodedOutput(t *testing.T) {
	t.Parallel()
	yesNo := codec[string]{
		schema: `{"type":"boolean"}`,
		decode: func(data json.RawMessage) (string, error) {
			return map[string]string{"true": "yes", "false": "no"}[string(data)], nil
		},
		encode: func(value string) (json.RawMessage, error) {
			return json.RawMessage(map[string]string{"yes": "true", "no": "false"}[value]), nil
		},
	}
	var executed, presented []string
	tool := makeTool(t, domain.Spec[string, string]{
		Input: yesNo, Output: yesNo,
		Execute: func(_ context.Context, in string, _ domain.Invocation) (string, error) {
			executed = append(executed, in)
			return "no", nil
		},
		Present: func(in string, out domain.Encoded[string]) []domain.Content {
			value, err := out.Value()
			presented = append(presented, fmt.Sprintf("%s %s %s %v", in, out.JSON(), value, err))
			return nil
		},
	})
	if got := string(run(t, tool, `true`).Structured()); got != "false" {
		t.Errorf("structured = %s, want the encoded form false", got)
	}
	if _, err := tool.Bind(json.RawMessage(`"yes"`)); !errors.Is(err, domain.ErrInvalidInput) {
		t.Errorf("Bind of the decoded form = %v, want ErrInvalidInput", err)
	}
	if want := []string{"yes"}; !reflect.DeepEqual(executed, want) {
		t.Errorf("executor saw %q, want %q", executed, want)
	}
	if want := []string{"yes false no <nil>"}; !reflect.DeepEqual(presented, want) {
		t.Errorf("presentation saw %q, want %q", presented, want)
	}
}

// A codec may add default values to an input.
func TestCodecFillsInDefaults(t *testing.T) {
	t.Parallel()
	limited := codec[question]{
		schema: `{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","default":20}}}`,
		decode: func(data json.RawMessage) (question, error) {
			q := question{Limit: 20}
			return q, json.Unmarshal(data, &q)
		},
	}
	var got question
	tool := makeTool(t, domain.Spec[question, answer]{Input: limited, Execute: func(_ context.Context, q question, _ domain.Invocation) (answer, error) {
		got = q
		return answer{}, nil
	}})
	if run(t, tool, `{"query":"q"}`); got.Limit != 20 {
		t.Errorf("executor saw %+v, want the default limit 20", got)
	}
}

// Run returns ErrInvalidOutput for an output that the schema or the codec
// rejects.
// Scenario 5.
func TestOutputThatDoesNotFitIsNoSuccess(t *testing.T) {
	t.Parallel()
	encoders := map[string]func(string) (json.RawMessage, error){
		"codec refuses":    func(string) (json.RawMessage, error) { return nil, errors.New("neither yes nor no") },
		"schema refuses":   func(string) (json.RawMessage, error) { return json.RawMessage(`"maybe"`), nil },
		"not JSON":         func(string) (json.RawMessage, error) { return json.RawMessage(`maybe`), nil },
		"two documents":    func(string) (json.RawMessage, error) { return json.RawMessage(`true true`), nil },
		"nothing":          func(string) (json.RawMessage, error) { return nil, nil },
		"nothing but room": func(string) (json.RawMessage, error) { return json.RawMessage(" \n"), nil },
	}
	for name, encode := range encoders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ran, presented := 0, 0
			tool := makeTool(t, domain.Spec[question, string]{
				Output:  codec[string]{schema: `{"type":"boolean"}`, encode: encode},
				Execute: func(context.Context, question, domain.Invocation) (string, error) { ran++; return "", nil },
				Present: func(question, domain.Encoded[string]) []domain.Content { presented++; return nil },
			})
			output, err := bind(t, tool, `{"query":"q"}`).Run(t.Context(), invocation())
			if !errors.Is(err, domain.ErrInvalidOutput) || errors.Is(err, domain.ErrInvalidInput) {
				t.Errorf("Run = %v, want ErrInvalidOutput", err)
			}
			if m, ok := errors.AsType[*domain.ValidationError](err); !ok || len(m.Violations) == 0 {
				t.Errorf("Run = %#v, want a Mismatch with a fault", err)
			}
			if ran != 1 || presented != 0 || output.Structured() != nil || output.Content() != nil {
				t.Errorf("ran %d times, presented %d times: %s", ran, presented, output.Structured())
			}
		})
	}
}

// A panic of an executor, a codec or a presentation becomes a Defect.
// Scenario 7.
func TestPanicIsADefectAndNeverLeaves(t *testing.T) {
	t.Parallel()
	burst := errors.New("burst")
	fine := codec[question]{
		schema: `{}`,
		decode: func(json.RawMessage) (question, error) { return question{}, nil },
		encode: func(question) (json.RawMessage, error) { return json.RawMessage(`{}`), nil },
	}
	decoding, encoding := fine, fine
	decoding.decode = func(json.RawMessage) (question, error) { panic(burst) }
	encoding.encode = func(question) (json.RawMessage, error) { panic(burst) }
	echo := func(_ context.Context, q question, _ domain.Invocation) (question, error) { return q, nil }
	specs := map[string]domain.Spec[question, question]{
		"executor": {Input: fine, Output: fine, Execute: func(context.Context, question, domain.Invocation) (question, error) { panic(burst) }},
		"decoding": {Input: decoding, Output: fine, Execute: echo},
		"encoding": {Input: fine, Output: encoding, Execute: echo},
		"presentation": {Input: fine, Output: fine, Execute: echo, Present: func(question, domain.Encoded[question]) []domain.Content {
			panic(burst)
		}},
		"value": {Input: fine, Output: decoding, Execute: echo, Present: func(_ question, out domain.Encoded[question]) []domain.Content {
			_, _ = out.Value()
			return nil
		}},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bound, err := makeTool(t, spec).Bind(json.RawMessage(`{}`))
			if err == nil {
				_, err = bound.Run(t.Context(), invocation())
			}
			d, ok := errors.AsType[*domain.Defect](err)
			if !ok || d.Value != burst || !errors.Is(err, burst) || err.Error() != "burst" {
				t.Fatalf("got %#v, want a Defect of the panic", err)
			}
			if !strings.Contains(string(d.Stack), "laws_test.go") {
				t.Errorf("the stack does not lead to the panic:\n%s", d.Stack)
			}
		})
	}
}

// A panic of a codec's Schema becomes a Defect of Make.
func TestPanicOfASchemaIsADefectOfMake(t *testing.T) {
	t.Parallel()
	var none *codec[question] // its Schema dereferences nil
	for name, spec := range map[string]domain.Spec[question, question]{
		"input":  {Description: "d", Input: none, Execute: func(context.Context, question, domain.Invocation) (q question, err error) { return }},
		"output": {Description: "d", Output: none, Execute: func(context.Context, question, domain.Invocation) (q question, err error) { return }},
	} {
		_, err := domain.Make(spec)
		if _, ok := errors.AsType[*domain.Defect](err); !ok {
			t.Errorf("%s: Make = %v, want a Defect", name, err)
		}
	}
}

// A panic with a value that is no error becomes a Defect too.
func TestPanicWithoutAnErrorIsADefectToo(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"burst", 7, nil} {
		tool := makeTool(t, domain.Spec[question, answer]{Execute: func(context.Context, question, domain.Invocation) (answer, error) { panic(value) }})
		_, err := bind(t, tool, `{"query":"q"}`).Run(t.Context(), invocation())
		if d, ok := errors.AsType[*domain.Defect](err); !ok || d.Error() == "" || len(d.Stack) == 0 {
			t.Errorf("panic(%v) is %#v, want a Defect that says so", value, err)
		}
	}
}

// ending runs an executor that cancels its context with a reason, unless the
// reason is nil, and then returns err. It returns the error of the run.
func ending(t *testing.T, reason, err error) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	tool := makeTool(t, domain.Spec[question, answer]{Execute: func(context.Context, question, domain.Invocation) (answer, error) {
		if reason != nil {
			cancel(reason)
		}
		return answer{"done"}, err
	}})
	output, err := bind(t, tool, `{"query":"q"}`).Run(ctx, invocation())
	if err == nil && string(output.Structured()) != `{"text":"done"}` {
		t.Errorf("a success gave %s", output.Structured())
	}
	return err
}

// An interruption replaces an error that the tool returns after it.
func TestInterruptionReplacesAToolError(t *testing.T) {
	t.Parallel()
	own := errors.New("connection reset")
	for _, returned := range []error{own, context.Canceled, domain.Fail("could not finish")} {
		for _, reason := range []error{domain.ByUser, domain.ByShutdown, domain.Superseded, domain.ByDeadline, context.DeadlineExceeded} {
			err := ending(t, reason, returned)
			if !errors.Is(err, domain.ErrInterrupted) || !errors.Is(err, reason) || errors.Is(err, returned) {
				t.Errorf("interrupted (%v), the tool returned %v: got %v, want ErrInterrupted", reason, returned, err)
			}
			if _, ok := errors.AsType[*domain.Failure](err); ok {
				t.Errorf("interrupted (%v): got the Failure %v", reason, err)
			}
		}
	}
}

// An interruption replaces neither a success nor a permission decision.
func TestSuccessAndPermissionDecisionsSurviveAnInterruption(t *testing.T) {
	t.Parallel()
	denied := &domain.Denied{Action: "bash", Resource: "rm"}
	declined := &domain.Declined{Feedback: "use a branch"}
	for _, returned := range []error{nil, denied, declined, fmt.Errorf("ask: %w", denied)} {
		if err := ending(t, domain.ByUser, returned); err != returned {
			t.Errorf("interrupted, the tool returned %v: got %v, want that", returned, err)
		}
	}
}

// Without an interruption, Run returns the error of the tool.
func TestErrorWithoutAnInterruptionIsTheToolsOwn(t *testing.T) {
	t.Parallel()
	for _, returned := range []error{errors.New("connection reset"), domain.Fail("no such city: %s", "X"), context.Canceled} {
		if err := ending(t, nil, returned); err != returned {
			t.Errorf("the tool returned %v: got %v, want that", returned, err)
		}
	}
}

// Run calls the executor also if the context has ended before.
func TestAnInterruptionBeforeTheRunIsTheExecutorsToSee(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(domain.Superseded)
	tool := makeTool(t, domain.Spec[question, answer]{Execute: func(ctx context.Context, _ question, _ domain.Invocation) (answer, error) {
		return answer{}, ctx.Err()
	}})
	_, err := bind(t, tool, `{"query":"q"}`).Run(ctx, invocation())
	if !errors.Is(err, domain.ErrInterrupted) || domain.InterruptionOf(err) != domain.Superseded {
		t.Errorf("Run = %v, want ErrInterrupted by superseded", err)
	}
}

// Progress reaches the receiver of its invocation only.
func TestProgressReachesOnlyItsReceiver(t *testing.T) {
	t.Parallel()
	var heard []domain.Progress
	quiet := invocation()
	loud := quiet.Reporting(func(p domain.Progress) { heard = append(heard, p) })
	tool := makeTool(t, domain.Spec[question, answer]{Execute: func(_ context.Context, _ question, inv domain.Invocation) (answer, error) {
		inv.Report(domain.Progress{Structured: json.RawMessage(`1`)})
		inv.Report(domain.Progress{Structured: json.RawMessage(`2`)})
		return answer{}, nil
	}})
	bound := bind(t, tool, `{"query":"q"}`)
	if _, err := bound.Run(t.Context(), quiet); err != nil || len(heard) != 0 {
		t.Fatalf("Run = %v; heard %v from an invocation that nobody listens to", err, heard)
	}
	if _, err := bound.Run(t.Context(), loud); err != nil || len(heard) != 2 || string(heard[1].Structured) != "2" {
		t.Errorf("Run = %v; heard %v, want 1 and 2", err, heard)
	}
}
