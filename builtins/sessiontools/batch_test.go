package sessiontools_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// textArgs is the input of the tools of a batch.
type textArgs struct {
	Text string `json:"text"`
}

// gives returns a tool that returns its input, or err, and counts its runs.
func gives(t testing.TB, runs *atomic.Int32, err error) domain.Tool {
	return tool(t, domain.Spec[textArgs, string]{Execute: func(_ context.Context, in textArgs, _ domain.Invocation) (string, error) {
		runs.Add(1)
		return in.Text, err
	}})
}

// batchOf returns the input of a batch of calls, each with the parameters {"text":"x"}.
func batchOf(names ...string) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf(`{"tool":%q,"parameters":{"text":"x"}}`, name)
	}
	return `{"tool_calls":[` + strings.Join(parts, ",") + `]}`
}

// Each call of a batch is a call of its own, with a start and an end on record, and the
// model reads the outcome and the text of each in order.
func TestABatchSettlesEachOfItsCalls(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	panics := tool(t, domain.Spec[textArgs, string]{Execute: func(context.Context, textArgs, domain.Invocation) (string, error) { panic("broken") }})
	structured := tool(t, domain.Spec[textArgs, textArgs]{Execute: func(_ context.Context, in textArgs, _ domain.Invocation) (textArgs, error) { return in, nil }})
	w := newWorld(t, setup{rules: "allow * *\ndeny todowrite *", tools: registry.Tools{
		"echo": gives(t, &runs, nil), "fails": gives(t, &runs, domain.Fail("no such file")), "panics": panics, "structured": structured,
		"feedback": gives(t, &runs, &domain.Declined{Feedback: "use the other"}),
	}}, call("batch", `{"tool_calls":[
		{"tool":"echo","parameters":{"text":"one\n"}}, {"tool":"fails","parameters":{"text":"x"}}, {"tool":"missing"}, {"tool":"echo","parameters":{"t":1}},
		{"tool":"todowrite","parameters":{"todos":[]}}, {"tool":"panics","parameters":{"text":"x"}}, {"tool":"structured","parameters":{"text":"<x>"}},
		{"tool":"feedback","parameters":{"text":"x"}}, {"tool":"todoread"}, {"tool":"echo","parameters":{"text":""}}]}`)).run()
	want := []struct{ tool, outcome, text string }{
		{"echo", "succeeded", "one"}, {"fails", "failed", "no such file"}, {"missing", "unknown_tool", "Unknown tool: missing"}, {"echo", "invalid_input", "Invalid tool input"},
		{"todowrite", "denied", "Permission denied: todowrite *"}, {"panics", "defect", "Tool execution failed: broken"}, {"structured", "succeeded", "{\n  \"text\": \"<x>\"\n}"},
		{"feedback", "declined", "use the other"}, {"todoread", "succeeded", "[]"}, {"echo", "succeeded", "(no text)"},
	}
	text := w.text("c1")
	if !strings.HasPrefix(text, "4 of 10 calls succeeded.\n1. echo: succeeded\n2. fails: failed\n3. missing: unknown_tool\n") {
		t.Errorf("the model reads %s, want the outcomes first", text)
	}
	for i, c := range want {
		if part := fmt.Sprintf("\n[%d] %s\n%s", i+1, c.tool, c.text); !strings.Contains(text, part) {
			t.Errorf("the model reads %s, want %q in it", text, part)
		}
		end := w.end(domain.CallID(fmt.Sprintf("c1/%d", i+1)))
		if end.Outcome.String() != c.outcome {
			t.Errorf("call %d = %s %q, want %s", i+1, end.Outcome, end.Text, c.outcome)
		}
	}
	if got := w.settled(); len(got) != 11 || got[10].Call != "c1" {
		t.Errorf("%d calls have ended, want 11 and the batch last", len(got))
	}
	if runs.Load() != 4 || len(w.model.turns) != 2 {
		t.Errorf("%d runs in %d turns, want 4 in 2", runs.Load(), len(w.model.turns))
	}
}

