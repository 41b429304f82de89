package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

type nothing struct{}

// The end of a call is on record before the model reads it.
// Scenario 94. Scenario 95.
func TestAResultIsOnRecordBeforeTheModelReadsIt(t *testing.T) {
	t.Parallel()
	model := plays([]runner.Part{runner.TextPart("let me"), ask("c1", "echo", `{"text":"hi"}`)})
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	want := "SessionOpened PromptAdmitted TurnMaterialized ReplyReceived CallStarted CallSettled TurnMaterialized ReplyReceived"
	if got := p.kinds(session); got != want {
		t.Fatalf("events = %s, want %s", got, want)
	}
	if got := model.shown[1]; got != "user assistant tool" {
		t.Fatalf("the second turn shows %s, want user assistant tool", got)
	}
	if end := p.ends(session)[0]; end.Outcome != domain.Succeeded || end.ToolResult().Text != "hi" {
		t.Fatalf("settlement = %+v, want success with hi", end)
	}
}

// A call ID that a later reply repeats identifies another call.
// Scenario 97.
func TestACallIDThatComesAgainIsAnotherCall(t *testing.T) {
	t.Parallel()
	var count counter
	model := plays([]runner.Part{ask("tool_0", "echo", `{"text":"one"}`)}, []runner.Part{ask("tool_0", "echo", `{"text":"two"}`)})
	p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	ends := p.ends(session)
	if len(ends) != 2 || ends[0].ToolResult().Text != "one" || ends[1].ToolResult().Text != "two" || count.total() != 2 {
		t.Fatalf("settlements = %+v after %d runs, want one and two after 2", ends, count.total())
	}
}

// After a call of an unknown tool the model has another turn.
// Scenario 98.
func TestACallToAMissingToolGivesTheModelAnotherTurn(t *testing.T) {
	t.Parallel()
	model := plays([]runner.Part{ask("c1", "missing", `{}`)})
	p := start(t, registry.Tools{}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	if end := p.ends(session)[0]; end.Outcome != domain.UnknownTool || end.Text != "Unknown tool: missing" || len(model.turns) != 2 {
		t.Fatalf("settlement = %+v in %d turns, want unknown tool in 2", end, len(model.turns))
	}
}

// refusing returns a tool that always returns err.
func refusing(err error) domain.Tool {
	return must(domain.Spec[nothing, string]{
		Execute: func(context.Context, nothing, domain.Invocation) (string, error) { return "", err },
	})
}

// The model reads the denial of a call, and the run continues.
// Scenario 100.
func TestADeniedCallIsReadAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	rule := domain.Rule{Action: "bash", Resource: "rm *", Effect: domain.Deny, Source: "rules:3"}
	tool := refusing(&domain.Denied{Action: "bash", Resource: "rm x", Rule: rule})
	model := plays([]runner.Part{ask("c1", "bash", `{}`)})
	p := start(t, registry.Tools{"bash": tool}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	end := p.ends(session)[0]
	if end.Outcome != domain.DeniedByRule || end.Text != "Permission denied: bash rm x" || end.Rule != rule || len(model.turns) != 2 {
		t.Fatalf("settlement = %+v in %d turns, want a denial by %v in 2", end, len(model.turns), rule)
	}
}

// A call that a person declines without feedback stops the run.
// Scenario 101. Scenario 103.
func TestADeclinedCallStopsTheRun(t *testing.T) {
	t.Parallel()
	model := plays([]runner.Part{ask("c1", "no", `{}`)})
	p := start(t, registry.Tools{"no": refusing(&domain.Declined{})}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	s := p.state(session)
	if p.ends(session)[0].Outcome != domain.DeclinedByUser || s.Interrupted == nil || len(model.turns) != 1 {
		t.Fatalf("after a refusal: interrupted = %v, %d turns; want an interruption and 1 turn", s.Interrupted, len(model.turns))
	}
}

// The model reads the feedback of a person who declined a call, and the run continues.
func TestARefusalWithFeedbackIsReadAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	model := plays([]runner.Part{ask("c1", "no", `{}`)})
	p := start(t, registry.Tools{"no": refusing(&domain.Declined{Feedback: "use the other one"})}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	if got := p.ends(session)[0].ToolResult().Error; got != "use the other one" || len(model.turns) != 2 {
		t.Fatalf("the model reads %q in %d turns, want the feedback in 2", got, len(model.turns))
	}
}

// One refusal without feedback stops the run. The feedback to another call of the reply
// is on record, and the model reads it when the session continues.
func TestFeedbackBesideARefusalIsReadOnTheNextTurn(t *testing.T) {
	t.Parallel()
	for _, order := range [][]runner.Part{
		{ask("1", "no", `{}`), ask("2", "other", `{}`)},
		{ask("2", "other", `{}`), ask("1", "no", `{}`)},
	} {
		model := plays(order)
		p := start(t, registry.Tools{
			"no": refusing(&domain.Declined{}), "other": refusing(&domain.Declined{Feedback: "use staging"}),
		}, runner.Config{Provider: model})
		session := p.open("go")
		p.run(session)
		if len(model.turns) != 1 || p.state(session).Interrupted == nil {
			t.Fatalf("%d turns, interrupted %v; want the run to stop", len(model.turns), p.state(session).Interrupted)
		}
		p.admit(session, "go on")
		p.run(session)
		read := ""
		for _, shown := range model.turns[1].Conversation.ModelMessages() {
			if shown.Role == conversation.ToolRole && shown.Call.Name == "other" {
				read = shown.Reading.Error
			}
		}
		if read != "use staging" {
			t.Errorf("on the next turn the model reads %q, want the feedback", read)
		}
	}
}

// The last step that Config.Steps allows offers no tools, and its request says so.
// Scenario 106.
func TestTheLastStepOffersNoTools(t *testing.T) {
	t.Parallel()
	var count counter
	model := plays([]runner.Part{ask("c1", "echo", `{"text":"a"}`)}, []runner.Part{ask("c2", "echo", `{"text":"b"}`)})
	p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: model, Steps: 2})
	session := p.open("go")
	p.run(session)
	ends := p.ends(session)
	if len(model.turns) != 2 || !model.turns[1].Disabled || len(model.turns[1].Tools) != 0 || !strings.Contains(model.turns[1].Instruction, "MAXIMUM STEPS REACHED") || model.turns[0].Instruction != "" {
		t.Fatalf("turns = %+v, want a second without tools that says so", model.turns)
	}
	if ends[1].Outcome != domain.Disabled || count.total() != 1 || ends[1].Text != "Tools are disabled after the maximum number of steps" {
		t.Fatalf("settlement = %+v after %d runs, want disabled after 1", ends[1], count.total())
	}
}

