package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// A call runs the executor of its tool once, with its own invocation.
// Scenario 1.
// Scenario 10.
func TestToolCanDoNothingButRunItsOneExecutorAsItsInvocation(t *testing.T) {
	t.Parallel()
	type query struct {
		Query string `json:"query"`
	}
	var saw []domain.Invocation
	var asked []string
	tool := does(t, func(_ context.Context, in query, inv domain.Invocation) (string, error) {
		saw, asked = append(saw, inv), append(asked, in.Query)
		return "done", nil
	})
	for _, f := range reflect.VisibleFields(reflect.TypeOf(tool)) {
		if f.IsExported() {
			t.Errorf("a tool shows its field %s, want none", f.Name)
		}
	}
	w := newWorld(t)
	m := w.offered(registry.Tools{"opaque": tool})
	w.want(w.settle(m, "call-opaque", "opaque", `{"query":"once"}`), domain.Succeeded, "done")
	if len(saw) != 1 || asked[0] != "once" {
		t.Fatalf("the executor ran with %q, want once", asked)
	}
	got, want := saw[0], domain.Invocation{Session: w.as.Session, Agent: w.as.Agent, Message: w.as.Message, Call: "call-opaque"}
	if got.Session != want.Session || got.Agent != want.Agent || got.Message != want.Message || got.Call != want.Call {
		t.Errorf("the executor saw %+v, want %+v", got, want)
	}
}

// A presentation with media replaces the structured value in the settlement.
// Scenario 2.
func TestContentWithMediaIsReadAsContentAndStandsForTheValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"picture": made(t, domain.Spec[empty, string]{
		Execute: func(context.Context, empty, domain.Invocation) (string, error) { return "v", nil },
		Present: func(empty, domain.Encoded[string]) []domain.Content {
			return []domain.Content{domain.Text("look"), domain.Media{MIME: "image/png", Name: "a.png", Data: []byte("hello")}}
		},
	})})
	got := w.settle(m, "c", "picture", `{}`)
	if got.ToolResult().Type() != "content" || got.Structured != nil {
		t.Errorf("settlement reads %s with the value %s, want content and no value", got.ToolResult().Type(), got.Structured)
	}
	wire, err := json.Marshal(got.Content)
	want := `[{"type":"text","text":"look"},{"type":"file","uri":"data:image/png;base64,aGVsbG8=","mime":"image/png","name":"a.png"}]`
	if err != nil || string(wire) != want {
		t.Errorf("content = %s, %v, want %s", wire, err, want)
	}
}

// A yes is a boolean in JSON, and "yes" or "no" in the tool.
type yes struct{}

func (yes) Schema() json.RawMessage { return json.RawMessage(`{"type":"boolean"}`) }

func (yes) Decode(data json.RawMessage) (string, error) {
	if string(data) == "true" {
		return "yes", nil
	}
	return "no", nil
}

func (yes) Encode(v string) (json.RawMessage, error) {
	if v != "yes" && v != "no" {
		return nil, fmt.Errorf("%q is neither yes nor no", v)
	}
	return json.RawMessage(fmt.Sprint(v == "yes")), nil
}

// An input in the decoded form of the codec is invalid, and the tool does not run.
// Scenario 4.
func TestInputInItsDecodedFormIsInvalidAndRunsNothing(t *testing.T) {
	t.Parallel()
	w, runs := newWorld(t), 0
	m := w.offered(registry.Tools{"agree": made(t, domain.Spec[string, string]{
		Input: yes{}, Execute: func(_ context.Context, in string, _ domain.Invocation) (string, error) { runs++; return in, nil },
	})})
	w.want(w.settle(m, "1", "agree", `true`), domain.Succeeded, "yes")
	got := w.settle(m, "2", "agree", `"yes"`)
	if got.Outcome != domain.InvalidInput || !strings.Contains(got.Text, "Invalid tool input") || runs != 1 {
		t.Errorf("the decoded form settles as %v %q after %d runs, want invalid input after 1", got.Outcome, got.Text, runs)
	}
}