// A batch of nothing, of too many calls or with a batch among its calls runs no call, and
// the model reads why.
func TestABatchOutsideTheLimitsRunsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input   string
		outcome domain.Outcome
		text    string
	}{
		"nothing":      {batchOf(), domain.InvalidInput, "The batch has no calls, so nothing ran."},
		"no list":      {`{}`, domain.InvalidInput, "The batch has no calls, so nothing ran."},
		"null":         {`{"tool_calls":null}`, domain.InvalidInput, "The batch has no calls, so nothing ran."},
		"26 calls":     {batchOf(slices.Repeat([]string{"echo"}, 26)...), domain.InvalidInput, "The batch has 26 calls, so nothing ran."},
		"itself":       {batchOf("batch"), domain.Failed, "Call 1 of the batch is itself a batch, so nothing ran."},
		"itself later": {batchOf("echo", "echo", "batch", "echo"), domain.Failed, "Call 3 of the batch is itself a batch, so nothing ran."},
		"no tool":      {`{"tool_calls":[{"tool":"echo","parameters":{"text":"x"}},{"parameters":{}}]}`, domain.InvalidInput, "/tool_calls/1"},
		"long name":    {batchOf("echo", strings.Repeat("e", 65)), domain.InvalidInput, "/tool_calls/1/tool"},
		"no object":    {`{"tool_calls":[{"tool":"echo","parameters":["x"]}]}`, domain.InvalidInput, "/tool_calls/0/parameters"},
		"no calls":     {`{"tool_calls":"echo"}`, domain.InvalidInput, "/tool_calls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int32
			w := newWorld(t, setup{tools: registry.Tools{"echo": gives(t, &runs, nil)}}, call("batch", c.input)).run()
			w.wantEnd("c1", c.outcome, c.text)
			if n := len(w.settled()); runs.Load() != 0 || n != 1 || len(w.model.turns) != 2 {
				t.Errorf("%d runs, %d ends, %d turns, want 0, 1, 2", runs.Load(), n, len(w.model.turns))
			}
		})
	}
}

// A batch of 25 calls runs all of them.
func TestTheLargestBatchRunsWhole(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	w := newWorld(t, setup{tools: registry.Tools{"echo": gives(t, &runs, nil)}}, call("batch", batchOf(slices.Repeat([]string{"echo"}, 25)...))).run()
	w.wantEnd("c1", domain.Succeeded, "25 of 25 calls succeeded.", "\n[25] echo\nx\n")
	if runs.Load() != 25 {
		t.Errorf("%d runs, want 25", runs.Load())
	}
}

// If a person declines one call without feedback, the others end, the batch is declined,
// and the run stops.
func TestADeclinedCallOfABatchStopsTheRun(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	w := newWorld(t, setup{tools: registry.Tools{"echo": gives(t, &runs, nil), "declined": gives(t, &runs, &domain.Declined{})}},
		call("batch", batchOf("echo", "declined", "echo"))).run()
	w.wantEnd("c1", domain.DeclinedByUser)
	w.wantEnd("c1/1", domain.Succeeded)
	w.wantEnd("c1/3", domain.Succeeded)
	if runs.Load() != 3 || w.state().Interrupted == nil || len(w.model.turns) != 1 {
		t.Errorf("%d runs, interrupted = %v after %d turns, want 3 and an interruption after 1", runs.Load(), w.state().Interrupted, len(w.model.turns))
	}
}

// The model receives the media of the calls after the text.
func TestABatchPassesMediaOn(t *testing.T) {
	t.Parallel()
	image := tool(t, domain.Spec[textArgs, string]{
		Execute: func(_ context.Context, in textArgs, _ domain.Invocation) (string, error) { return in.Text, nil },
		Present: func(in textArgs, _ domain.Encoded[string]) []domain.Content {
			return []domain.Content{domain.Text("an image"), domain.Media{MIME: "image/png", Name: "a.png", Data: []byte(in.Text)}}
		},
	})
	w := newWorld(t, setup{tools: registry.Tools{"image": image}}, call("batch", batchOf("image", "image"))).run()
	w.wantEnd("c1", domain.Succeeded, "[1] image\nan image\n(image/png is attachment 1)\n", "[2] image\nan image\n(image/png is attachment 2)\n")
	want := domain.Media{MIME: "image/png", Name: "a.png", Data: []byte("x")}
	if diff := cmp.Diff([]domain.Media{want, want}, w.end("c1").Content.Media()); diff != "" {
		t.Errorf("the model receives other media:\n%s", diff)
	}
}

// An album is the CallSession of calls that have all ended with media of the given sizes.
type album struct {
	sessiontools.CallSession
	sizes []int
}

// SettleAdded returns the calls, each with its media.
func (a album) SettleAdded(_ context.Context, _ domain.Invocation, added []domain.Call) ([]domain.Call, []domain.Settlement, error) {
	ends := make([]domain.Settlement, len(added))
	for i := range added {
		ends[i] = domain.Settlement{Outcome: domain.Succeeded, Content: domain.Contents{domain.Media{MIME: "image/png", Data: make([]byte, a.sizes[i])}}}
	}
	return added, ends, nil
}

