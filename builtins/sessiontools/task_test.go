package sessiontools_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/domain"
)

// child is the ID of a subsession.
const child = "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV"

var subagents = []sessiontools.AgentInfo{
	{Name: "general", Description: "Works on a part of a task.\nReports the result."}, {Name: "explore", Description: "Searches the project."},
}

// runsTasks returns tasks that all end with result, and stores the last task in task.
func runsTasks(task *sessiontools.Task, result any) func(sessiontools.Task) any {
	return func(asked sessiontools.Task) any {
		*task = asked
		return result
	}
}

// sessionID returns the ID of a text.
func sessionID(t testing.TB, text string) (id domain.SessionID) {
	t.Helper()
	if err := id.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return id
}

// A task runs with the agent and the prompt of the call, and the model reads the reply
// with the ID of its session.
func TestATaskReturnsTheReplyOfTheSubagent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input, reply string
		want         sessiontools.Task
		text         string
	}{
		"new": {
			`{"agent":"explore","description":"find the lock","prompt":"Where is it?"}`, "in a.go",
			sessiontools.Task{Agent: "explore", Description: "find the lock", Prompt: "Where is it?"}, "in a.go",
		},
		"continued": {
			`{"agent":"explore","description":"go on","prompt":"And b?","sessionID":"` + child + `"}`, " ",
			sessiontools.Task{Agent: "explore", Description: "go on", Prompt: "And b?", Continue: sessionID(t, child)}, "(no text)",
		},
		"blank session": {
			`{"agent":"general","description":"go on","prompt":"And b?","sessionID":""}`, "done",
			sessiontools.Task{Agent: "general", Description: "go on", Prompt: "And b?"}, "done",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got sessiontools.Task
			result := sessiontools.TaskResult{Session: sessionID(t, child), Text: c.reply}
			w := newWorld(t, setup{agents: subagents, tasks: runsTasks(&got, result)}, call("task", c.input)).run()
			if want := "<subagent sessionID=\"" + child + "\" state=\"completed\">\n" + c.text + "\n</subagent>"; w.text("c1") != want {
				t.Errorf("the model reads %s, want %s", w.text("c1"), want)
			}
			if got != c.want {
				t.Errorf("RunTask(%+v), want %+v", got, c.want)
			}
		})
	}
}

// A task that cannot begin runs no subagent, and the model reads the reason.
func TestATaskThatCannotBeginRunsNoSubagent(t *testing.T) {
	t.Parallel()
	input := func(agent, session string) string {
		return `{"agent":"` + agent + `","description":"a","prompt":"b","sessionID":"` + session + `"}`
	}
	for name, c := range map[string]struct {
		rules, input string
		agents       []sessiontools.AgentInfo
		outcome      domain.Outcome
		text         string
	}{
		"unknown agent":   {"", input("build", ""), subagents, domain.Failed, "Unknown agent: build. The agents for a task are: explore, general"},
		"no agents":       {"", input("build", ""), nil, domain.Failed, "Unknown agent: build. There is no agent for a task."},
		"no session":      {"", input("explore", "ses_1"), subagents, domain.Failed, `Subagent session not found: "ses_1"`},
		"denied agent":    {"allow * *\ndeny task explore", input("explore", ""), subagents, domain.DeniedByRule, "Permission denied: task explore"},
		"no person":       {"ask task *", input("explore", ""), subagents, domain.DeniedByRule, "no one to ask"},
		"blank prompt":    {"", `{"agent":"explore","description":"a","prompt":" "}`, subagents, domain.InvalidInput, "/prompt"},
		"old agent field": {"", `{"subagent_type":"explore","description":"a","prompt":"b"}`, subagents, domain.InvalidInput, "agent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ran := func(task sessiontools.Task) any {
				t.Errorf("RunTask(%+v), want no task", task)
				return sessiontools.TaskResult{}
			}
			w := newWorld(t, setup{rules: c.rules, agents: c.agents, tasks: ran}, call("task", c.input)).run()
			w.wantEnd("c1", c.outcome, c.text)
		})
	}
}

