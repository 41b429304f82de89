package replay_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/replay"
)

// everyEnd records a session whose calls end in many ways: in parallel, added by a call,
// refused, stale, broken and kept.
func everyEnd(t *testing.T) *world {
	var w *world
	looping := func(ctx context.Context, inv domain.Invocation, _ events.LoopDetected) error {
		id := w.ledger.Mint().Permission()
		err := w.runner.Note(ctx, inv, events.PermissionRequested{
			Permission: id, Message: inv.Message, Call: inv.Call, Agent: inv.Agent, Action: "doom_loop", Resources: []string{"echo"},
		})
		if err == nil {
			err = w.runner.Note(ctx, inv, events.PermissionDecided{Permission: id, Effect: domain.Deny, By: events.ByHeadless, Scope: "reject"})
		}
		if err != nil {
			return err
		}
		return &domain.Denied{Action: "doom_loop", Resource: "echo", Reason: "no person was asked"}
	}
	profile := runner.Profile{System: "You are a test.", Rules: domain.RuleSets{{{Action: "*", Resource: "*", Effect: domain.Allow}, {Action: "wait", Resource: "*", Effect: domain.Deny, Source: "rules:7"}}}}
	w = newWorld(t, runner.Config{Looping: looping, Profile: profiles(profile)})
	w.replies.add(text("I begin."), call("a", "echo", `{"text":"hello"}`), call("b", "long", `{"text":"line"}`), call("c", "fail", `{"text":"it"}`), finish)
	w.replies.add(call("a", "panic", `{"text":"x"}`), call("b", "broken", `{"text":"host"}`), call("c", "ask", `{"text":"yes"}`), call("d", "ask", `{"text":"not now"}`), finish)
	w.replies.add(call("a", "deny", `{"text":"y"}`), call("b", "echo", `{"txt":1}`), call("c", "nosuch", `{}`), call("d", "wait", `{}`), call("e", "batch", `{"text":""}`), finish)
	w.replies.addReply(preparedReply{parts: []runner.Part{call("a", "echo", `{"text":"stale"}`), finish}, before: func(ctx context.Context) error {
		if err := w.scope.Close(ctx); err != nil {
			return err
		}
		w.scope = w.layer.Scope()
		return w.scope.Register(ctx, w.tools())
	}})
	for range 3 {
		w.replies.add(call("l", "echo", `{"text":"again"}`), finish)
	}
	w.replies.add(call("a", "later", `{"text":"second"}`), call("b", "echo", `{"text":"first"}`), finish)
	w.replies.add(text("Done."), finish)
	w.mustPrompt("Do everything.")
	w.replies.add(text("You are welcome."), finish)
	w.mustPrompt("Thank you.")
	return w
}

// profiles returns a source of one profile.
func profiles(p runner.Profile) func(context.Context, *conversation.State) (runner.Profile, error) {
	return func(context.Context, *conversation.State) (runner.Profile, error) { return p, nil }
}

func TestReplayOfASessionIsTheSame(t *testing.T) {
	t.Parallel()
	w := everyEnd(t)
	r := w.same()
	if r.Turns != 10 || r.Calls != 18 {
		t.Errorf("the replay compared %d turns and %d calls, want 10 and 18", r.Turns, r.Calls)
	}
	ends := map[domain.Outcome]bool{}
	for v, err := range w.ledger.Read(t.Context(), events.SessionStream(w.session), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.CallSettled); ok {
			ends[e.Outcome] = true
		}
	}
	for _, o := range []domain.Outcome{domain.Succeeded, domain.Failed, domain.UnknownTool, domain.Stale, domain.InvalidInput, domain.DeniedByRule, domain.DeclinedByUser, domain.Defective} {
		if !ends[o] {
			t.Errorf("the recording has no call that ended as %v: the test proves less than it says", o)
		}
	}
}

