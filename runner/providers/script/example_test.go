package script_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/script"
)

func ExampleParse() {
	s, err := script.Parse("hello.json", strings.NewReader(`{
	  "schema_version": "ATIF-v1.7",
	  "agent": {"name": "build"},
	  "steps": [
	    {"source": "user", "message": "what is here?"},
	    {"source": "agent", "message": "", "tool_calls": [
	      {"tool_call_id": "c1", "function_name": "glob", "arguments": {"pattern": "*"}}]}
	  ]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Prompts(0))
	for part := range s.Reply(context.Background(), runner.Turn{Conversation: &conversation.State{}}) {
		if call, ok := part.(runner.CallPart); ok {
			fmt.Println(call.Name, string(call.Input))
		}
	}
	// Output:
	// [what is here?]
	// glob {"pattern": "*"}
}