// An output that the codec rejects ends the call as InvalidOutput.
// Scenario 5.
func TestOutputThatTheCodecRejectsIsNoSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"agree": made(t, domain.Spec[empty, string]{
		Output: yes{}, Execute: func(context.Context, empty, domain.Invocation) (string, error) { return "perhaps", nil },
	})})
	got := w.settle(m, "c", "agree", `{}`)
	if got.Outcome != domain.InvalidOutput || !got.Began || !strings.Contains(got.Text, "invalid value for its output schema") {
		t.Errorf("settlement = %v %q, want an invalid output that began", got.Outcome, got.Text)
	}
}

// An output that cannot be encoded is no success with any presentation. Scenario 59.
func TestOutputThatCannotBeEncodedIsNoSuccessWhateverItsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"nan": made(t, domain.Spec[empty, float64]{
		Execute: func(context.Context, empty, domain.Invocation) (float64, error) { return math.NaN(), nil },
		Present: func(empty, domain.Encoded[float64]) []domain.Content { return []domain.Content{domain.Text("fine")} },
	})})
	if got := w.settle(m, "c", "nan", `{}`); got.Outcome != domain.InvalidOutput || got.Content != nil {
		t.Errorf("settlement = %v with %v, want an invalid output and no content", got.Outcome, got.Content)
	}
}

// A panic of a tool ends the call as a defect. The operator reads its stack, and the
// model does not.
// Scenario 7.
func TestDefectIsASettlementOfItsOwnAndKeepsTheStackForTheOperator(t *testing.T) {
	t.Parallel()
	for name, execute := range map[string]func(context.Context, empty, domain.Invocation) (string, error){
		"panic":  func(context.Context, empty, domain.Invocation) (string, error) { panic("boom") },
		"error":  func(context.Context, empty, domain.Invocation) (string, error) { return "", errors.New("boom") },
		"goexit": func(context.Context, empty, domain.Invocation) (string, error) { runtime.Goexit(); return "", nil },
		"failure": func(context.Context, empty, domain.Invocation) (string, error) {
			return "", domain.Fail("no such file")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := w.offered(registry.Tools{"breaks": does(t, execute)})
			got := w.settle(m, "c", "breaks", `{}`)
			switch name {
			case "failure":
				w.want(got, domain.Failed, "no such file")
			case "goexit":
				w.want(got, domain.Defective, "Tool execution failed: the tool ended its goroutine")
			default:
				w.want(got, domain.Defective, "Tool execution failed: boom")
			}
			if strings.Contains(got.Detail, "goroutine ") != (name == "panic") {
				t.Errorf("detail = %q, want a stack only of a panic", got.Detail)
			}
		})
	}
}

// A panic is a defect with any panic value, also an error of another outcome.
func TestPanicIsADefectWhateverItWasGiven(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]error{
		"failure": domain.Fail("boom"), "denied": &domain.Denied{Action: "a", Resource: "r"}, "interrupted": domain.ErrInterrupted,
	} {
		w := newWorld(t)
		m := w.offered(registry.Tools{"panics": does(t, func(context.Context, empty, domain.Invocation) (string, error) { panic(given) })})
		if got := w.settle(m, "c", "panics", `{}`); got.Outcome != domain.Defective {
			t.Errorf("a panic with a %s ends %s, want a defect", name, got.Outcome)
		}
	}
}

// Two turns with the same registrations have equal definitions, in the same order.
// Scenario 8.
func TestDefinitionsOfTwoTurnsAreTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.register(l, registry.Tools{"a": answers(t, "a").Tool, "b": answers(t, "b").Tool})
	r := w.registry(registry.Config{}, l)
	first, second := w.materialize(r), w.materialize(r)
	if diff := cmp.Diff(first.Definitions(), second.Definitions()); diff != "" {
		t.Errorf("definitions of two turns (-first +second):\n%s", diff)
	}
	if !slices.Equal(first.Offer().Tools, second.Offer().Tools) || first.Offer().Tools[0].Fingerprint.IsZero() {
		t.Errorf("offers of two turns = %v and %v, want the same, with fingerprints", first.Offer(), second.Offer())
	}
}