// The failure of a subagent reaches the model as the session reports it. If a person ended
// the subsession, the run of the parent stops too.
func TestTheEndOfASubagentIsTheEndOfTheTask(t *testing.T) {
	t.Parallel()
	const input = `{"agent":"explore","description":"a","prompt":"b"}`
	var asked sessiontools.Task
	w := newWorld(t, setup{agents: subagents, tasks: runsTasks(&asked, domain.Fail("Subagent depth limit reached (1). Do the work here."))}, call("task", input)).run()
	w.wantEnd("c1", domain.Failed, "Subagent depth limit reached (1). Do the work here.")
	w = newWorld(t, setup{agents: subagents, tasks: runsTasks(&asked, error(&domain.Declined{}))}, call("task", input)).run()
	w.wantEnd("c1", domain.DeclinedByUser)
	if w.state().Interrupted == nil || len(w.model.turns) != 1 {
		t.Errorf("interrupted = %v after %d turns, want an interruption after 1", w.state().Interrupted, len(w.model.turns))
	}
}

// The person who decides about a task sees its prompt, and the answer "always" holds for
// this agent alone.
func TestTheAnswerAlwaysHoldsForOneSubagent(t *testing.T) {
	t.Parallel()
	p := &person{decide: permission.Answer{Choice: permission.Always, By: permission.ByUser}}
	var asked sessiontools.Task
	w := newWorld(t, setup{rules: "ask * *", person: p, agents: subagents, tasks: runsTasks(&asked, sessiontools.TaskResult{Session: sessionID(t, child)})},
		call("task", `{"agent":"explore","description":"find it","prompt":"Search everything."}`)).run()
	if len(p.shown) != 1 || !strings.Contains(p.shown[0].Text, "find it") || !strings.Contains(p.shown[0].Text, "Search everything.") {
		t.Errorf("the person saw %v, want the task", p.shown)
	}
	if len(w.facts.saved) != 1 || w.facts.saved[0].Action != "task" || w.facts.saved[0].Resource != "explore" {
		t.Errorf("saved %v, want task explore", w.facts.saved)
	}
}

// The description of a turn lists the agents that no rule denies, each on one line.
func TestTaskListsTheAgentsThatNoRuleDenies(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]string{
		"allow * *":                       "The agents:\n- explore: Searches the project.\n- general: Works on a part of a task. Reports the result.\n",
		"ask task *":                      "The agents:\n- explore: Searches the project.\n- general: Works on a part of a task. Reports the result.\n",
		"allow * *\ndeny task explore":    "The agents:\n- general: Works on a part of a task. Reports the result.\n",
		"deny task e*\ndeny task genera?": "The agents:\nNone. Every task is refused: do the work yourself.\n",
	} {
		w := newWorld(t, setup{rules: rules, hides: true, agents: subagents}).run()
		d, offered := w.model.offers(0, "task")
		if !offered || !strings.HasSuffix(d.Description, want) {
			t.Errorf("under %q: offered %v with %q, want the end %q", rules, offered, d.Description, want)
		}
	}
}

// The list of agents in the description is bounded: a project with thousands of agent files
// does not fill the request of every turn.
func TestTaskBoundsTheListOfAgents(t *testing.T) {
	t.Parallel()
	var many []sessiontools.AgentInfo
	for i := range 1000 {
		many = append(many, sessiontools.AgentInfo{Name: domain.AgentID(fmt.Sprintf("agent%04d", i)), Description: strings.Repeat("x", 300)})
	}
	w := newWorld(t, setup{rules: "allow * *", hides: true, agents: many}).run()
	d, _ := w.model.offers(0, "task")
	listed := strings.Count(d.Description, "\n- agent")
	if want := fmt.Sprintf("\n(%d further agents)\n", len(many)-listed); listed == 0 || len(d.Description) > 20<<10 || !strings.HasSuffix(d.Description, want) {
		t.Errorf("the description has %d bytes and %d agents, and does not end with %q", len(d.Description), listed, want)
	}
}