// Each prompt has its own allowance of steps.
// Scenario 107.
func TestAPromptRestartsTheStepAllowance(t *testing.T) {
	t.Parallel()
	model := plays([]runner.Part{ask("c1", "echo", `{"text":"a"}`)}, []runner.Part{runner.TextPart("out of steps")},
		[]runner.Part{ask("c2", "echo", `{"text":"b"}`)})
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: model, Steps: 2})
	session := p.open("go")
	p.run(session)
	p.admit(session, "and on")
	p.run(session)
	if last := p.ends(session)[1]; last.Outcome != domain.Succeeded {
		t.Fatalf("after another prompt the call ended %s, want succeeded", last.Outcome)
	}
}

// Run of a running session joins the run and returns its result; another session is not
// delayed.
// Scenario 113.
func TestWhoeverRunsARunningSessionJoins(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	wait := must(domain.Spec[nothing, string]{
		Execute: func(context.Context, nothing, domain.Invocation) (string, error) {
			close(entered)
			<-leave
			return "ok", nil
		},
	})
	model := plays([]runner.Part{ask("c1", "wait", `{}`)})
	p := start(t, registry.Tools{"wait": wait}, runner.Config{Provider: model})
	session, other := p.open("go"), p.open("beside")
	var all sync.WaitGroup
	errs := make([]error, 5)
	all.Go(func() { errs[0] = p.runner.Run(t.Context(), session) })
	<-entered
	p.run(other) // another session is not held up
	for i := range errs[1:] {
		all.Go(func() { errs[i+1] = p.runner.Run(t.Context(), session) })
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	if err := p.runner.Run(gone, session); err == nil || err.Error() != "gone" {
		t.Fatalf("a joiner that leaves gets %v, want its own cause", err)
	}
	close(leave)
	all.Wait()
	if err := errors.Join(errs...); err != nil || len(p.ends(session)) != 1 {
		t.Fatalf("joined runs = %v with %d calls, want nil with 1", err, len(p.ends(session)))
	}
}

// A failing provider fails once and then replies.
type failing struct {
	*player
	err error
}

func (f *failing) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	if err := f.err; err != nil {
		f.err = nil
		return func(yield func(runner.Part, error) bool) {
			if yield(runner.TextPart("half a rep"), nil) {
				yield(nil, err)
			}
		}
	}
	return f.player.Reply(ctx, turn)
}

