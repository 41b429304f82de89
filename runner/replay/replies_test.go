package replay_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/transcripts"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/replay"
)

// Recorded replies that meet other tools show which calls end otherwise.
func TestRealToolsAreComparedCallByCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runner.Config{})
	w.replies.add(call("a", "echo", `{"text":"one"}`), call("b", "echo", `{"text":"two"}`), call("c", "fail", `{"text":"three"}`), finish)
	w.replies.add(text("Well."), finish)
	w.mustPrompt("Go.")
	w.replies.add(text("Bye."), finish)
	w.mustPrompt("Stop.")
	tape, err := replay.ReadTape(t.Context(), w.ledger, w.session)
	if err != nil {
		t.Fatal(err)
	}

	other := newWorld(t, runner.Config{})
	if err := other.scope.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	tools := w.tools()
	tools["fail"] = w.makeTool("Fails.", func(_ context.Context, in textInput, _ domain.Invocation) (string, error) { return in.Text, nil })
	tools["echo"] = w.makeTool("Returns its text.", func(_ context.Context, in textInput, _ domain.Invocation) (string, error) {
		if in.Text == "two" {
			return "2", nil
		}
		return in.Text, nil
	})
	if err := other.layer.Scope().Register(t.Context(), tools); err != nil {
		t.Fatal(err)
	}
	r, err := other.layers.Registry(registry.Config{Outputs: other.kept}, other.layer)
	if err != nil {
		t.Fatal(err)
	}
	var run *runner.Runner
	same := func(text string) string { return text }
	admit := func(ctx context.Context, p replay.Prompt) error {
		return run.Admit(ctx, other.session, other.ledger.Mint().Message(), p.Text, p.Media...)
	}
	replies := tape.Replies(same, admit)
	run = runner.New(runner.Config{Ledger: other.ledger, Registry: r, Provider: replies})
	for _, p := range replies.First() {
		if err := admit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.Run(t.Context(), other.session); err != nil || replies.Left() > 0 {
		t.Fatalf("the run ended with %v, and %d replies are left", err, replies.Left())
	}
	report, err := replies.Compare(t.Context(), other.ledger, other.session, same)
	if err != nil {
		t.Fatal(err)
	}
	found := map[domain.CallID]replay.DifferenceKind{}
	for _, d := range report.Differences {
		found[d.Call] = d.Kind
		if d.Recorded == "" || d.Replayed == "" {
			t.Errorf("the difference %v lacks a side", d)
		}
	}
	if len(found) != 2 || found["b"] != replay.OutputDiffers || found["c"] != replay.OutcomeDiffers {
		t.Errorf("the differences are %v, want the output of b and the outcome of c", found)
	}
}

// The sessions of the sample transcripts are the same in what can be compared.
func TestReplayOfImportedSessionsIsTheSame(t *testing.T) {
	t.Parallel()
	l := events.NewLedger(eventstest.NewSlice(), newWorld(t, runner.Config{}).ledger.Mint(), newWorld(t, runner.Config{}).ledger.Now)
	importSamples(t, l)
	sessions := 0
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		e, ok := v.Event.(events.SessionOpened)
		if !ok {
			continue
		}
		tape, err := replay.ReadTape(t.Context(), l, e.Session)
		if err != nil {
			continue // a session without a turn
		}
		sessions++
		report, err := tape.Run(t.Context(), replay.Config{Store: eventstest.NewSlice(), Mint: l.Mint(), Now: l.Now, Process: l.Mint().Process()})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range report.Differences {
			t.Errorf("session %s: %v\n recorded: %.300s\n replayed: %.300s", e.Origin.Source, d, d.Recorded, d.Replayed)
		}
		if len(report.Incomparable) == 0 {
			t.Errorf("session %s: the report does not say that the offers cannot be compared", e.Origin.Source)
		}
	}
	if sessions == 0 {
		t.Error("no session was replayed")
	}
}

// importSamples imports a small transcript, and those of LEDGER_TRANSCRIPTS.
func importSamples(t *testing.T, l *events.Ledger) {
	t.Helper()
	files := []string{filepath.Join("..", "..", "events", "transcripts", "testdata", "garden.jsonl")}
	folder := os.Getenv("LEDGER_TRANSCRIPTS")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared", "transcripts")
	}
	more, err := filepath.Glob(filepath.Join(folder, "claude-code", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, more...) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		transcript, err := transcripts.ReadClaudeCode(name, bytes.NewReader(data))
		if err == nil {
			_, err = transcript.Import(t.Context(), l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
