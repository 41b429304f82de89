package permission

import (
	"context"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// AskQuestions asks the person the questions of a call and returns the answers in the form
// of QuestionReply.Answers. It records the questions before the person sees them, and the
// answers before it returns.
//
// AskQuestions returns ErrBadQuestion for questions outside the limits of a
// QuestionRequest, the cause of ctx if ctx ends before the answer, or an error of the
// Questioner or the Recorder. It returns a *domain.Declined if the person dismisses the
// questions or refuses another request of the session meanwhile, and a *domain.Denied if
// there is no person. The tool returns these two errors unchanged.
func (g *Gate) AskQuestions(ctx context.Context, inv domain.Invocation, questions []domain.Question) ([][]string, error) {
	if err := checkQuestions(questions); err != nil {
		return nil, fmt.Errorf("ask questions: %w", err)
	}
	r := QuestionRequest{ID: g.config.Mint.Permission(), Invocation: inv, Questions: cloneQuestions(questions)}
	if err := g.config.Recorder.QuestionAsked(ctx, r); err != nil {
		return nil, fmt.Errorf("record the questions %s: %w", r.ID, err)
	}
	asked := g.config.Now()
	reply, err := g.waitForReply(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("ask questions %s: %w", r.ID, err)
	}
	recording, cancel := withGracePeriod(ctx, recordGrace)
	defer cancel()
	return g.recordReply(recording, QuestionResult{ID: r.ID, Invocation: inv, QuestionReply: reply, Waited: g.config.Now().Sub(asked)})
}

// cloneQuestions copies questions with their options, so that the caller may reuse them.
func cloneQuestions(questions []domain.Question) []domain.Question {
	questions = slices.Clone(questions)
	for i := range questions {
		questions[i].Options = slices.Clone(questions[i].Options)
	}
	return questions
}

// waitForReply asks the Questioner and returns its reply. It returns an error for an
// invalid reply. If a person refuses another request of the session first, waitForReply
// returns a dismissal with the feedback of that refusal.
func (g *Gate) waitForReply(ctx context.Context, r QuestionRequest) (QuestionReply, error) {
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := &pendingPrompt{r.Invocation.Session, nil, end}
	g.addPending(w)
	reply, err := g.config.Questioner.AskQuestions(waiting, r)
	g.removePending(w)
	if err == nil {
		return reply, reply.check(r)
	}
	cause := context.Cause(waiting)
	if other, refused := cause.(*rejectionError); refused {
		return QuestionReply{Dismissed: true, Feedback: other.feedback, By: ByUser}, nil
	}
	if cause != nil {
		return QuestionReply{}, cause
	}
	return QuestionReply{}, err
}

// recordReply records the result of questions. If a person dismissed the questions,
// recordReply then refuses the other requests and questions of the session. It returns the
// results of AskQuestions.
func (g *Gate) recordReply(ctx context.Context, q QuestionResult) ([][]string, error) {
	if q.By == ByUser {
		q.Person = g.config.Person
	}
	if err := g.config.Recorder.QuestionAnswered(ctx, q); err != nil {
		return nil, fmt.Errorf("record the answer to %s: %w", q.ID, err)
	}
	switch {
	case !q.Dismissed:
		return q.Answers, nil
	case q.By == ByHeadless:
		return nil, &domain.Denied{Action: "question", Resource: "*", Reason: noPerson}
	}
	g.rejectSession(q.Invocation.Session, q.Feedback)
	return nil, &domain.Declined{Feedback: q.Feedback}
}