// A reply that ends with an error is discarded, and the next run asks the model again.
func TestAReplyThatBreaksOffIsAsIfItHadNotBeen(t *testing.T) {
	t.Parallel()
	broke := errors.New("the line is dead")
	model := &failing{plays([]runner.Part{runner.TextPart("whole")}), broke}
	p := start(t, registry.Tools{}, runner.Config{Provider: model})
	session := p.open("go")
	if err := p.runner.Run(t.Context(), session); !errors.Is(err, broke) {
		t.Fatalf("Run = %v, want the provider's error", err)
	}
	p.run(session)
	s := p.state(session)
	if len(s.Messages) != 2 || s.Messages[1].Reply.Text != "whole" {
		t.Fatalf("messages = %+v, want the prompt and one whole reply", s.Messages)
	}
}

// No call of an invalid reply runs.
func TestABadReplyIsRefusedWhole(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string][]runner.Part{
		"no id":    {ask("", "echo", `{"text":"a"}`)},
		"twice":    {ask("c", "echo", `{"text":"a"}`), ask("c", "echo", `{"text":"b"}`)},
		"nil part": {nil},
	} {
		var count counter
		p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: plays(reply)})
		session := p.open("go")
		if err := p.runner.Run(t.Context(), session); !errors.Is(err, runner.ErrBadReply) || count.total() != 0 {
			t.Errorf("%s: Run = %v after %d runs, want ErrBadReply after none", name, err, count.total())
		}
	}
}

// refusals returns the refused replies of a session.
func (p *program) refusals(session domain.SessionID) (all []events.ReplyRefused) {
	p.t.Helper()
	for v, err := range p.ledger.Read(p.t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if e, ok := v.Event.(events.ReplyRefused); ok {
			all = append(all, e)
		}
	}
	return all
}

// An invalid reply is recorded as refused with the reason, and no later turn shows it to
// the model.
func TestARefusedReplyIsOnRecordAndNoModelIsShownIt(t *testing.T) {
	t.Parallel()
	finished := runner.FinishPart{Reason: "tool_calls", Model: "m-2", Tokens: events.Tokens{Output: 7}}
	tooLong := strings.Repeat("c", 1025)
	for name, test := range map[string]struct {
		parts  []runner.Part
		reason string
		calls  []domain.CallID
	}{
		"no ID": {[]runner.Part{runner.TextPart("I look."), ask("", "echo", `{"text":"a"}`), ask("b", "echo", `{"text":"b"}`), finished},
			`call 1, of "echo", has no ID`, []domain.CallID{"", "b"}},
		"repeated ID": {[]runner.Part{ask("c", "echo", `{"text":"a"}`), runner.TextPart("I look."), ask("c", "echo", `{"text":"a"}`), finished},
			`call 2, of "echo", has the ID "c" of a call before it`, []domain.CallID{"c", "c"}},
		"IDs that are one ID on record": {[]runner.Part{runner.TextPart("I look."), ask("c\xff", "echo", `{}`), ask("c\xfe", "echo", `{}`), finished},
			`call 1, of "echo", has the ID "c\xff", which is not UTF-8`, []domain.CallID{"c\ufffd", "c\ufffd"}},
		"another part": {[]runner.Part{runner.TextPart("I look."), nil, ask("c", "echo", `{"text":"a"}`), finished},
			`it has a part of type <nil>`, []domain.CallID{"c"}},
		"long ID": {[]runner.Part{runner.TextPart("I look."), ask(tooLong, strings.Repeat("n", 400), `{}`), finished},
			`call 1, of "` + strings.Repeat("n", 256) + `... (400 bytes)", has an ID of 1025 bytes, which is over the limit of 1024`, []domain.CallID{domain.CallID(tooLong)}},
	} {
		var count counter
		model := plays(test.parts, []runner.Part{runner.TextPart("whole")})
		p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: model})
		session := p.open("go")
		err := p.runner.Run(t.Context(), session)
		if !errors.Is(err, runner.ErrBadReply) || !strings.Contains(err.Error(), "ask build: the model: reply is not valid: "+test.reason) {
			t.Errorf("%s: Run = %v, want ErrBadReply that names the model and says %s", name, err, test.reason)
		}
		kept := p.refusals(session)
		if len(kept) != 1 {
			t.Fatalf("%s: %d refused replies are on record, want 1", name, len(kept))
		}
		var ids []domain.CallID
		for _, c := range kept[0].Calls {
			ids = append(ids, c.ID)
		}
		if e := kept[0]; e.Reason != test.reason || e.Text != "I look." || e.Finish != "tool_calls" || e.Model != "m-2" || e.Tokens.Output != 7 ||
			!slices.Equal(ids, test.calls) || e.Turn != p.state(session).Turn.Turn {
			t.Errorf("%s: refused reply = %+v, want all of it with the reason", name, e)
		}
		p.run(session)
		if got := model.shown[1]; got != "user" || count.total() != 0 {
			t.Errorf("%s: after %d runs the model is shown %q, want the prompt alone after none", name, count.total(), got)
		}
		if broken := exceptions(t, p.ledger); len(broken) != 0 {
			t.Errorf("%s: exceptions = %+v, want none", name, broken)
		}
	}
}