// A presentation of one text is read as text, and the settlement has the structured
// value too.
// Scenario 11.
func TestPresentationIsReadAsTextAndTheValueIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"todo": made(t, domain.Spec[empty, []int]{
		Execute: func(context.Context, empty, domain.Invocation) ([]int, error) { return []int{1, 2}, nil },
		Present: func(_ empty, out domain.Encoded[[]int]) []domain.Content {
			return []domain.Content{domain.Text("list: " + string(out.JSON()))}
		},
	})})
	got := w.settle(m, "c", "todo", `{}`)
	if got.ToolResult().Type() != "text" || got.ToolResult().Text != "list: [1,2]" || string(got.Structured) != "[1,2]" {
		t.Errorf("settlement reads %+v of %s, want the text, of [1,2]", got.ToolResult(), got.Structured)
	}
}

// A call of a name that was not offered ends as UnknownTool.
// Scenario 37.
func TestUnknownCallRunsNothing(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	m := w.offered(registry.Tools{"known": p.Tool})
	w.want(w.settle(m, "c", "missing", `{}`), domain.UnknownTool, "Unknown tool: missing")
	p.ran(t, 0)
	w.wantKinds(w.session(), "CallSettled")
}

// A turn after the removal of a tool does not offer it, and a call of it is unknown.
// Scenario 38.
func TestCallOfARemovedToolIsUnknownToALaterTurn(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	l := w.application()
	s := w.register(l, registry.Tools{"gone": p.Tool})
	r := w.registry(registry.Config{}, l)
	w.materialize(r)
	w.close(s)
	w.want(w.settle(w.materialize(r), "c", "gone", `{}`), domain.UnknownTool, "Unknown tool: gone")
	p.ran(t, 0)
}

// A stale call ends before a hook or a codec runs.
func TestStaleIsDecidedBeforeHooksAndDecoding(t *testing.T) {
	t.Parallel()
	w, p, hooks := newWorld(t), answers(t, "a"), 0
	l := w.application()
	s := w.register(l, registry.Tools{"a": p.Tool})
	count := func(_ context.Context, _ domain.Invocation, call domain.Call) (json.RawMessage, error) {
		hooks++
		return call.Input, nil
	}
	m := w.materialize(w.registry(registry.Config{Before: []registry.Before{count}}, l))
	w.close(s)
	w.want(w.settle(m, "1", "a", `{"not": "of the schema"}`), domain.Stale, "Stale tool call: a")
	w.want(w.settle(m, "2", "never offered", `not JSON`), domain.UnknownTool, "Unknown tool: never offered")
	p.ran(t, 0)
	if hooks != 0 {
		t.Errorf("hooks ran %d times, want never", hooks)
	}
	w.wantKinds(w.session(), "CallSettled", "CallSettled")
}

// The text of an invalid input lists every violation and asks the model for another
// input.
func TestInvalidInputNamesEachFaultAndAsksForAnother(t *testing.T) {
	t.Parallel()
	type numbers struct{ A, B int }
	w := newWorld(t)
	m := w.offered(registry.Tools{"add": does(t, func(context.Context, numbers, domain.Invocation) (string, error) { return "", nil })})
	got := w.settle(m, "c", "add", `{"A":"x","B":"y"}`)
	for _, part := range []string{"Invalid tool input: ", "/A", "/B", "Rewrite the input"} {
		if got.Outcome != domain.InvalidInput || !strings.Contains(got.Text, part) {
			t.Errorf("settlement = %v %q, want an invalid input with %q", got.Outcome, got.Text, part)
		}
	}
	w.wantKinds(w.session(), "CallSettled")
}

