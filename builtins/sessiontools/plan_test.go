package sessiontools_test

import (
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
)

// After the answer yes the next turn has the other agent, which is offered the tool that
// leads back.
func TestTheAnswerYesSwitchesTheAgent(t *testing.T) {
	t.Parallel()
	p := answers([]string{"Yes"})
	w := newWorld(t, setup{person: p}, call("plan_enter", `{}`), []runner.Part{callPart("c2", "plan_exit", `{}`)}).run()
	for i, want := range []domain.AgentID{"build", "plan", "build"} {
		if got := w.model.turns[i].Agent; got != want {
			t.Errorf("turn %d has the agent %s, want %s", i, got, want)
		}
		_, enter := w.model.offers(i, "plan_enter")
		_, exit := w.model.offers(i, "plan_exit")
		if enter != (want != "plan") || exit != (want == "plan") {
			t.Errorf("a turn of %s offers plan_enter: %v, plan_exit: %v", want, enter, exit)
		}
	}
	w.wantEnd("c1", domain.Succeeded, "you are the plan agent", planFile)
	w.wantEnd("c2", domain.Succeeded, "you are the build agent", planFile)
	if len(p.asked) != 2 || p.asked[1].Question != "Plan at "+planFile+" is complete. Would you like to switch to the build agent and start implementing?" {
		t.Errorf("the person was asked %+v", p.asked)
	}
}

// Without the answer yes the agent stays, the model reads why, and the run goes on.
func TestAnotherAnswerKeepsTheAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules   string
		person  *person
		outcome domain.Outcome
		text    string
	}{
		"no":         {"", answers([]string{"No"}), domain.DeclinedByUser, "The user does not want a plan first."},
		"text":       {"", answers([]string{"yes, but only for the parser"}), domain.DeclinedByUser, "The user answered: yes, but only for the parser"},
		"unanswered": {"", answers(nil), domain.DeclinedByUser, "The user does not want a plan first."},
		"feedback":   {"", &person{reply: permission.QuestionReply{Dismissed: true, Feedback: "later", By: permission.ByUser}}, domain.DeclinedByUser, "later"},
		"no person":  {"", nil, domain.DeniedByRule, "no one to ask"},
		"denied":     {"allow * *\ndeny plan_enter *", answers([]string{"Yes"}), domain.DeniedByRule, "Permission denied: plan_enter *"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{rules: c.rules, person: c.person}, call("plan_enter", `{}`)).run()
			w.wantEnd("c1", c.outcome, c.text)
			if len(w.model.turns) != 2 || w.model.turns[1].Agent != "build" {
				t.Errorf("there are %d turns, want a second one of build", len(w.model.turns))
			}
		})
	}
}

// A dismissal without feedback keeps the agent and stops the run.
func TestADismissedSwitchStopsTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{person: &person{reply: permission.QuestionReply{Dismissed: true, By: permission.ByUser}}}, call("plan_enter", `{}`)).run()
	w.wantEnd("c1", domain.DeclinedByUser)
	if s := w.state(); s.Interrupted == nil || s.Agent != "build" || len(w.model.turns) != 1 {
		t.Errorf("agent %s, interrupted %v after %d turns, want build and an interruption after 1", s.Agent, s.Interrupted, len(w.model.turns))
	}
}

// The tools that ask a person are offered to the configured clients alone.
func TestToolsThatAskAreOfferedWhereAPersonIs(t *testing.T) {
	t.Parallel()
	for client, want := range map[string]bool{"ledger": true, "ledger-desktop": true, "batch-job": false} {
		w := newWorld(t, setup{clients: []string{"ledger*"}, client: client}).run()
		for _, name := range []domain.Name{"question", "plan_enter"} {
			if _, offered := w.model.offers(0, name); offered != want {
				t.Errorf("client %s: %s is offered: %v, want %v", client, name, offered, want)
			}
		}
		if _, offered := w.model.offers(0, "todowrite"); !offered {
			t.Errorf("client %s: todowrite is not offered", client)
		}
	}
}