// An input that is not JSON is recorded as a JSON string, and the call ends as
// InvalidInput.
func TestAnInputThatIsNotJSONIsOnRecordAndInvalid(t *testing.T) {
	t.Parallel()
	var count counter
	model := plays([]runner.Part{ask("c1", "echo", `{"text": "un`)})
	p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	c := p.state(session).Messages[1].Reply.Calls[0]
	if c.Settlement.Outcome != domain.InvalidInput || count.total() != 0 || string(c.Input) != `"{\"text\": \"un"` {
		t.Fatalf("call = %s ended %+v, want its text as a JSON string and invalid input", c.Input, c.Settlement)
	}
}

// Media of a tool are in the log once, and the model receives them as media.
// Scenario 115. Scenario 121.
func TestMediaIsOnRecordOnceAndShownNatively(t *testing.T) {
	t.Parallel()
	picture := must(domain.Spec[nothing, text]{
		Execute: func(context.Context, nothing, domain.Invocation) (text, error) { return text{"seen"}, nil },
		Present: func(nothing, domain.Encoded[text]) []domain.Content {
			return []domain.Content{domain.Text("a picture"), domain.Media{MIME: "image/png", Data: []byte("pixels-pixels")}}
		},
	})
	model := plays([]runner.Part{ask("c1", "picture", `{}`)})
	p := start(t, registry.Tools{"picture": picture}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	for e, err := range p.ledger.Entries(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "CallSettled" && strings.Count(string(e.Data), "cGl4ZWxzLXBpeGVscw==") != 1 {
			t.Fatalf("record = %s, want the base64 once", e.Data)
		}
	}
	reading := p.ends(session)[0].ToolResult()
	if reading.Type() != "content" || len(reading.Content.Media()) != 1 || reading.Content.Text() != "a picture" {
		t.Fatalf("reading = %+v, want text and native media", reading)
	}
}

// Admitting a recorded message again with the same content appends no event, and with
// another text or other media returns ErrOtherText.
// Scenario 127.
func TestAdmittingAMessageAgainDoesNothing(t *testing.T) {
	t.Parallel()
	p := start(t, registry.Tools{}, runner.Config{Provider: plays()})
	session := p.open("go")
	message := p.ledger.Mint().Message()
	for range 3 {
		if err := p.runner.Admit(t.Context(), session, message, "more"); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.runner.Admit(t.Context(), session, message, "other"); !errors.Is(err, runner.ErrOtherText) {
		t.Fatalf("Admit with another text = %v, want ErrOtherText", err)
	}
	png := domain.Media{MIME: "image/png", Name: "a.png", Data: []byte("png")}
	if err := p.runner.Admit(t.Context(), session, message, "more", png); !errors.Is(err, runner.ErrOtherText) {
		t.Fatalf("Admit with other media = %v, want ErrOtherText", err)
	}
	shows := p.ledger.Mint().Message()
	for range 2 {
		if err := p.runner.Admit(t.Context(), session, shows, "look", png); err != nil {
			t.Fatal(err)
		}
	}
	if m := p.state(session).ModelMessages(); !reflect.DeepEqual(m[len(m)-1].Media, domain.Contents{png}) {
		t.Errorf("the model reads %+v, want the image", m[len(m)-1])
	}
	if got := strings.Count(p.kinds(session), "PromptAdmitted"); got != 3 {
		t.Fatalf("%d prompts are on record, want 3", got)
	}
}

// A defect of one call does not affect the other calls of the reply.
// Scenario 161.
func TestADefectLeavesTheSiblingsAlone(t *testing.T) {
	t.Parallel()
	panics := must(domain.Spec[nothing, string]{
		Execute: func(context.Context, nothing, domain.Invocation) (string, error) { panic("boom") },
	})
	model := plays([]runner.Part{ask("a", "echo", `{"text":"1"}`), ask("b", "panics", `{}`), ask("c", "echo", `{"text":"3"}`)})
	p := start(t, registry.Tools{"echo": echo(&counter{}), "panics": panics}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	var got []string
	for _, end := range p.ends(session) {
		got = append(got, end.Outcome.String())
	}
	if want := "succeeded defect succeeded"; strings.Join(got, " ") != want {
		t.Fatalf("outcomes = %s, want %s", got, want)
	}
	if len(exceptions(t, p.ledger)) != 0 {
		t.Fatalf("exceptions = %v, want none", exceptions(t, p.ledger))
	}
}

// With OnBroken set to Stop, a run with a defect returns ErrBroken.
func TestARunThatStopsAtDefectsSaysSo(t *testing.T) {
	t.Parallel()
	model := plays([]runner.Part{ask("a", "breaks", `{}`)})
	p := start(t, registry.Tools{"breaks": refusing(errors.New("disk on fire"))}, runner.Config{Provider: model, OnBroken: runner.Stop})
	session := p.open("go")
	err := p.runner.Run(t.Context(), session)
	if !errors.Is(err, runner.ErrBroken) || p.ends(session)[0].Text != "Tool execution failed: disk on fire" {
		t.Fatalf("Run = %v, want ErrBroken with the defect on record", err)
	}
}

// A call that closes a loop runs only if Config.Looping allows it.
// Scenario 163.
func TestACallThatComesRoundAgainIsAskedAbout(t *testing.T) {
	t.Parallel()
	same := func(id string) []runner.Part { return []runner.Part{ask(id, "echo", `{ "text":"again" }`)} }
	for name, c := range map[string]struct {
		replies [][]runner.Part
		loops   int
	}{
		"three in a row":          {[][]runner.Part{same("1"), same("2"), {ask("3", "echo", `{"text":"again"}`)}}, 1},
		"two":                     {[][]runner.Part{same("1"), same("2")}, 0},
		"another between":         {[][]runner.Part{same("1"), same("2"), {ask("x", "echo", `{"text":"b"}`)}, same("3")}, 0},
		"a round of two, thrice":  {alternating(3), 1},
		"a round of two, twice":   {alternating(2), 0},
		"a round of four, thrice": {cycle(4, 3), 1},
		"a round of four, twice":  {cycle(4, 2), 0},
		"a round of five, thrice": {cycle(5, 3), 0},
		"three in one reply":      {[][]runner.Part{{same("1")[0], same("2")[0], same("3")[0]}}, 1},
		"the fourth asks as well": {[][]runner.Part{same("1"), same("2"), same("3"), same("4")}, 2},
	} {
		var count counter
		refused := 0
		p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{
			Provider: plays(c.replies...),
			Looping: func(_ context.Context, inv domain.Invocation, found events.LoopDetected) error {
				refused++
				return &domain.Denied{Action: "doom_loop", Resource: found.Tool, Reason: "it comes round again"}
			},
		})
		session := p.open("go")
		p.run(session)
		if refused != c.loops || strings.Count(p.kinds(session), "LoopDetected") != c.loops {
			t.Errorf("%s: asked %d times, want %d", name, refused, c.loops)
		}
		if ends := p.ends(session); c.loops > 0 && (ends[len(ends)-1].Outcome != domain.DeniedByRule || count.total() != len(ends)-c.loops) {
			t.Errorf("%s: ended %s after %d runs, want denied and not run", name, ends[len(ends)-1].Outcome, count.total())
		}
	}
}

// cycle returns replies of one call each, which repeat after period replies.
func cycle(period, rounds int) [][]runner.Part {
	var replies [][]runner.Part
	for i := range period * rounds {
		replies = append(replies, []runner.Part{ask(fmt.Sprint("c", i), "echo", fmt.Sprintf(`{"text":"%d"}`, i%period))})
	}
	return replies
}

// loops returns a Config.Looping that denies every detected loop and records it in found.
func loops(found *[]events.LoopDetected) func(context.Context, domain.Invocation, events.LoopDetected) error {
	return func(_ context.Context, _ domain.Invocation, l events.LoopDetected) error {
		*found = append(*found, l)
		return &domain.Denied{Action: "doom_loop", Resource: l.Tool, Reason: "it repeats"}
	}
}

// A prompt of a person resets the loop detector.
func TestAPersonsPromptEndsTheCountOfALoop(t *testing.T) {
	t.Parallel()
	same := func(id string) []runner.Part { return []runner.Part{ask(id, "echo", `{"text":"again"}`)} }
	done := []runner.Part{runner.TextPart("done")}
	var found []events.LoopDetected
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{
		Provider: plays(same("1"), done, same("2"), done, same("3"), same("4"), done), Looping: loops(&found),
	})
	session := p.open("look")
	p.run(session)
	for range 2 {
		p.admit(session, "look again")
		p.run(session)
	}
	if len(found) != 0 {
		t.Fatalf("loops = %+v, want none: a person asked for each call but one", found)
	}
}

// Calls of earlier runs count in the detection of a loop.
func TestALoopIsFoundAcrossRuns(t *testing.T) {
	t.Parallel()
	same := func(id string) []runner.Part { return []runner.Part{ask(id, "echo", `{"text":"again"}`)} }
	var found []events.LoopDetected
	broke := errors.New("the connection broke")
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Looping: loops(&found),
		Provider: &breaking{player: plays(same("1"), same("2"), same("3")), at: 3, err: broke}})
	session := p.open("go")
	if err := p.runner.Run(t.Context(), session); !errors.Is(err, broke) {
		t.Fatalf("Run = %v, want the provider's error", err)
	}
	p.run(session)
	if len(found) != 1 || found[0].Call != "3" || found[0].Period != 1 {
		t.Fatalf("loops = %+v, want one at the third call", found)
	}
}