// A tool runs only after its start is on record.
func TestToolRunsOnlyOnceItsStartIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var kinds []string
	m := w.offered(registry.Tools{"look": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
		kinds = w.kinds(w.session())
		return "ok", nil
	})})
	w.want(w.settle(m, "c", "look", `{}`), domain.Succeeded, "ok")
	if !slices.Equal(kinds, []string{"CallStarted"}) {
		t.Errorf("the tool saw %v on record, want its start", kinds)
	}
	w.wantKinds(w.session(), "CallStarted", "CallSettled")
	all := w.read(w.session())
	if all[1].Causation != all[0].ID {
		t.Errorf("the end comes of %s, want the start %s", all[1].Causation, all[0].ID)
	}
}

// A tool whose start could not be recorded does not run.
func TestToolWhoseStartIsNotOnRecordNeverRuns(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	m := w.offered(registry.Tools{"a": p.Tool})
	w.journal.begin = func(context.Context) error { return errFull }
	got, err := m.Settle(t.Context(), w.journal, w.as, ask("c", "a", `{}`))
	wantIs(t, "Settle with a broken journal", err, errFull)
	if got.Outcome != 0 {
		t.Errorf("Settle answers %v, want nothing", got.Outcome)
	}
	p.ran(t, 0)
	w.wantKinds(w.session(), []string{}...)
}

// Settle returns no settlement if the end could not be recorded.
func TestNothingIsAnsweredWhoseEndIsNotOnRecord(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	m := w.offered(registry.Tools{"a": p.Tool})
	w.journal.end = func(context.Context) error { return errFull }
	for _, name := range []string{"a", "missing"} {
		got, err := m.Settle(t.Context(), w.journal, w.as, ask(name, name, `{}`))
		wantIs(t, "Settle with a broken journal", err, errFull)
		if got.Outcome != 0 {
			t.Errorf("Settle(%s) answers %v, want nothing", name, got.Outcome)
		}
	}
	w.wantKinds(w.session(), "CallStarted")
}

// A settlement has the registration that was offered and the one that was in effect.
func TestSettlementSaysWhatWasOfferedAndWhatWasInEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"a": answers(t, "a").Tool})
	got := w.settle(m, "c", "a", `{}`)
	want, _ := m.Offer().Find("a")
	if got.Offered != want || got.Effective != want || !got.ChangedBy.IsZero() || !got.Agrees() {
		t.Errorf("settlement offers %v, in effect %v, changed by %v; want %v twice and no change", got.Offered, got.Effective, got.ChangedBy, want)
	}
	start := w.read(w.session())[0].Event.(events.CallStarted)
	if start.Offered != want || start.Effective != want || start.Turn != m.Offer().Turn || start.Process != w.layers.Process() {
		t.Errorf("start = %+v, want %v of turn %v", start, want, m.Offer().Turn)
	}
}

// Calls of one reply that run in parallel do not affect each other.
func TestSiblingsDoNotTouchEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	running, broke := make(chan struct{}), make(chan struct{})
	m := w.offered(registry.Tools{
		"waits": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
			close(running)
			<-broke
			return "whole", nil
		}),
		"breaks": does(t, func(context.Context, empty, domain.Invocation) (string, error) { <-running; panic("boom") }),
	})
	sibling := make(chan domain.Settlement)
	go func() {
		got, _ := m.Settle(context.Background(), w.journal, w.as, ask("1", "waits", `{}`))
		sibling <- got
	}()
	w.want(w.settle(m, "2", "breaks", `{}`), domain.Defective, "Tool execution failed: boom")
	close(broke)
	w.want(<-sibling, domain.Succeeded, "whole")
	w.want(w.settle(m, "3", "missing", `{}`), domain.UnknownTool, "Unknown tool: missing")
}

