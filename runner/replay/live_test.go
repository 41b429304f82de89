package replay_test

import (
	"context"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/replay"
)

// A live model that asks for other calls than the tape has misses, drifts and leaves calls
// unused, and each is named as what it is. A miss runs a real tool only if it may.
func TestALiveModelIsComparedWithTheTape(t *testing.T) {
	t.Parallel()
	for _, real := range []bool{false, true} {
		w := newWorld(t, runner.Config{})
		w.replies.add(call("a", "echo", `{"text":"one"}`), call("b", "long", `{"text":"line"}`), call("c", "fail", `{"text":"x"}`), call("d", "echo", `{"text":"left"}`), finish)
		w.replies.add(text("Done."), finish)
		w.mustPrompt("Go.")
		tape, err := replay.ReadTape(t.Context(), w.ledger, w.session)
		if err != nil {
			t.Fatal(err)
		}

		today := newWorld(t, runner.Config{})
		ran := 0
		count := func(_ context.Context, in textInput, _ domain.Invocation) (string, error) {
			ran++
			return "real " + in.Text, nil
		}
		tools := w.tools()
		tools["echo"] = w.makeTool("Returns its text.", count)
		tools["deny"] = w.makeTool("Is denied.", count)
		tools["fail"] = w.makeTool("Fails in another way.", count)
		delete(tools, "ask")
		live := tape.LiveTools(w.kept.open, real, func(text string) string { return text })
		wrapped, err := live.Wrap(tools)
		if err != nil {
			t.Fatal(err)
		}
		if err := today.scope.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := today.layer.Scope().Register(t.Context(), wrapped); err != nil {
			t.Fatal(err)
		}
		r, err := today.layers.Registry(registry.Config{Outputs: today.kept}, today.layer)
		if err != nil {
			t.Fatal(err)
		}
		today.replies.add(call("1", "echo", `{ "text": "one" }`), call("2", "long", `{"text":"line"}`), call("3", "fail", `{"text":"x"}`), finish)
		today.replies.add(call("4", "echo", `{"text":"another"}`), call("5", "deny", `{"text":"new"}`), finish)
		today.replies.add(text("Done."), finish)
		today.runner = runner.New(runner.Config{Ledger: today.ledger, Registry: r, Provider: today.replies, Parallel: 1})
		today.mustPrompt("Go.")
		report, err := live.Report(t.Context(), today.ledger, today.session)
		if err != nil {
			t.Fatal(err)
		}
		found := map[replay.DifferenceKind][]string{}
		for _, d := range report.Differences {
			found[d.Kind] = append(found[d.Kind], d.Event)
		}
		if len(found[replay.Miss]) != 1 || found[replay.Miss][0] != "call 5 of deny" {
			t.Errorf("real %v: misses %q, want call 5", real, found[replay.Miss])
		}
		if len(found[replay.InputDrift]) != 1 || found[replay.InputDrift][0] != "call 4 of echo" {
			t.Errorf("real %v: input drifts %q, want call 4", real, found[replay.InputDrift])
		}
		if len(found[replay.DefinitionDrift]) != 2 || found[replay.DefinitionDrift][0] != "tool fail" || found[replay.DefinitionDrift][1] != "tool ask" {
			t.Errorf("real %v: definition drifts %q, want those of fail and ask", real, found[replay.DefinitionDrift])
		}
		if len(report.Unused) != 1 || report.Unused[0].Call != "d" || report.Same {
			t.Errorf("real %v: not asked for: %v, want call d", real, report.Unused)
		}
		if want := map[bool]int{false: 0, true: 2}[real]; ran != want {
			t.Errorf("real %v: %d real tools ran, want %d", real, ran, want)
		}
		ends := today.ends()
		if len(ends) != 5 || ends["1"] != domain.Succeeded || ends["2"] != domain.Succeeded || ends["3"] != domain.Failed {
			t.Errorf("real %v: the calls ended as %v, want the recorded ends of 1, 2 and 3", real, ends)
		}
	}
}
