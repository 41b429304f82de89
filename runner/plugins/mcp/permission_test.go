package mcp_test

import (
	"os"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// Scenario 160. A call is asked about unless a rule decides. A saved approval holds for one definition;
// a changed definition is asked about again, with what changed, also in a later process.
func TestApprovalHoldsForOneDefinition(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	w := openWorld(t, map[string]entry{"a": process("v1")}, nil, "", state)
	call := func(w *world) func() {
		return func() { w.want(w.call("a_tool", `{"n":1}`), domain.Succeeded, "called") }
	}
	first := w.answering(call(w), permission.Always)[0].(question)
	if first.Action != "mcp" || !strings.HasPrefix(first.Resources[0], "a_tool sha256:") || !strings.Contains(first.Shown.Text, `arguments: {"n":1}`) || strings.Contains(first.Shown.Text, "CHANGED") {
		t.Errorf("asked %s %q showing %q, want the tool with its definition and arguments", first.Action, first.Resources, first.Shown.Text)
	}
	w.answering(call(w))                              // the approval holds
	for _, mode := range []string{"v2", "v3", "v4"} { // another description, schema, annotation
		later := openWorld(t, map[string]entry{"a": process(mode)}, nil, "", state)
		second := later.answering(call(later), permission.Once)[0].(question)
		if second.Resources[0] == first.Resources[0] || !strings.Contains(second.Shown.Text, "HAS CHANGED") {
			t.Errorf("%s: asked %q showing %q, want another resource and the change", mode, second.Resources, second.Shown.Text)
		}
		if mode == "v2" && (!strings.Contains(second.Shown.Text, "-version v1") || !strings.Contains(second.Shown.Text, "+version v2")) {
			t.Errorf("shown %q, want the diff of the descriptions", second.Shown.Text)
		}
		again := openWorld(t, map[string]entry{"a": process("v1")}, nil, "", state)
		again.answering(call(again), permission.Once)
	}
}

// A refused call does not reach the server.
func TestRefusedCallIsNotSent(t *testing.T) {
	t.Parallel()
	w := openWorld(t, map[string]entry{"a": process("sdk")}, nil, "deny mcp a_die*\n", t.TempDir())
	w.want(w.call("a_die", `{}`), domain.DeniedByRule)
	w.answering(func() { w.want(w.call("a_die", `{}`), domain.DeniedByRule) })
	w.answering(func() { w.want(w.call("a_echo", `{"text":"x"}`), domain.DeclinedByUser) }, permission.Reject)
	w.answering(func() { w.want(w.call("a_echo", `{"text":"x"}`), domain.Succeeded, "echo x") }, permission.Once)
}

// A server of a project starts only after a person agreed to the command that is shown.
func TestServerOfAProjectStartsAfterPermission(t *testing.T) {
	t.Parallel()
	w := openWorld(t, nil, map[string]entry{"p": process("sdk").with("args", []string{"${HOME}/x"})}, "allow mcp *\n", t.TempDir())
	w.wantOffered("p_connect")
	w.answering(func() { w.want(w.call("p_connect", `{}`), domain.DeclinedByUser) }, permission.Reject)
	w.wantOffered("p_connect")
	asked := w.answering(func() { w.want(w.call("p_connect", `{}`), domain.Succeeded, "p_echo") }, permission.Once)[0].(question)
	shown := asked.Shown.Text
	if asked.Action != "project_mcp" || !strings.HasPrefix(asked.Resources[0], "p sha256:") || !strings.Contains(shown, os.Args[0]) || !strings.Contains(shown, "/h/x") || !strings.Contains(shown, "${HOME}/x") || !strings.Contains(shown, "TOKEN") {
		t.Errorf("asked %s %q showing %q, want the command, its arguments and the names of its environment", asked.Action, asked.Resources, shown)
	}
	w.want(w.call("p_echo", `{"text":"on"}`), domain.Succeeded, "echo on")
}

// The questions of a server reach the person, and the answers reach the server. A person
// who dismisses them refuses the call.
func TestQuestionsOfAServerReachThePerson(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"old", "rounds"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]entry{"a": process(mode)})
			m := w.offer()
			ask := func(outcome domain.Outcome, texts ...string) func() {
				return func() { w.want(w.settle(t.Context(), m, "a_ask", `{"text":""}`), outcome, texts...) }
			}
			answered := w.answering(ask(domain.Succeeded, "8080 fun"), permission.QuestionReply{Answers: [][]string{{"8080"}, {"fun"}}})
			f := answered[0].(form)
			if q := f.Questions; len(q) != 2 || !strings.Contains(q[0].Question, "The MCP server a asks: Which port? [redacted]") || len(q[1].Options) != 2 {
				t.Errorf("asked %+v, want the message of the server without the secret, and two fields", f.Questions)
			}
			w.answering(ask(domain.DeclinedByUser, "busy"), permission.QuestionReply{Dismissed: true, Feedback: "busy"})
			w.answering(ask(domain.Succeeded, "8080 fun"), permission.QuestionReply{Answers: [][]string{{"8080"}, {"for fun"}}})
			w.answering(ask(domain.Failed, "is none of the choices"), permission.QuestionReply{Answers: [][]string{{"8080"}, {"for no reason"}}})
			w.answering(ask(domain.Failed, "is no integer"), permission.QuestionReply{Answers: [][]string{{"many"}, nil}})
			if mode == "rounds" { // the SDK does not send such a question
				w.want(w.settle(t.Context(), m, "a_ask", `{"text":"url"}`), domain.Failed, "forms only", "example.com")
			}
		})
	}
}