func TestReplayOfARefusedAndAFailedReplyIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runner.Config{})
	broken := &runner.ProviderError{Provider: "test", Model: "model-1", Failure: runner.Overloaded, Status: 529, Message: "busy"}
	w.replies.addReply(preparedReply{parts: []runner.Part{text("half")}, fails: broken})
	if err := w.prompt("Go."); err == nil {
		t.Fatal("a broken reply ended no run")
	}
	w.replies.add(call("x", "echo", `{}`), call("x", "echo", `{}`), finish)
	_ = w.runner.Run(t.Context(), w.session)
	w.replies.addReply(preparedReply{fails: broken})
	_ = w.runner.Run(t.Context(), w.session)
	w.replies.addReply(preparedReply{parts: []runner.Part{runner.FailedAttemptPart{Attempt: 1, Err: broken}, text("At last."), finish}})
	if err := w.runner.Run(t.Context(), w.session); err != nil {
		t.Fatal(err)
	}
	w.same()
}

func TestReplayOfAnInterruptedSessionIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runner.Config{})
	ctx, interrupt := context.WithCancelCause(t.Context())
	w.replies.add(call("a", "wait", `{"text":"for ever"}`), call("b", "interrupt", `{}`), finish)
	stop, err := domain.Make(domain.Spec[struct{}, string]{Description: "Interrupts.", Execute: func(ctx context.Context, _ struct{}, _ domain.Invocation) (string, error) {
		interrupt(domain.ByUser)
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.layer.Scope().Register(t.Context(), registry.Tools{"interrupt": stop}); err != nil {
		t.Fatal(err)
	}
	if err := w.runner.Admit(t.Context(), w.session, w.ledger.Mint().Message(), "Go."); err != nil {
		t.Fatal(err)
	}
	if err := w.runner.Run(ctx, w.session); err == nil {
		t.Fatal("an interrupted run ended without an error")
	}
	ctx, interrupt = context.WithCancelCause(t.Context())
	w.replies.addReply(preparedReply{parts: []runner.Part{text("I was about to")}, before: func(context.Context) error { interrupt(domain.ByUser); return context.Cause(ctx) }})
	_ = w.runner.Run(ctx, w.session)
	w.replies.add(text("Fine."), finish)
	w.mustPrompt("Go on.")
	w.same()
}

func TestReplayOfALimitOfStepsIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runner.Config{Steps: 2})
	w.replies.add(call("a", "echo", `{"text":"1"}`), finish)
	w.replies.add(text("No more."), call("b", "echo", `{"text":"2"}`), finish)
	w.mustPrompt("Go.")
	w.same()
}

func TestReplayNamesWhatCannotBeCompared(t *testing.T) {
	t.Parallel()
	w := everyEnd(t)
	clear(w.kept.data)
	r := w.same()
	for _, n := range r.Incomparable {
		if strings.Contains(n.Reason, "not kept any more") && n.Where == "end of b of turn 1" {
			return
		}
	}
	t.Errorf("the report does not name the call whose output was pruned: %v", r.Incomparable)
}

// on returns a sabotage of the nth event of a type.
func on[E events.Event](n int, change func(E) events.Event) func(events.Event) events.Event {
	seen := 0
	return func(e events.Event) events.Event {
		own, ok := e.(E)
		if !ok {
			return nil
		}
		if seen++; seen != n {
			return nil
		}
		return change(own)
	}
}

// outcomeOf returns a sabotage of the first call with an outcome.
func outcomeOf(o domain.Outcome, change func(events.CallSettled) events.Event) func(events.Event) events.Event {
	return func(e events.Event) events.Event {
		if own, ok := e.(events.CallSettled); ok && own.Outcome == o {
			return change(own)
		}
		return nil
	}
}