// A breaking provider fails at one of its replies, once.
type breaking struct {
	*player
	at  int
	err error
}

func (b *breaking) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	if b.at--; b.at == 0 {
		return func(yield func(runner.Part, error) bool) { yield(nil, b.err) }
	}
	return b.player.Reply(ctx, turn)
}

// The settlement of a call that was refused for a loop has the offered registration.
func TestACallRefusedForALoopNamesItsOffer(t *testing.T) {
	t.Parallel()
	var found []events.LoopDetected
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays(cycle(1, 3)...), Looping: loops(&found)})
	session := p.open("go")
	p.run(session)
	ends, offered := p.ends(session), p.state(session).Messages[1].Reply.Offer.Tools[0]
	if last := ends[len(ends)-1]; last.Outcome != domain.DeniedByRule || last.Offered != offered {
		t.Errorf("the refused call = %+v, want it denied and offered as %+v", last, offered)
	}
	if broken := exceptions(t, p.ledger); len(broken) != 0 {
		t.Errorf("exceptions = %+v, want none", broken)
	}
}

func alternating(rounds int) [][]runner.Part {
	var replies [][]runner.Part
	for i := range rounds {
		replies = append(replies, []runner.Part{ask(fmt.Sprint("a", i), "echo", `{"text":"a"}`)},
			[]runner.Part{ask(fmt.Sprint("b", i), "echo", `{"text":"b"}`)})
	}
	return replies
}

