package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/builtins/sessiontools"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// DefaultTaskDepth is the maximum depth of subsessions where WorkspaceConfig.TaskDepth
// is zero.
const DefaultTaskDepth = 1

var _ sessiontools.CallSession = (*Workspace)(nil)

// Todos implements sessiontools.CallSession. Of a running session it reads the events after
// the last step.
func (w *Workspace) Todos(ctx context.Context, session domain.SessionID) (todos []domain.Todo, err error) {
	var after events.Revision
	w.Runner.Look(session, func(s *conversation.State) { todos, after = s.Todos, s.Revision })
	for v, err := range w.Process.config.Ledger.Read(ctx, events.SessionStream(session), after) {
		if err != nil {
			return nil, err
		}
		if e, ok := v.Event.(events.TodosReplaced); ok {
			todos = e.Todos
		}
	}
	return todos, nil
}

// ReplaceTodos implements sessiontools.CallSession.
func (w *Workspace) ReplaceTodos(ctx context.Context, inv domain.Invocation, todos []domain.Todo) error {
	return w.Runner.Note(ctx, inv, events.TodosReplaced{Message: inv.Message, Call: inv.Call, Todos: todos})
}

// SwitchAgent implements sessiontools.CallSession.
func (w *Workspace) SwitchAgent(ctx context.Context, inv domain.Invocation, agent domain.AgentID) error {
	if _, err := w.agent(agent); err != nil {
		return domain.Fail("Unable to switch to agent %s: %v", agent, err)
	}
	return w.Runner.Note(ctx, inv, events.AgentSwitched{Agent: agent, Previous: inv.Agent, Message: inv.Message, Call: inv.Call})
}

// SettleAdded implements sessiontools.CallSession, as [runner.Runner.SettleAdded] does.
func (w *Workspace) SettleAdded(ctx context.Context, inv domain.Invocation, calls []domain.Call) ([]domain.Call, []domain.Settlement, error) {
	return w.Runner.SettleAdded(ctx, inv, calls)
}

// AskQuestions implements sessiontools.CallSession.
func (w *Workspace) AskQuestions(ctx context.Context, inv domain.Invocation, questions []domain.Question) ([][]string, error) {
	return w.Gate.AskQuestions(ctx, inv, questions)
}

// RunTask implements sessiontools.CallSession. The subsession has its own stream. The
// rules of the agents above it bind the subsession, and it asks the same person. If ctx
// ends, the subsession is interrupted, and RunTask returns after the interruption is on
// record.
func (w *Workspace) RunTask(ctx context.Context, inv domain.Invocation, task sessiontools.Task) (sessiontools.TaskResult, error) {
	child, err := w.taskSession(ctx, inv, task)
	if err != nil {
		return sessiontools.TaskResult{}, err
	}
	inv.Report(domain.Progress{Content: domain.Contents{domain.Text("subsession " + child.String())}})
	if err := w.Runner.Admit(ctx, child, w.Process.config.Ledger.Mint().Message(), task.Prompt); err != nil {
		return sessiontools.TaskResult{}, fmt.Errorf("admit prompt of subsession %s: %w", child, err)
	}
	ran := w.Runner.Run(ctx, child)
	if ctx.Err() != nil {
		return sessiontools.TaskResult{}, errors.Join(context.Cause(ctx), ran)
	}
	if ran != nil {
		return sessiontools.TaskResult{}, domain.Fail("Subagent failed (sessionID: %s): %v", child, ran)
	}
	s, err := w.Conversation(ctx, child)
	if err != nil {
		return sessiontools.TaskResult{}, err
	}
	if s.Interrupted != nil {
		return sessiontools.TaskResult{}, &domain.Declined{}
	}
	return sessiontools.TaskResult{Session: child, Text: lastReply(s)}, nil
}

// lastReply returns the text of the last reply of a session.
func lastReply(s *conversation.State) string {
	for _, m := range slices.Backward(s.Messages) {
		if m.Reply != nil {
			return m.Reply.Text
		}
	}
	return ""
}

// taskSession returns the session that a task continues, or opens a new subsession. It
// returns a *domain.Failure for a task at the maximum depth, for an unknown agent, and for
// a session that it may not continue.
func (w *Workspace) taskSession(ctx context.Context, inv domain.Invocation, task sessiontools.Task) (domain.SessionID, error) {
	if _, err := w.agent(task.Agent); err != nil {
		return domain.SessionID{}, domain.Fail("Unknown agent: %s: %v", task.Agent, err)
	}
	if !task.Continue.IsZero() {
		return w.continuedTask(ctx, inv, task)
	}
	parent := w.session(inv.Session)
	if parent == nil {
		return domain.SessionID{}, fmt.Errorf("open subsession: session %s does not run in this workspace", inv.Session)
	}
	if depth := w.config.TaskDepth; len(parent.ancestors) >= depth {
		return domain.SessionID{}, domain.Fail("Subagent depth limit reached (%d). Do the work in this session, or ask the user to allow deeper subagents.", max(depth, 0))
	}
	return w.Runner.Open(ctx, events.SessionOpened{
		Agent: task.Agent, Location: w.config.Location, Model: parent.model,
		Parent: inv.Session, ParentMessage: inv.Message, ParentCall: inv.Call,
		Ancestors: append(slices.Clone(parent.ancestors), inv.Agent),
	})
}

// continuedTask returns the subsession that a task continues. It returns a *domain.Failure
// unless the calling agent opened the subsession in the session of the call, for the agent
// of the task.
func (w *Workspace) continuedTask(ctx context.Context, inv domain.Invocation, task sessiontools.Task) (domain.SessionID, error) {
	s, err := w.Conversation(ctx, task.Continue)
	switch {
	case err != nil:
		return domain.SessionID{}, err
	case s.Session.IsZero():
		return domain.SessionID{}, domain.Fail("Subagent session not found: %s", task.Continue)
	case s.Parent != inv.Session:
		return domain.SessionID{}, domain.Fail("Session %s is not a child of the current session", task.Continue)
	case s.Agent != task.Agent:
		return domain.SessionID{}, domain.Fail("Session %s is one of agent %s, not of %s", task.Continue, s.Agent, task.Agent)
	case len(s.Ancestors) == 0 || s.Ancestors[len(s.Ancestors)-1] != inv.Agent:
		return domain.SessionID{}, domain.Fail("Session %s was opened by another agent than %s, whose rules do not bind it. Start a new session.", task.Continue, inv.Agent)
	}
	return task.Continue, nil
}

// FileVersions returns the version of each file that a session read or changed last, by
// path, from the log.
func (w *Workspace) FileVersions(ctx context.Context, session domain.SessionID) (map[string]string, error) {
	s, err := w.Conversation(ctx, session)
	if err != nil {
		return nil, err
	}
	return s.Files, nil
}