func TestReplayOfAForkIsTheSame(t *testing.T) {
	t.Parallel()
	w := everyEnd(t)
	var turns []domain.TurnID
	for v, err := range w.ledger.Read(t.Context(), events.SessionStream(w.session), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.TurnMaterialized); ok {
			turns = append(turns, e.Turn)
		}
	}
	for range 2 { // a fork, and a fork of the fork
		forked, err := runner.FindFork(t.Context(), w.ledger, w.session, runner.ForkPlace{Turn: turns[5]})
		if err != nil {
			t.Fatal(err)
		}
		if w.session, err = w.runner.Fork(t.Context(), forked, ""); err != nil {
			t.Fatal(err)
		}
		w.replies.add(call("m", "echo", `{"text":"again"}`), finish)
		w.replies.add(text("Enough."), finish)
		if err := w.runner.Run(t.Context(), w.session); err != nil {
			t.Fatal(err)
		}
		w.same()
		r := w.replay(on(1, func(e events.SessionForked) events.Event { e.Call = "other"; return e }))
		if r.Same || r.Differences[0].Field != "call" {
			t.Errorf("the replay of another fork has the differences %v", r.Differences)
		}
	}
}

func TestAnotherOrderIsNamed(t *testing.T) {
	t.Parallel()
	w := everyEnd(t)
	r := w.replayInto(&swapping{Store: eventstest.NewSlice()})
	if len(r.Differences) != 1 || r.Differences[0].Kind != replay.OrderDiffers {
		t.Errorf("the report has %v, want one difference of the order", r.Differences)
	}
}

func TestReplayOfAKilledProcessIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runner.Config{})
	kill, err := domain.Make(domain.Spec[struct{}, string]{Description: "Kills the process.", Execute: func(ctx context.Context, _ struct{}, inv domain.Invocation) (string, error) {
		id := w.ledger.Mint().Permission()
		err := w.runner.Note(ctx, inv, events.PermissionRequested{Permission: id, Message: inv.Message, Call: inv.Call, Agent: inv.Agent, Action: "kill", Resources: []string{"it"}})
		w.alive.Store(false)
		return "", err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.layer.Scope().Register(t.Context(), registry.Tools{"kill": kill}); err != nil {
		t.Fatal(err)
	}
	w.replies.add(call("a", "echo", `{"text":"1"}`), finish)
	w.replies.add(call("b", "kill", `{}`), finish)
	if err := w.prompt("Go."); err == nil {
		t.Fatal("the run of a killed process ended without an error")
	}
	w.restart()
	w.replies.add(text("Where was I?"), call("c", "echo", `{"text":"3"}`), finish)
	w.replies.add(text("Done."), finish)
	if err := w.runner.Run(t.Context(), w.session); err != nil {
		t.Fatal(err)
	}
	w.same()
}

func TestPlantedDifferencesAreNamed(t *testing.T) {
	t.Parallel()
	w := everyEnd(t)
	for name, planted := range map[string]struct {
		kind  replay.DifferenceKind
		field string
		plant func(events.Event) events.Event
	}{
		"a prompt": {replay.PromptDiffers, "text", on(2, func(e events.PromptAdmitted) events.Event { e.Text += "!"; return e })},
		"a definition": {replay.DefinitionDiffers, "echo", on(3, func(e events.TurnMaterialized) events.Event {
			for i := range e.Tools {
				if e.Tools[i].Name == "echo" {
					e.Tools[i].Fingerprint[0]++
				}
			}
			return e
		})},
		"an offer": {replay.OfferDiffers, "tools", on(3, func(e events.TurnMaterialized) events.Event { e.Tools = e.Tools[1:]; return e })},
		"the order of tools": {replay.OfferDiffers, "order of the tools", on(3, func(e events.TurnMaterialized) events.Event {
			e.Tools[0], e.Tools[1] = e.Tools[1], e.Tools[0]
			return e
		})},
		"a registration": {replay.RegistrationDiffers, "echo", on(3, func(e events.TurnMaterialized) events.Event {
			for i := range e.Tools {
				if e.Tools[i].Name == "echo" {
					e.Tools[i].Registration = domain.RegistrationID(e.Turn)
				}
			}
			return e
		})},
		"a hidden tool":   {replay.HiddenDiffers, "hidden", on(3, func(e events.TurnMaterialized) events.Event { e.Hidden[0].Rule.Source = "rules:8"; return e })},
		"a system prompt": {replay.RequestDiffers, "system", on(3, func(e events.TurnMaterialized) events.Event { e.System = e.Schemas; return e })},
		"the schemas":     {replay.RequestDiffers, "schemas", on(3, func(e events.TurnMaterialized) events.Event { e.Schemas = e.Parameters; return e })},
		"a reply":         {replay.ReplyDiffers, "text", on(1, func(e events.ReplyReceived) events.Event { e.Text = "I start."; return e })},
		"an outcome": {replay.OutcomeDiffers, "outcome", outcomeOf(domain.Failed, func(e events.CallSettled) events.Event {
			e.Outcome = domain.Defective
			return e
		})},
		"an output":       {replay.OutputDiffers, "structured", outcomeOf(domain.Succeeded, func(e events.CallSettled) events.Event { e.Structured = []byte(`"other"`); return e })},
		"an error text":   {replay.OutputDiffers, "text", outcomeOf(domain.Failed, func(e events.CallSettled) events.Event { e.Text += "."; return e })},
		"the evidence":    {replay.StalenessDiffers, "changed_by", outcomeOf(domain.Stale, func(e events.CallSettled) events.Event { e.ChangedBy = domain.EventID{}; return e })},
		"a decision":      {replay.DecisionDiffers, "effect", on(1, func(e events.PermissionDecided) events.Event { e.Effect = domain.Ask; return e })},
		"a title":         {replay.StartDiffers, "title", on(1, func(e events.CallStarted) events.Event { e.Title = "do something else"; return e })},
		"a missing event": {replay.MissingEvent, "", on(1, func(e events.LoopDetected) events.Event { return events.CommandRan{By: events.ByUser} })},
		"an extra event":  {replay.ExtraEvent, "", on(1, func(e events.LoopDetected) events.Event { e.Call = "other"; return e })},
		"a kept output": {replay.KeptDiffers, "retained", func(e events.Event) events.Event {
			own, ok := e.(events.CallSettled)
			if !ok || len(own.Retained) == 0 {
				return nil
			}
			own.Retained[0].SHA256 = strings.Repeat("0", 64)
			return own
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.replay(planted.plant)
			if r.Same || len(r.Differences) == 0 {
				t.Fatal("the planted difference was not found")
			}
			for _, d := range r.Differences {
				if d.Kind == planted.kind && d.Field == planted.field {
					if d.Recorded == d.Replayed {
						t.Errorf("both sides of the difference are %q", d.Recorded)
					}
					return
				}
			}
			t.Errorf("the report has %v, want the kind %q in the field %q", r.Differences, planted.kind, planted.field)
		})
	}
}

// A program that did not record the text of the permission rules left their digest alone. The
// replay of its recording is the same, and says that the rules are not compared.
func TestReplayOfARecordingWithoutTheTextOfItsRulesIsTheSame(t *testing.T) {
	t.Parallel()
	w := everyEnd(t)
	rules := map[string]bool{}
	older := eventstest.NewSlice()
	revisions := map[events.Stream]events.Revision{}
	var history []events.Envelope
	for v, err := range w.ledger.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.TurnMaterialized); ok {
			rules[e.RulesText], e.RulesText = true, ""
			v.Event = e
		}
		history = append(history, v)
	}
	for _, v := range history {
		if e, ok := v.Event.(events.TextRecorded); ok && rules[e.Digest] {
			continue
		}
		revisions[v.Stream]++
		v.Revision = revisions[v.Stream]
		if err := projectionstest.Append(t.Context(), older, []events.Envelope{v}); err != nil {
			t.Fatal(err)
		}
	}
	w.store, w.ledger = older, events.NewLedger(older, w.ledger.Mint(), time.Now)
	r := w.same()
	if !slices.ContainsFunc(r.Incomparable, func(n replay.Incomparable) bool { return strings.Contains(n.Reason, "by their digest alone") }) {
		t.Errorf("the report does not say that the rules are not compared: %v", r.Incomparable)
	}
}
