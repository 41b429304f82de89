package sessiontools_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
)

// The two lists of the tests.
const (
	oneTodo  = `{"todos":[{"content":"read <the> code","status":"in_progress","priority":"high"}]}`
	twoTodos = `{"todos":[{"content":"read <the> code","status":"completed","priority":"high"},{"content":"test","status":"pending","priority":"low"}]}`
)

// A list replaces the one before, and todoread returns it.
// Scenario 158.
func TestTodosReplaceTheListBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{}, call("todowrite", oneTodo),
		[]runner.Part{callPart("c2", "todowrite", twoTodos)}, []runner.Part{callPart("c3", "todoread", `{}`)},
		[]runner.Part{callPart("c4", "todowrite", `{"todos":[]}`)}, []runner.Part{callPart("c5", "todoread", ``)}).run()
	want := "[\n  {\n    \"content\": \"read <the> code\",\n    \"status\": \"completed\",\n    \"priority\": \"high\"\n  }," +
		"\n  {\n    \"content\": \"test\",\n    \"status\": \"pending\",\n    \"priority\": \"low\"\n  }\n]"
	for id, text := range map[domain.CallID]string{"c2": want, "c3": want, "c4": "[]", "c5": "[]"} {
		if got := w.text(id); got != text {
			t.Errorf("%s: the model reads %s, want %s", id, got, text)
		}
	}
	if got := string(w.end("c2").Structured); got != twoTodos {
		t.Errorf("the output is %s, want the list", got)
	}
	if got := w.state().Todos; len(got) != 0 {
		t.Errorf("the session has %v, want the empty list", got)
	}
}

// A session without a list has the empty one.
func TestASessionWithoutTodosHasTheEmptyList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{}, call("todoread", `{}`)).run()
	if text, structured := w.text("c1"), string(w.end("c1").Structured); text != "[]" || structured != `{"todos":[]}` {
		t.Errorf("todoread = %s with %s, want the empty list", structured, text)
	}
}

// A refused call leaves the list as it was, whether a rule or a person refuses it.
// Scenario 158.
func TestARefusedTodoWriteLeavesTheList(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"rule":     {rules: "allow * *\ndeny todowrite *"},
		"person":   {rules: "ask todowrite *", person: &person{decide: permission.Answer{Choice: permission.Reject, Feedback: "not now", By: permission.ByUser}}},
		"headless": {rules: "ask todowrite *"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s, call("todowrite", twoTodos))
			w.must(w.setTodos([]domain.Todo{{Content: "before", Status: "pending", Priority: "low"}}))
			w.run()
			if end := w.end("c1"); end.Outcome != domain.DeniedByRule && end.Outcome != domain.DeclinedByUser {
				t.Errorf("todowrite = %s %q, want a refusal", end.Outcome, end.Text)
			}
			if got := w.state().Todos; len(got) != 1 || got[0].Content != "before" {
				t.Errorf("the session has %v, want the list before", got)
			}
		})
	}
}

// The person who decides about a list sees it, and the answer "always" holds for every
// later list.
func TestThePersonSeesTheListToApprove(t *testing.T) {
	t.Parallel()
	p := &person{decide: permission.Answer{Choice: permission.Always, By: permission.ByUser}}
	w := newWorld(t, setup{rules: "ask * *", person: p}, call("todowrite", oneTodo), []runner.Part{callPart("c2", "todowrite", twoTodos)}).run()
	if len(p.shown) != 1 || !strings.Contains(p.shown[0].Text, `"content": "read <the> code"`) {
		t.Errorf("the person saw %v, want the first list alone", p.shown)
	}
	if len(w.facts.saved) != 1 || w.facts.saved[0].Action != "todowrite" || w.facts.saved[0].Resource != "*" {
		t.Errorf("saved %v, want todowrite *", w.facts.saved)
	}
	if got := w.state().Todos; len(got) != 2 {
		t.Errorf("the session has %v, want the second list", got)
	}
}

// A list outside the limits changes nothing, and the model reads which entry is at fault.
func TestAnInvalidListOfTodosIsRefused(t *testing.T) {
	t.Parallel()
	entry := func(content, status, priority string) string {
		return marshal(t, map[string]any{"todos": []domain.Todo{{Content: "good", Status: "pending", Priority: "low"}, {Content: content, Status: status, Priority: priority}}})
	}
	for name, c := range map[string]struct {
		input   string
		outcome domain.Outcome
		text    string
	}{
		"blank content":    {entry(" \n", "pending", "low"), domain.InvalidInput, "/todos/1/content"},
		"unknown status":   {entry("a", "done", "low"), domain.InvalidInput, "/todos/1/status"},
		"unknown priority": {entry("a", "pending", "urgent"), domain.InvalidInput, "/todos/1/priority"},
		"long content":     {entry(strings.Repeat("a", 2001), "pending", "low"), domain.InvalidInput, "/todos/1/content"},
		"large content":    {entry(strings.Repeat("€", 1000), "pending", "low"), domain.Failed, "entry 2 has 3000 bytes"},
		"many entries":     {fmt.Sprintf(`{"todos":[%s]}`, strings.TrimSuffix(strings.Repeat(`{"content":"a","status":"pending","priority":"low"},`, 201), ",")), domain.InvalidInput, "/todos"},
		"no list":          {`{"todos":null}`, domain.InvalidInput, "/todos"},
		"no todos":         {`{}`, domain.InvalidInput, "todos"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{}, call("todowrite", c.input)).run()
			w.wantEnd("c1", c.outcome, c.text)
			if got := w.state().Todos; got != nil {
				t.Errorf("the session has %v, want no list", got)
			}
		})
	}
}

// The largest list is accepted whole.
func TestTheLargestListOfTodosIsAccepted(t *testing.T) {
	t.Parallel()
	list := make([]domain.Todo, 200)
	for i := range list {
		list[i] = domain.Todo{Content: fmt.Sprintf("%03d%s", i, strings.Repeat("a", 1997)), Status: "cancelled", Priority: "medium"}
	}
	w := newWorld(t, setup{}, call("todowrite", marshal(t, map[string]any{"todos": list}))).run()
	w.wantEnd("c1", domain.Succeeded)
	if diff := cmp.Diff(list, w.state().Todos); diff != "" {
		t.Errorf("the session has another list:\n%s", diff)
	}
}
