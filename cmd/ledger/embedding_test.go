package main

import (
	"context"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// oneCall is a provider whose model makes one call of the tool large and then ends the
// turn.
type oneCall struct{}

// Reply yields the call if the conversation holds only the prompt, and an empty reply
// otherwise.
func (oneCall) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		if len(turn.Conversation.Messages) == 1 {
			yield(runner.CallPart{ID: "call_1", Name: "large"}, nil)
		}
	}
}

// ledger verify accepts the log of a program that runs a session through package
// engine, with an output too large to show to the model.
func TestVerifyAcceptsTheLogOfAnEmbeddingProgram(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	tools := func(w *engine.Workspace) (registry.Tools, error) {
		large, err := domain.Make(domain.Spec[struct{}, string]{
			Description: "Returns a large text.",
			Execute: func(ctx context.Context, _ struct{}, call domain.Invocation) (string, error) {
				if err := w.Gate.Assert(ctx, call, permission.Ask{Action: "large", Resources: []string{"text"}}); err != nil {
					return "", err
				}
				return strings.Repeat("a line\n", 10_000), nil
			},
		})
		return registry.Tools{"large": large}, err
	}
	f, err := engine.OpenFolder(t.Context(), dir, "test", engine.WorkspaceConfig{
		Location: dir, Tools: tools, Runner: runner.Config{Provider: oneCall{}},
		Rules: domain.Rules{{Action: "*", Resource: "*", Effect: domain.Allow, Source: "test"}},
	})
	if err != nil {
		t.Fatalf("OpenFolder = %v", err)
	}
	session, err := f.Runner.Open(t.Context(), events.SessionOpened{Agent: "build", Location: dir})
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	if err := f.Runner.Admit(t.Context(), session, f.Ledger.Mint().Message(), "go"); err != nil {
		t.Fatalf("Admit = %v", err)
	}
	if err := f.Run(t.Context(), session); err != nil {
		t.Fatalf("Run = %v", err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatalf("Close = %v", err)
	}
	verified := ledger(t, dir, "verify", "-o", "json")
	v := decodeJSON[struct{ Settled, Open, Outputs int }](t, verified.out)
	if verified.exit != 0 || v.Settled != 1 || v.Open != 0 || v.Outputs == 0 {
		t.Errorf("ledger verify = exit %d, %+v, want exit 0 with one settled call and its output\n%s", verified.exit, v, verified.err)
	}
}