// An interruption ends the running calls of its session, and is on record with its
// reason.
func TestAnInterruptionEndsItsCallsAndIsOnRecord(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	block := must(domain.Spec[nothing, string]{
		Execute: func(ctx context.Context, _ nothing, _ domain.Invocation) (string, error) {
			cancel(domain.ByUser)
			<-ctx.Done()
			return "", ctx.Err()
		},
	})
	model := plays([]runner.Part{ask("c1", "block", `{}`)})
	p := start(t, registry.Tools{"block": block}, runner.Config{Provider: model})
	session := p.open("go")
	if err := p.runner.Run(ctx, session); !errors.Is(err, domain.ErrInterrupted) {
		t.Fatalf("Run = %v, want the interruption", err)
	}
	end, s := p.ends(session)[0], p.state(session)
	const reads = "Tool execution interrupted (user): its effects are unknown"
	if end.Outcome != domain.Interrupted || end.Interruption != domain.ByUser || !end.Began || end.Text != reads {
		t.Fatalf("settlement = %+v, want interrupted by the user", end)
	}
	if s.Interrupted == nil || s.Interrupted.Reason != domain.ByUser {
		t.Fatalf("interruption = %+v, want one by the user", s.Interrupted)
	}
	p.run(session)
	if got := model.shown[1]; got != "user assistant tool" {
		t.Fatalf("on the next turn the model is shown %s, want the interrupted call as well", got)
	}
}

// Calls that had not begun at an interruption do not run.
func TestCallsNotBegunAreNotRunAfterAnInterruption(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	var count counter
	first := must(domain.Spec[nothing, string]{
		Execute: func(context.Context, nothing, domain.Invocation) (string, error) {
			cancel(domain.ByUser)
			return "done all the same", nil
		},
	})
	model := plays([]runner.Part{ask("c1", "first", `{}`), ask("c2", "echo", `{"text":"never"}`)})
	p := start(t, registry.Tools{"first": first, "echo": echo(&count)}, runner.Config{Provider: model, Parallel: 1})
	session := p.open("go")
	if err := p.runner.Run(ctx, session); !errors.Is(err, domain.ErrInterrupted) {
		t.Fatalf("Run = %v, want the interruption", err)
	}
	ends := p.ends(session)
	if ends[0].Outcome != domain.Succeeded || ends[1].Outcome != domain.Interrupted || ends[1].Began || count.total() != 0 {
		t.Fatalf("settlements = %+v, want a success that stands and one that never began", ends)
	}
}