// A field without an answer has the default of the form, if that is of the type of the
// field, and the question says so. An answer comes before the default.
func TestFieldsWithoutAnswersHaveTheirDefaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("rounds")})
	m := w.offer()
	for want, answers := range map[string][][]string{
		`accept {"a":"x","b":30,"c":95.5,"d":"off","e":true,"f":["q"]}`: make([][]string, 10),
		`accept {"a":"y","b":1,"c":95.5,"d":"on","e":false,"f":["p"]}`:  {{"y"}, {"1"}, nil, {"on"}, {"no"}, {"p"}, nil, nil, nil, nil},
		`cancel null`: {{"y"}, {"1"}, {"NaN"}, nil, nil, nil, nil, nil, nil, nil},
	} {
		f := w.answering(func() { w.want(w.settle(t.Context(), m, "a_ask", `{"text":"defaults"}`), domain.Succeeded, want) }, permission.QuestionReply{Answers: answers})[0].(form)
		for i, text := range []string{`if left empty: "x"`, "if left empty: 30", "if left empty: 95.5", `if left empty: "off"`, "if left empty: true", `if left empty: ["q"]`, "may be left empty", "may be left empty", "may be left empty", "may be left empty"} {
			if !strings.Contains(f.Questions[i].Question, text) {
				t.Errorf("question %d is %q, want one with %q", i, f.Questions[i].Question, text)
			}
		}
	}
}

// A person is asked the fields of a long form ten at a time.
func TestLongFormsAreAskedInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": process("rounds")})
	m := w.offer()
	first, second := make([][]string, 10), make([][]string, 3)
	first[9], second[2] = []string{"9"}, []string{"12"}
	call := func() {
		w.want(w.settle(t.Context(), m, "a_ask", `{"text":"long"}`), domain.Succeeded, `accept {"f09":9,"f12":12}`)
	}
	w.answering(call, permission.QuestionReply{Answers: first}, permission.QuestionReply{Answers: second})
	call = func() {
		w.want(w.settle(t.Context(), m, "a_ask", `{"text":"long"}`), domain.Succeeded, "decline")
	}
	w.answering(call, permission.QuestionReply{Answers: first}, permission.QuestionReply{Dismissed: true})
}
