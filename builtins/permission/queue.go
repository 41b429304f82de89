package permission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrNotPending says that a Queue has no pending request or questions with that ID.
var ErrNotPending = errors.New("no pending request has this ID")

// A Queue is an Approver and a Questioner. Its requests wait for Reply, its questions for
// Answer or Dismiss. The zero Queue is ready for use.
type Queue struct {
	requests  waitingList[Request, Answer]
	questions waitingList[QuestionRequest, QuestionReply]
}

// Decide waits for the reply to r. If ctx ends first, it removes the request and
// returns the cause of ctx.
func (q *Queue) Decide(ctx context.Context, r Request) (Answer, error) {
	return q.requests.wait(ctx, r.ID, r)
}

// Pending returns the pending requests, oldest first.
func (q *Queue) Pending() []Request { return q.requests.pending() }

// Reply answers a request on behalf of a person. It uses feedback only if the Choice is
// Reject. It returns ErrNotPending if the request is not pending, and ErrInvalidValue
// for an invalid Choice.
func (q *Queue) Reply(id domain.PermissionID, scope Choice, feedback string) error {
	if scope < Once || scope > Reject {
		return fmt.Errorf("reply to %s: %w: scope %s", id, ErrInvalidValue, scope)
	}
	e := q.requests.take(id)
	if e == nil {
		return fmt.Errorf("reply to %s: %w", id, ErrNotPending)
	}
	e.answer <- Answer{scope, feedback, ByUser}
	return nil
}

// AskQuestions waits for the answers to r, or for its dismissal. If ctx ends first, it
// removes the questions and returns the cause of ctx.
func (q *Queue) AskQuestions(ctx context.Context, r QuestionRequest) (QuestionReply, error) {
	return q.questions.wait(ctx, r.ID, r)
}

// PendingQuestions returns the pending questions, oldest first.
func (q *Queue) PendingQuestions() []QuestionRequest { return q.questions.pending() }

// Answer answers questions on behalf of a person, as QuestionReply.Answers documents. It
// returns ErrNotPending if the questions are not pending, and ErrInvalidValue for answers
// that do not belong to them; the questions are then still pending.
func (q *Queue) Answer(id domain.PermissionID, answers [][]string) error {
	return q.reply(id, QuestionReply{Answers: cloneAnswers(answers), By: ByUser})
}

// Dismiss dismisses questions on behalf of a person, with feedback for the model, which may be
// empty. It returns ErrNotPending if the questions are not pending, and ErrInvalidValue for
// feedback that is too long.
func (q *Queue) Dismiss(id domain.PermissionID, feedback string) error {
	return q.reply(id, QuestionReply{Dismissed: true, Feedback: feedback, By: ByUser})
}

// reply validates a reply to questions and sends it.
func (q *Queue) reply(id domain.PermissionID, reply QuestionReply) error {
	pending := q.questions.pending()
	if i := slices.IndexFunc(pending, func(r QuestionRequest) bool { return r.ID == id }); i >= 0 {
		if err := reply.check(pending[i]); err != nil {
			return fmt.Errorf("answer %s: %w", id, err)
		}
	}
	e := q.questions.take(id)
	if e == nil {
		return fmt.Errorf("answer %s: %w", id, ErrNotPending)
	}
	e.answer <- reply
	return nil
}

// cloneAnswers copies answers with their lists, so that the caller may reuse them.
func cloneAnswers(answers [][]string) [][]string {
	answers = slices.Clone(answers)
	for i := range answers {
		answers[i] = slices.Clone(answers[i])
	}
	return answers
}

// Headless is the Approver and the Questioner of a process without a person to ask: it
// rejects every request and dismisses every question.
type Headless struct{}

// Decide rejects the request.
func (Headless) Decide(context.Context, Request) (Answer, error) {
	return Answer{Choice: Reject, By: ByHeadless}, nil
}

// AskQuestions dismisses the questions.
func (Headless) AskQuestions(context.Context, QuestionRequest) (QuestionReply, error) {
	return QuestionReply{Dismissed: true, By: ByHeadless}, nil
}
