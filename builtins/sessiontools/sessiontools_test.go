package sessiontools_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/domain"
)

// Tools names the first required field that a Config lacks.
func TestToolsNeedsEveryRequiredField(t *testing.T) {
	t.Parallel()
	for field, clear := range map[string]func(*sessiontools.Config){
		"Session":    func(c *sessiontools.Config) { c.Session = nil },
		"Permission": func(c *sessiontools.Config) { c.Permission = nil },
		"Subagents":  func(c *sessiontools.Config) { c.Subagents = nil },
		"PlanFile":   func(c *sessiontools.Config) { c.PlanFile = nil },
	} {
		c := newWorld(t, setup{}).config()
		clear(&c)
		if _, err := sessiontools.Tools(c); !errors.Is(err, sessiontools.ErrBadConfig) || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("Tools without %s = %v, want ErrBadConfig that names it", field, err)
		}
	}
}

// Every tool but task, batch and invalid asks first, and every action is the name of its
// tool.
func TestToolsDeclareWhetherTheyAskFirst(t *testing.T) {
	t.Parallel()
	tools, err := sessiontools.Tools(newWorld(t, setup{}).config())
	if err != nil {
		t.Fatal(err)
	}
	asksFirst := map[string]bool{
		"todowrite": true, "todoread": true, "question": true, "plan_enter": true, "plan_exit": true, "task": false, "batch": false, "invalid": false,
	}
	if got, want := slices.Sorted(maps.Keys(tools)), slices.Sorted(maps.Keys(asksFirst)); !slices.Equal(got, want) {
		t.Fatalf("Tools = %v, want %v", got, want)
	}
	for name, tool := range tools {
		if tool.AsksFirst() != asksFirst[name] || tool.Action(domain.Name(name)) != name {
			t.Errorf("%s: asks first: %v, action %s", name, tool.AsksFirst(), tool.Action(domain.Name(name)))
		}
	}
}

// A refused request ends each tool that asks before it acts on the session.
func TestARefusedRequestEndsTheCall(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]string{
		"todowrite": twoTodos, "todoread": `{}`, "question": threeQuestions, "plan_enter": `{}`, "task": `{"agent":"explore","description":"a","prompt":"b"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &person{decide: permission.Answer{Choice: permission.Reject, By: permission.ByUser}}
			w := newWorld(t, setup{rules: "ask * *", person: p, agents: subagents, tasks: func(sessiontools.Task) any {
				t.Error("the task ran")
				return nil
			}}, call(name, input)).run()
			w.wantEnd("c1", domain.DeclinedByUser)
			if len(w.facts.requests) != 1 || w.facts.requests[0].Action != name || len(p.asked) != 0 {
				t.Errorf("requests = %v and questions = %v, want one request for %s", w.facts.requests, p.asked, name)
			}
		})
	}
}

// A call of invalid returns the fault to the model.
func TestInvalidReturnsTheFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{rules: "deny * *"}, call("invalid", `{"tool":"read","error":"path is missing"}`)).run()
	if got := w.text("c1"); got != "The arguments provided to the tool are invalid: path is missing" {
		t.Errorf("the model reads %q", got)
	}
}

// Each call has a title for a person.
func TestEachCallHasATitle(t *testing.T) {
	t.Parallel()
	tools, err := sessiontools.Tools(newWorld(t, setup{}).config())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, input, title string }{
		{"todowrite", twoTodos, "2 todos"},
		{"todowrite", oneTodo, "1 todo"},
		{"question", threeQuestions, "Store and 2 other questions"},
		{"question", `{"questions":[{"question":"Which name?"}]}`, "Which name?"},
		{"task", `{"agent":"a","description":"find the lock","prompt":"b"}`, "find the lock"},
		{"batch", `{"tool_calls":[{"tool":"read"},{"tool":"grep"}]}`, "2 calls: read, grep"},
		{"plan_enter", `{}`, "switch to the plan agent"},
		{"plan_exit", `{}`, "switch to the build agent"},
		{"invalid", `{"tool":"read","error":"e"}`, "invalid arguments of read"},
	} {
		bound, err := tools[c.name].Bind([]byte(c.input))
		if err != nil || bound.Title() != c.title {
			t.Errorf("Bind(%s %s) = title %q, %v, want %q", c.name, c.input, bound.Title(), err, c.title)
		}
	}
}
