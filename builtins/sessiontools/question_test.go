package sessiontools_test

import (
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

const threeQuestions = `{"questions":[
	{"question":"Which store?","header":"Store","options":[{"label":"Pebble","description":"embedded"},{"label":"Postgres"}]},
	{"question":"Which systems?","multiple":true,"options":[{"label":"Linux"},{"label":"macOS"}]},
	{"question":"Which name?"}]}`

// The model reads each question with its answer, and that a question is unanswered.
func TestTheModelReadsTheAnswersOfThePerson(t *testing.T) {
	t.Parallel()
	p := answers([]string{"Pebble"}, []string{"Linux", "macOS"}, nil)
	w := newWorld(t, setup{person: p}, call("question", threeQuestions)).run()
	want := `User has answered your questions: "Which store?"="Pebble", "Which systems?"="Linux, macOS", "Which name?"="Unanswered". You can now continue with the user's answers in mind.`
	if got := w.text("c1"); got != want {
		t.Errorf("the model reads %s, want %s", got, want)
	}
	if got := string(w.end("c1").Structured); got != `{"answers":[["Pebble"],["Linux","macOS"],[]]}` {
		t.Errorf("the output is %s", got)
	}
	if len(p.asked) != 3 || p.asked[0].Header != "Store" || p.asked[0].Options[0].Description != "embedded" || !p.asked[1].Multiple {
		t.Errorf("the person was asked %+v, want the questions of the call", p.asked)
	}
}

// A rule that denies question hides the tool. If it is called nevertheless, it is denied
// and no question is asked.
// Scenario 40.
func TestADeniedQuestionIsHiddenAndAsksNothing(t *testing.T) {
	t.Parallel()
	const rules = "allow * *\ndeny question *"
	hidden := newWorld(t, setup{rules: rules, hides: true, person: answers()}, call("question", threeQuestions)).run()
	if _, offered := hidden.model.offers(0, "question"); offered {
		t.Error("a turn offers question, want it hidden")
	}
	hidden.wantEnd("c1", domain.UnknownTool)
	p := answers([]string{"Pebble"}, nil, nil)
	open := newWorld(t, setup{rules: rules, person: p}, call("question", threeQuestions)).run()
	open.wantEnd("c1", domain.DeniedByRule, "Permission denied: question")
	if len(p.asked) != 0 || open.facts.asked != 0 {
		t.Errorf("the person was asked %v, want no question", p.asked)
	}
}

// A dismissal without feedback stops the run: it is interrupted, and the model has no
// other turn.
// Scenario 103.
func TestADismissedQuestionStopsTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{person: &person{reply: permission.QuestionReply{Dismissed: true, By: permission.ByUser}}}, call("question", threeQuestions)).run()
	w.wantEnd("c1", domain.DeclinedByUser)
	if w.state().Interrupted == nil || len(w.model.turns) != 1 {
		t.Errorf("interrupted = %v after %d turns, want an interruption after 1", w.state().Interrupted, len(w.model.turns))
	}
}

// The model reads the feedback of a dismissal, and the run goes on.
func TestADismissalWithFeedbackGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{person: &person{reply: permission.QuestionReply{Dismissed: true, Feedback: "ask the team", By: permission.ByUser}}}, call("question", threeQuestions)).run()
	w.wantEnd("c1", domain.DeclinedByUser, "ask the team")
	if w.state().Interrupted != nil || len(w.model.turns) != 2 {
		t.Errorf("interrupted = %v after %d turns, want no interruption and 2", w.state().Interrupted, len(w.model.turns))
	}
}

// Without a person the questions are denied, and the model reads that.
func TestAQuestionWithoutAPersonIsDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{}, call("question", threeQuestions)).run()
	w.wantEnd("c1", domain.DeniedByRule, "no one to ask")
}

// Questions outside the limits ask nothing, and the model reads the fault.
func TestInvalidQuestionsAreRefused(t *testing.T) {
	t.Parallel()
	options := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{"label":"a"},`, n), ",") }
	for name, c := range map[string]struct {
		input   string
		outcome domain.Outcome
		text    string
	}{
		"no questions":   {`{"questions":[]}`, domain.InvalidInput, "/questions"},
		"many questions": {`{"questions":[` + strings.TrimSuffix(strings.Repeat(`{"question":"a?"},`, 11), ",") + `]}`, domain.InvalidInput, "/questions"},
		"blank question": {`{"questions":[{"question":" "}]}`, domain.InvalidInput, "/questions/0/question"},
		"many options":   {`{"questions":[{"question":"a?","options":[` + options(21) + `]}]}`, domain.InvalidInput, "/questions/0/options"},
		"blank label":    {`{"questions":[{"question":"a?","options":[{"label":""}]}]}`, domain.InvalidInput, "/questions/0/options/0/label"},
		"equal labels":   {`{"questions":[{"question":"a?","options":[` + options(2) + `]}]}`, domain.Failed, "repeats the label"},
		"large text":     {`{"questions":[{"question":"` + strings.Repeat("a", 5000) + `"}]}`, domain.Failed, "5000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := answers([]string{"a"})
			w := newWorld(t, setup{person: p}, call("question", c.input)).run()
			w.wantEnd("c1", c.outcome, c.text)
			if len(p.asked) != 0 {
				t.Errorf("the person was asked %v, want no question", p.asked)
			}
		})
	}
}