// A call that began in a dead process ends as lost and does not run again.
// Scenario 122. Scenario 124.
func TestACallOfADeadProcessIsLostAndNeverRun(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	var count counter
	dead, err := boot(t, store, noOutputs{}, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: plays()})
	if err != nil {
		t.Fatal(err)
	}
	session := dead.open("go")
	begun, waiting := leave(t, dead, session)
	model := plays()
	next, err := boot(t, store, noOutputs{}, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: model})
	if err != nil {
		t.Fatal(err)
	}
	done := next.recoverOrphans()
	if len(done.Sessions) != 1 || len(done.Layers) != 1 || len(done.Processes) != 1 || len(model.turns) != 0 {
		t.Fatalf("RecoverAll = %+v in %d turns, want one of each and no turn", done, len(model.turns))
	}
	s := next.state(session)
	lost, _ := s.Call(begun.Message, begun.Call)
	stale, _ := s.Call(waiting.Message, waiting.Call)
	if lost.Settlement.Outcome != domain.Lost || stale.Settlement.Outcome != domain.Stale || stale.Settlement.ChangedBy.IsZero() {
		t.Fatalf("settlements = %+v and %+v, want lost, and stale by the event that closed the layer", lost.Settlement, stale.Settlement)
	}
	next.run(session)
	if count.total() != 0 || model.shown[0] != "user assistant tool tool" {
		t.Fatalf("%d runs, shown %s; want none, and both calls answered before the model is asked", count.total(), model.shown[0])
	}
	if again := next.recoverOrphans(); len(again.Sessions)+len(again.Layers)+len(again.Processes) != 0 {
		t.Fatalf("RecoverAll again = %+v, want nothing", again)
	}
	if got := exceptions(t, next.ledger); len(got) != 0 {
		t.Fatalf("exceptions = %v, want none", got)
	}
}

// leave puts a session into the state in which a process died: one call had begun, and
// one had not.
func leave(t *testing.T, p *program, session domain.SessionID) (begun, waiting domain.Invocation) {
	t.Helper()
	mint := p.ledger.Mint()
	m, err := p.registry.Materialize(t.Context(), registry.TurnSpec{ID: mint.Turn()})
	if err != nil {
		t.Fatal(err)
	}
	message, offer := mint.Message(), m.Offer()
	asked := []domain.Call{
		{ID: "c1", Name: "echo", Input: json.RawMessage(`{"text":"a"}`)},
		{ID: "c2", Name: "echo", Input: json.RawMessage(`{"text":"b"}`)},
	}
	of := func(e events.Event) events.Draft { return p.ledger.Draft(e, domain.EventID{}) }
	_, err = p.ledger.Append(t.Context(), events.SessionStream(session), 2,
		of(events.TurnMaterialized{Turn: offer.Turn, Message: message, Agent: "build", Tools: offer.Tools}),
		of(events.ReplyReceived{Turn: offer.Turn, Message: message, Calls: asked}),
		of(events.CallStarted{Turn: offer.Turn, Message: message, Call: "c1", Tool: "echo",
			Offered: offer.Tools[0], Effective: offer.Tools[0], Process: p.layers.Process()}))
	if err != nil {
		t.Fatal(err)
	}
	return domain.Invocation{Message: message, Call: "c1"}, domain.Invocation{Message: message, Call: "c2"}
}

// A permission request of a dead process is dismissed, and its call is lost.
func TestARequestForPermissionOfADeadProcessIsDismissed(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	dead, err := boot(t, store, noOutputs{}, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays()})
	if err != nil {
		t.Fatal(err)
	}
	session := dead.open("go")
	begun, _ := leave(t, dead, session)
	_, err = dead.ledger.Append(t.Context(), events.SessionStream(session), 5, dead.ledger.Draft(events.PermissionRequested{
		Permission: dead.ledger.Mint().Permission(), Message: begun.Message, Call: begun.Call, Action: "bash", Resources: []string{"ls"},
	}, domain.EventID{}))
	if err != nil {
		t.Fatal(err)
	}
	next, err := boot(t, store, noOutputs{}, registry.Tools{}, runner.Config{})
	if err != nil {
		t.Fatal(err)
	}
	next.recoverOrphans()
	if s := next.state(session); len(s.Asks) != 0 || len(exceptions(t, next.ledger)) != 0 {
		t.Fatalf("asks = %v, exceptions = %v; want none", s.Asks, exceptions(t, next.ledger))
	}
}

// A permission request whose call has ended, because the process died in between, is
// dismissed.
func TestARequestForPermissionWithoutAnOpenCallIsDismissed(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	dead, err := boot(t, store, noOutputs{}, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays([]runner.Part{ask("c1", "echo", `{"text":"a"}`)})})
	if err != nil {
		t.Fatal(err)
	}
	session := dead.open("go")
	dead.run(session)
	s := dead.state(session)
	_, err = dead.ledger.Append(t.Context(), events.SessionStream(session), s.Revision, dead.ledger.Draft(events.PermissionRequested{
		Permission: dead.ledger.Mint().Permission(), Message: s.Messages[1].ID, Call: "c1", Action: "bash", Resources: []string{"ls"},
	}, domain.EventID{}))
	if err != nil {
		t.Fatal(err)
	}
	next, err := boot(t, store, noOutputs{}, registry.Tools{}, runner.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if done := next.recoverOrphans(); len(done.Sessions) != 1 || len(exceptions(t, next.ledger)) != 0 {
		t.Fatalf("RecoverAll = %+v, exceptions = %v; want the session and none", done, exceptions(t, next.ledger))
	}
}

