package views

import (
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

func TestSummaryHasQuestionsAndAnswers(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]events.Event{
		"Which port? Why?":           events.QuestionAsked{Questions: []domain.Question{{Question: "Which port?"}, {Question: "Why?"}}},
		"80, 443; no answer":         events.QuestionAnswered{Answers: []events.AnsweredQuestion{{Chosen: []string{"80", "443"}}, {Chosen: []string{}}}, By: events.ByPerson},
		"dismissed by user: not now": events.QuestionAnswered{Dismissed: true, Feedback: "not now", By: events.ByPerson},
		"dismissed by headless":      events.QuestionAnswered{Dismissed: true, By: events.ByHeadless},
	} {
		if got := summary(e); got != want {
			t.Errorf("summary(%+v) = %q, want %q", e, got, want)
		}
	}
}