// Media over the limit of one call are left out with a note, so that they cost the batch
// no other result.
func TestABatchLeavesOutMediaOverTheLimit(t *testing.T) {
	t.Parallel()
	c := newWorld(t, setup{}).config()
	c.Session = album{sizes: []int{2_000_000, 2_000_000, 9}}
	tools, err := sessiontools.Tools(c)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := tools["batch"].Bind([]byte(batchOf("image", "image", "image")))
	if err != nil {
		t.Fatal(err)
	}
	out, err := bound.Run(t.Context(), domain.Invocation{})
	if err != nil {
		t.Fatal(err)
	}
	if got := out.Content().Media(); len(got) != 2 || len(got[0].Data) != 2_000_000 || len(got[1].Data) != 9 {
		t.Errorf("the model receives %d media, want the first and the third", len(got))
	}
	if text := out.Content().Text(); !strings.Contains(text, "3 of 3 calls succeeded.") || !strings.Contains(text, "[2] image\n\n(image/png of 2000000 bytes left out") {
		t.Errorf("the model reads %s, want a note about the second image", text)
	}
}

// The preview of a batch over the limits of one output begins with the outcome of each
// call, and the whole is retained.
func TestTheOutcomesOfALargeBatchStayInItsPreview(t *testing.T) {
	t.Parallel()
	large := tool(t, domain.Spec[textArgs, string]{Execute: func(context.Context, textArgs, domain.Invocation) (string, error) {
		return strings.Repeat("a line of a long result\n", 1900), nil
	}})
	w := newWorld(t, setup{tools: registry.Tools{"large": large}}, call("batch", batchOf(slices.Repeat([]string{"large"}, 25)...))).run()
	w.wantEnd("c1", domain.Succeeded, "25 of 25 calls succeeded.\n1. large: succeeded\n", "\n25. large: succeeded\n", "full output at output://")
	if n := len(w.end("c1").Retained); n == 0 {
		t.Error("the batch retains nothing, want its whole text")
	}
}

// A batch that is interrupted ends as interrupted, and so do its running calls.
func TestAnInterruptedBatchEndsWithItsCalls(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancelCause(t.Context())
	waits := tool(t, domain.Spec[textArgs, string]{Execute: func(ctx context.Context, _ textArgs, _ domain.Invocation) (string, error) {
		interrupt(domain.ByUser)
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	w := newWorld(t, setup{tools: registry.Tools{"waits": waits}}, call("batch", batchOf("waits", "waits")))
	if err := w.runner.Run(ctx, w.session); !errors.Is(err, domain.ErrInterrupted) {
		t.Errorf("Run = %v, want an interruption", err)
	}
	for _, id := range []domain.CallID{"c1", "c1/1", "c1/2"} {
		w.wantEnd(id, domain.Interrupted)
	}
}

// The calls of a batch run at the same time: each waits for the other.
func TestTheCallsOfABatchRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	meets := tool(t, domain.Spec[textArgs, string]{Execute: func(context.Context, textArgs, domain.Invocation) (string, error) {
		both.Done()
		both.Wait()
		return "met", nil
	}})
	newWorld(t, setup{tools: registry.Tools{"meets": meets}}, call("batch", batchOf("meets", "meets"))).run().wantEnd("c1", domain.Succeeded, "2 of 2 calls succeeded.")
}

// Two batches of one reply have calls of their own.
func TestTwoBatchesOfAReplyAreApart(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	w := newWorld(t, setup{tools: registry.Tools{"echo": gives(t, &runs, nil)}},
		[]runner.Part{callPart("c1", "batch", batchOf("echo", "echo")), callPart("c2", "batch", batchOf("echo"))}).run()
	w.wantEnd("c1", domain.Succeeded, "2 of 2 calls succeeded.")
	w.wantEnd("c2", domain.Succeeded, "1 of 1 call succeeded.")
	for _, id := range []domain.CallID{"c1/1", "c1/2", "c2/1"} {
		w.wantEnd(id, domain.Succeeded)
	}
}

// The calls of a batch are on record with the batch as their parent and their own input.
func TestTheCallsOfABatchNameTheirParent(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	w := newWorld(t, setup{tools: registry.Tools{"echo": gives(t, &runs, nil)}}, call("batch", batchOf("echo"))).run()
	for v, err := range w.ledger.Read(t.Context(), events.SessionStream(w.session), 0) {
		w.must(err)
		if e, ok := v.Event.(events.CallsAdded); ok {
			if e.Parent != "c1" || len(e.Calls) != 1 || string(e.Calls[0].Input) != `{"text":"x"}` {
				t.Errorf("added %+v, want the call of the batch", e)
			}
			return
		}
	}
	t.Error("the log has no added calls")
}

var _ sessiontools.CallSession = (*world)(nil)