// The recorded turn of an offer without tools has an empty list of tools.
func TestATurnThatOffersNothingSaysSo(t *testing.T) {
	t.Parallel()
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{
		Provider: plays(),
		Profile: func(context.Context, *conversation.State) (runner.Profile, error) {
			return runner.Profile{Rules: domain.RuleSets{{{Action: "*", Resource: "*", Effect: domain.Deny}}}}, nil
		},
	})
	session := p.open("go")
	p.run(session)
	for e, err := range p.ledger.Entries(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "TurnMaterialized" && !strings.Contains(string(e.Data), `"tools":[]`) {
			t.Fatalf("record = %s, want an empty list of tools", e.Data)
		}
	}
}

// A run returns a conflict if another process appends to its session, and records nothing
// more.
func TestASessionThatSomebodyElseAppendsToConflictsAndStops(t *testing.T) {
	t.Parallel()
	var p *program
	var session domain.SessionID
	meddle := must(domain.Spec[nothing, string]{
		Execute: func(ctx context.Context, _ nothing, _ domain.Invocation) (string, error) {
			s := p.state(session)
			_, err := p.ledger.Append(ctx, events.SessionStream(session), s.Revision,
				p.ledger.Draft(events.PromptAdmitted{Message: p.ledger.Mint().Message(), Text: "from elsewhere"}, domain.EventID{}))
			return "meddled", err
		},
	})
	p = start(t, registry.Tools{"meddle": meddle}, runner.Config{Provider: plays([]runner.Part{ask("c1", "meddle", `{}`)})})
	session = p.open("go")
	if err := p.runner.Run(t.Context(), session); !errors.Is(err, events.ErrConflict) {
		t.Fatalf("Run = %v, want a conflict", err)
	}
	p.run(session)
	if end := p.ends(session)[0]; end.Outcome != domain.Lost {
		t.Fatalf("the call whose end could not be recorded ended %s, want lost", end.Outcome)
	}
}

// A session with events of unknown kinds is not run.
func TestASessionOfUnknownKindsIsNotRun(t *testing.T) {
	t.Parallel()
	p := start(t, registry.Tools{}, runner.Config{Provider: plays()})
	session := p.open("go")
	_, err := p.ledger.Append(t.Context(), events.SessionStream(session), 2,
		p.ledger.Draft(events.Unknown{Name: "BudgetSpent", Version: 1, Data: json.RawMessage(`{}`)}, domain.EventID{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.runner.Run(t.Context(), session); !errors.Is(err, events.ErrUnknownKind) || !strings.Contains(err.Error(), "BudgetSpent") {
		t.Fatalf("Run = %v, want ErrUnknownKind that names it", err)
	}
	if err := p.runner.Run(t.Context(), p.ledger.Mint().Session()); !errors.Is(err, runner.ErrNoSession) {
		t.Fatalf("Run of no session = %v, want ErrNoSession", err)
	}
}

// Note returns ErrNotRunning for a session that is not running.
func TestNoteNeedsARunningSession(t *testing.T) {
	t.Parallel()
	p := start(t, registry.Tools{}, runner.Config{Provider: plays()})
	session := p.open("go")
	err := p.runner.Note(t.Context(), domain.Invocation{Session: session}, events.SessionClosed{})
	if !errors.Is(err, runner.ErrNotRunning) {
		t.Fatalf("Note = %v, want ErrNotRunning", err)
	}
}

// The cause of a note is the start of its call.
func TestANoteComesOfTheCallItIsAbout(t *testing.T) {
	t.Parallel()
	var p *program
	noting := must(domain.Spec[nothing, string]{
		Execute: func(ctx context.Context, _ nothing, inv domain.Invocation) (string, error) {
			return "ok", p.runner.Note(ctx, inv, events.PermissionDecided{Permission: p.ledger.Mint().Permission()})
		},
	})
	p = start(t, registry.Tools{"noting": noting}, runner.Config{Provider: plays([]runner.Part{ask("c1", "noting", `{}`)})})
	session := p.open("go")
	p.run(session)
	var begun domain.EventID
	for v, err := range p.ledger.Read(t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch v.Event.(type) {
		case events.CallStarted:
			begun = v.ID
		case events.PermissionDecided:
			if v.Causation != begun || begun.IsZero() {
				t.Fatalf("the note comes of %s, want the start %s", v.Causation, begun)
			}
			return
		}
	}
	t.Fatal("no note is on record")
}
