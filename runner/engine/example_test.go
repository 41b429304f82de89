package engine_test

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

func Example() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "example-")
	defer os.RemoveAll(dir)
	allow := domain.Rules{{Action: "*", Resource: "*", Effect: domain.Allow, Source: "example"}}
	w, err := engine.OpenFolder(ctx, dir, "example", engine.WorkspaceConfig{
		Location: dir, Tools: tools, Runner: runner.Config{Provider: model{}},
		Rules: allow,
	})
	if err != nil {
		panic(err)
	}
	session, err := w.Runner.Open(ctx, events.SessionOpened{Agent: "build", Location: dir})
	fmt.Println(err, w.Runner.Admit(ctx, session, w.Ledger.Mint().Message(), "Greet Ada."))
	fmt.Println(w.Run(ctx, session))
	s, err := w.Conversation(ctx, session)
	fmt.Println(s.Messages[1].Reply.Calls[0].Settlement.ToolResult().Text, err)
	fmt.Println(w.Close(ctx)) // now ledger --store DIR verify accepts the log
	// Output:
	// <nil> <nil>
	// <nil>
	// Hello, Ada <nil>
	// <nil>
}

func tools(w *engine.Workspace) (registry.Tools, error) {
	greet, err := domain.Make(domain.Spec[struct{ Name string }, string]{
		Description: "Greets a person.",
		Execute: func(ctx context.Context, in struct{ Name string }, call domain.Invocation) (string, error) {
			return "Hello, " + in.Name, w.Gate.Assert(ctx, call, permission.Ask{Action: "greet", Resources: []string{in.Name}})
		},
	})
	return registry.Tools{"greet": greet}, err
}

type model struct{} // it calls greet once and is done

func (model) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		if len(turn.Conversation.Messages) == 1 {
			yield(runner.CallPart{ID: "call_1", Name: "greet", Input: []byte(`{"Name":"Ada"}`)}, nil)
		}
	}
}
