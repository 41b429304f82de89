package engine_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// approvals appends approvals and revocations to a log, and returns the agents and actions
// that the projection has then.
func approvals(t *testing.T, history ...events.Event) []string {
	t.Helper()
	l, p := ledgerOver(eventstest.NewSlice()), engine.Approvals()
	stream := events.SessionStream(l.Mint().Session())
	for i, e := range history {
		if _, err := l.Append(t.Context(), stream, events.Revision(i), l.Draft(e, domain.EventID{})); err != nil {
			t.Fatal(err)
		}
	}
	state, err := projections.Fold(p, p.Init(), l.Read(t.Context(), stream, 0))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, a := range state.Saved {
		left = append(left, string(a.Agent)+" "+a.Action)
	}
	return left
}

func TestSavedApprovalBelongsToItsAgent(t *testing.T) {
	t.Parallel()
	saved := func(agent domain.AgentID) events.ApprovalSaved {
		return events.ApprovalSaved{Agent: agent, Location: "/w", Action: "bash", Resource: "*"}
	}
	revoked := func(agent domain.AgentID) events.ApprovalRevoked {
		return events.ApprovalRevoked{Agent: agent, Location: "/w", Action: "bash", Resource: "*"}
	}
	for _, row := range []struct {
		history []events.Event
		want    []string
	}{
		{[]events.Event{saved("plan"), saved("build"), saved("plan")}, []string{"build bash", "plan bash"}},
		{[]events.Event{saved("plan"), saved("build"), revoked("plan")}, []string{"build bash"}},
		{[]events.Event{saved("plan"), revoked("build")}, []string{"plan bash"}},
		{[]events.Event{saved("")}, []string{"build bash"}}, // of a program that recorded no agent
		{[]events.Event{saved(""), saved("build")}, []string{"build bash"}},
		{[]events.Event{saved("plan"), saved(""), revoked("")}, []string{"plan bash"}},
		{[]events.Event{saved(""), revoked("build")}, nil},
	} {
		if got := approvals(t, row.history...); !reflect.DeepEqual(got, row.want) {
			t.Errorf("after %+v: %q, want %q", row.history, got, row.want)
		}
	}
}

// A respondent is a Questioner that always gives the same reply.
type respondent permission.QuestionReply

func (r respondent) AskQuestions(context.Context, permission.QuestionRequest) (permission.QuestionReply, error) {
	return permission.QuestionReply(r), nil
}

// An interrupter is a Questioner that interrupts the run and gives no reply.
type interrupter struct{ interrupt context.CancelCauseFunc }

func (i interrupter) AskQuestions(ctx context.Context, _ permission.QuestionRequest) (permission.QuestionReply, error) {
	i.interrupt(domain.ByUser)
	<-ctx.Done()
	return permission.QuestionReply{}, context.Cause(ctx)
}

// consulting returns a tool that asks questions.
func consulting(questions []domain.Question) func(*engine.Workspace) (registry.Tools, error) {
	return func(w *engine.Workspace) (registry.Tools, error) {
		tool, err := domain.Make(domain.Spec[struct{ Name string }, [][]string]{
			Description: "Asks.",
			Execute: func(ctx context.Context, _ struct{ Name string }, call domain.Invocation) ([][]string, error) {
				return w.Gate.AskQuestions(ctx, call, questions)
			},
		})
		return registry.Tools{"greet": tool}, err
	}
}

func TestQuestionsAndAnswersAreOnRecord(t *testing.T) {
	t.Parallel()
	questions := []domain.Question{{Question: "Why?"}, {Question: "Which?", Header: "Port", Options: []domain.QuestionOption{{Label: "80"}}}}
	interrupted, interrupt := context.WithCancelCause(t.Context())
	for _, row := range []struct {
		questioner permission.Questioner
		want       events.QuestionAnswered
		outcome    domain.Outcome
	}{
		{
			respondent{Answers: [][]string{nil, {"80"}}, By: permission.ByUser},
			events.QuestionAnswered{Answers: []events.AnsweredQuestion{{Chosen: []string{}}, {Chosen: []string{"80"}}}, By: events.ByPerson, Person: "ada"}, domain.Succeeded,
		},
		{
			respondent{Dismissed: true, Feedback: "later", By: permission.ByUser},
			events.QuestionAnswered{Dismissed: true, Feedback: "later", By: events.ByPerson, Person: "ada"}, domain.DeclinedByUser,
		},
		{nil, events.QuestionAnswered{Dismissed: true, By: events.ByHeadless}, domain.DeniedByRule},
		{interrupter{interrupt}, events.QuestionAnswered{Dismissed: true, By: events.ByRecovery}, domain.Interrupted},
	} {
		l := ledgerOver(eventstest.NewSlice())
		p := start(t, engine.ProcessConfig{Ledger: l})
		w := open(t, p, "/w", engine.WorkspaceConfig{Questioner: row.questioner, Person: "ada", Rules: rules("allow * *"), Tools: consulting(questions)})
		session := prompted(t, l, w)
		if err := w.Run(interrupted, session); err != nil && !errors.Is(err, domain.ErrInterrupted) {
			t.Fatalf("Run = %v", err)
		}
		if got := outcome(t, w, session); got != row.outcome {
			t.Errorf("the call ended %v, want %v", got, row.outcome)
		}
		var asked []events.QuestionAsked
		var answered []events.QuestionAnswered
		for v, err := range l.Read(t.Context(), events.SessionStream(session), 0) {
			if err != nil {
				t.Fatal(err)
			}
			switch e := v.Event.(type) {
			case events.QuestionAsked:
				asked = append(asked, e)
			case events.QuestionAnswered:
				if len(asked) != 1 || e.Question != asked[0].Question {
					t.Errorf("the answer to %v is on record after the questions %+v", e.Question, asked)
				}
				e.Question, e.WaitedMS = domain.PermissionID{}, 0
				answered = append(answered, e)
			}
		}
		if len(asked) != 1 || asked[0].Call != "call_1" || asked[0].Agent != "build" || !reflect.DeepEqual(asked[0].Questions, questions) {
			t.Errorf("asked %+v, want the questions of the call", asked)
		}
		if !reflect.DeepEqual(answered, []events.QuestionAnswered{row.want}) {
			t.Errorf("answered %+v, want %+v", answered, row.want)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if broken := exceptions(t, l); len(broken) != 0 {
			t.Errorf("the log breaks laws: %v", broken)
		}
	}
}

// A call of a session that has not run in the workspace is denied, although the configured
// rules allow it: the agents above the session are not known.
func TestACallOfASessionThatDoesNotRunHereIsDenied(t *testing.T) {
	t.Parallel()
	l := ledgerOver(eventstest.NewSlice())
	w := open(t, start(t, engine.ProcessConfig{Ledger: l}), "/w", engine.WorkspaceConfig{Rules: rules("allow * *")})
	inv := domain.Invocation{Session: l.Mint().Session(), Agent: "build"}
	ask := permission.Ask{Action: "act", Resources: []string{"x"}}
	if got := w.Gate.Check(inv, ask).Effect; got != domain.Deny {
		t.Errorf("Check of a session that does not run here = %s, want deny", got)
	}
	if err := w.Gate.Assert(t.Context(), inv, ask); err == nil {
		t.Error("Assert allowed a call of a session that does not run here")
	}
}
