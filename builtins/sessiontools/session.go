package sessiontools

import (
	"context"

	"github.com/settlement-ledger/ledger/domain"
)

// A CallSession is the session of a call, as its tools may use it. It is safe for concurrent
// use.
type CallSession interface {
	// Todos returns the list of tasks of a session.
	Todos(ctx context.Context, session domain.SessionID) ([]domain.Todo, error)
	// ReplaceTodos records a list of tasks in place of the list before.
	ReplaceTodos(ctx context.Context, inv domain.Invocation, todos []domain.Todo) error
	// SwitchAgent records that another agent takes the next turn of the session. It
	// returns a *domain.Failure for an unknown agent.
	SwitchAgent(ctx context.Context, inv domain.Invocation, agent domain.AgentID) error
	// SettleAdded records calls that the running call makes, and settles each through
	// the hooks and its own permissions. It returns the calls with the IDs that it gave
	// them and, in the same order, their settlements.
	SettleAdded(ctx context.Context, inv domain.Invocation, calls []domain.Call) ([]domain.Call, []domain.Settlement, error)
	// RunTask runs a task in a subsession to its end. Its errors are a *domain.Failure
	// for the model, a *domain.Declined if a person ended the subsession, the cause of
	// ctx, or an error for the operator.
	RunTask(ctx context.Context, inv domain.Invocation, task Task) (TaskResult, error)
	// AskQuestions asks a person and returns an answer to each question. An empty answer
	// means that the person left the question unanswered. AskQuestions returns a
	// *domain.Declined if the person dismisses the questions, and a *domain.Denied if no
	// person is available.
	AskQuestions(ctx context.Context, inv domain.Invocation, questions []domain.Question) ([][]string, error)
}

// A Task is the work of a subsession.
type Task struct {
	// Agent runs the subsession.
	Agent domain.AgentID
	// Description is a short title, and Prompt the first message.
	Description, Prompt string
	// Continue is a subsession of the same session that gets the prompt. Zero: a new one.
	Continue domain.SessionID
}

// A TaskResult is the end of a subsession.
type TaskResult struct {
	Session domain.SessionID
	// Text is the text of the last reply. It may be empty.
	Text string
}
