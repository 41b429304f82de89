package builtins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// ruled is a Permission that decides by rules alone. It refuses an action that the
// rules leave to a person.
type ruled domain.Rules

func (r ruled) Assert(_ context.Context, _ domain.Invocation, a permission.Ask) error {
	for _, resource := range a.Resources {
		if rule, _ := domain.Rules(r).Evaluate(a.Action, resource); rule.Effect != domain.Allow {
			return &domain.Denied{Action: a.Action, Resource: resource, Rule: rule}
		}
	}
	return nil
}

func (r ruled) Check(_ domain.Invocation, a permission.Ask) permission.Evaluation {
	return permission.EvaluateRules(domain.RuleSets{domain.Rules(r)}, a)
}

// The tools over a directory, with a rule for one command.
func Example() {
	dir, err := os.MkdirTemp("", "builtins")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	root, err := workspace.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer root.Close()
	rules, err := permission.ParseRules("rules", strings.NewReader("allow edit *\nallow bash cat *"))
	if err != nil {
		fmt.Println(err)
		return
	}
	tools, err := builtins.Tools(builtins.Config{Workspace: root, Permission: ruled(rules)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, call := range []struct{ tool, input string }{
		{"write", `{"path":"a.txt","content":"one\n"}`},
		{"edit", `{"path":"a.txt","oldString":"one","newString":"$1"}`},
		{"bash", `{"command":"cat a.txt"}`},
		{"bash", `{"command":"cat a.txt; rm a.txt"}`},
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
		first, _, _ := strings.Cut(output.Content().Text(), "\n")
		fmt.Println(first)
	}
	// Output:
	// Created file successfully: a.txt
	// Edited file successfully: a.txt
	// $1
	// Permission denied: bash rm a.txt
}