// The last progress is in the settlement of a failed call, and not in that of a
// success.
func TestProgressIsKeptWithAFailureAndNeverWithASuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	said := func(n int) domain.Progress { return domain.Progress{Structured: json.RawMessage(fmt.Sprint(n))} }
	steps := func(err error) domain.Tool {
		return does(t, func(_ context.Context, _ empty, inv domain.Invocation) (string, error) {
			buffer := said(1)
			inv.Report(buffer)
			buffer = said(2)
			inv.Report(buffer)
			buffer.Structured[0] = '9'
			return "ok", err
		})
	}
	m := w.offered(registry.Tools{"fails": steps(domain.Fail("no")), "works": steps(nil), "breaks": steps(errors.New("no"))})
	for _, name := range []string{"fails", "breaks"} {
		if got := w.settle(m, name, name, `{}`); got.Progress == nil || string(got.Progress.Structured) != "2" {
			t.Errorf("%s settles with progress %v, want the last", name, got.Progress)
		}
	}
	if got := w.settle(m, "works", "works", `{}`); got.Progress != nil {
		t.Errorf("a success has the progress %v, want none", got.Progress)
	}
}

// alien is a Content that is neither Text nor Media.
type alien struct{ domain.Content }

// An end that cannot be encoded is recorded as a defect.
func TestEndWithoutAWireFormIsADefectAndOnRecord(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]domain.Content{"nil": nil, "alien": alien{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := w.offered(registry.Tools{"odd": made(t, domain.Spec[empty, string]{
				Execute: func(context.Context, empty, domain.Invocation) (string, error) { return "v", nil },
				Present: func(empty, domain.Encoded[string]) []domain.Content { return []domain.Content{content} },
			})})
			if got := w.settle(m, "c", "odd", `{}`); got.Outcome != domain.Defective || got.Content != nil {
				t.Errorf("settlement = %v with %v, want a defect without content", got.Outcome, got.Content)
			}
		})
	}
}

// Progress that cannot be encoded does not prevent the end of a failed call.
func TestProgressWithoutAWireFormCostsNoFailureItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"odd": does(t, func(_ context.Context, _ empty, inv domain.Invocation) (string, error) {
		inv.Report(domain.Progress{Structured: json.RawMessage(`{"cut`)})
		return "", domain.Fail("no luck")
	})})
	got := w.settle(m, "c", "odd", `{}`)
	w.want(got, domain.Failed, "no luck")
	if got.Progress == nil || !strings.Contains(got.Progress.Content.Text(), "cannot be kept") {
		t.Errorf("progress = %v, want one that says why it is not there", got.Progress)
	}
}

// Settle returns a text with invalid UTF-8 as the log will return it.
func TestTextThatIsNotUnicodeIsAnsweredAsItIsReadBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{
		"shows": made(t, domain.Spec[empty, string]{
			Execute: func(context.Context, empty, domain.Invocation) (string, error) { return "v", nil },
			Present: func(empty, domain.Encoded[string]) []domain.Content { return []domain.Content{domain.Text("a\xffb")} },
		}),
		"fails": does(t, func(context.Context, empty, domain.Invocation) (string, error) { return "", domain.Fail("a\xffb") }),
	})
	w.want(w.settle(m, "1", "shows", `{}`), domain.Succeeded, "a\uFFFDb")
	w.want(w.settle(m, "2", "fails", `{}`), domain.Failed, "a\uFFFDb")
}

// An end that is too large for the store is recorded without its output.
func TestEndThatIsTooLargeForTheStoreIsKeptWithoutWhatMakesItLarge(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]domain.Outcome{"fails": domain.Failed, "works": domain.RetentionFailed, "missing": domain.UnknownTool} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := w.offered(registry.Tools{
				"fails": does(t, func(context.Context, empty, domain.Invocation) (string, error) { return "", domain.Fail("long") }),
				"works": answers(t, "long").Tool,
			})
			tried := false
			w.journal.end = func(context.Context) error {
				if tried {
					return nil
				}
				tried = true
				return fmt.Errorf("%w: the limit is 4", events.ErrTooLarge)
			}
			w.want(w.settle(m, "c", name, `{}`), want, "Tool execution failed: record is too large: the limit is 4")
		})
	}
}
