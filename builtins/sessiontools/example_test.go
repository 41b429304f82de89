package sessiontools_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/domain"
)

// A notebook is the CallSession of one list of tasks. The other tools do not work with it.
type notebook struct {
	sessiontools.CallSession
	todos []domain.Todo
}

// Todos returns the list.
func (n *notebook) Todos(context.Context, domain.SessionID) ([]domain.Todo, error) {
	return n.todos, nil
}

// ReplaceTodos replaces the list.
func (n *notebook) ReplaceTodos(_ context.Context, _ domain.Invocation, todos []domain.Todo) error {
	n.todos = todos
	return nil
}

// everything is a permission.Asserter that allows every request.
type everything struct{}

// Assert returns nil.
func (everything) Assert(context.Context, domain.Invocation, permission.Ask) error { return nil }

// The tools of a session that has a list of tasks.
func Example() {
	tools, err := sessiontools.Tools(sessiontools.Config{
		Session: &notebook{}, Permission: everything{},
		Subagents: func() []sessiontools.AgentInfo { return nil },
		PlanFile:  func(session domain.SessionID) string { return ".ledger/plans/" + session.String() + ".md" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, call := range []struct{ tool, input string }{
		{"todowrite", `{"todos":[{"content":"read the code","status":"pending","priority":"high"}]}`},
		{"todoread", `{}`},
		{"task", `{"agent":"build","description":"do it","prompt":"Do everything."}`},
	} {
		bound, err := tools[call.tool].Bind(json.RawMessage(call.input))
		if err != nil {
			fmt.Println(err)
			return
		}
		output, err := bound.Run(context.Background(), domain.Invocation{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s\n", output.Structured())
	}
	// Output:
	// {"todos":[{"content":"read the code","status":"pending","priority":"high"}]}
	// {"todos":[{"content":"read the code","status":"pending","priority":"high"}]}
	// Unknown agent: build. There is no agent for a task.
}
