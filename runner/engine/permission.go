package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A SavedApproval is an approval that a person saved, with its session and time.
type SavedApproval struct {
	events.ApprovalSaved
	Session domain.SessionID `json:"session"`
	At      time.Time        `json:"at"`
	Event   domain.EventID   `json:"event"` // the ApprovalSaved
}

// approvalAgent is the agent of an approval whose event names no agent. Programs that
// recorded no agent ran only this one.
const approvalAgent domain.AgentID = "build"

// SavedApprovals are the saved approvals of all sessions that are not revoked, in the
// order of the log. Expired approvals are included.
type SavedApprovals struct {
	Saved []SavedApproval `json:"saved"`
}

// Approvals returns the projection of [SavedApprovals]. An approval is valid only in the
// location in which it was saved, and only for the agent for which it was saved. The agent of
// an approval or a revocation without an agent is build.
func Approvals() projections.Projection[*SavedApprovals] {
	return projections.Projection[*SavedApprovals]{
		Name: "approvals", Version: 3,
		Reads: events.Filter{Kinds: []string{events.ApprovalSaved{}.Kind(), events.ApprovalRevoked{}.Kind()}},
		Init:  func() *SavedApprovals { return &SavedApprovals{} },
		Apply: func(s *SavedApprovals, v events.Envelope) *SavedApprovals {
			switch e := v.Event.(type) {
			case events.ApprovalSaved:
				e.Agent = cmp.Or(e.Agent, approvalAgent)
				s.revoke(events.ApprovalRevoked{Agent: e.Agent, Location: e.Location, Action: e.Action, Resource: e.Resource})
				s.Saved = append(s.Saved, SavedApproval{e, v.Correlation, v.Time, v.ID})
			case events.ApprovalRevoked:
				e.Agent = cmp.Or(e.Agent, approvalAgent)
				s.revoke(e)
			}
			return s
		},
	}
}

// revoke removes the approval with the agent, location, action and resource of e.
func (s *SavedApprovals) revoke(e events.ApprovalRevoked) {
	kept := s.Saved[:0]
	for _, a := range s.Saved {
		if a.Agent != e.Agent || a.Location != e.Location || a.Action != e.Action || a.Resource != e.Resource {
			kept = append(kept, a)
		}
	}
	s.Saved = kept
}

// forLocation returns the approvals of a location as a set for a gate.
func (s *SavedApprovals) forLocation(location string) *permission.Approvals {
	set := new(permission.Approvals)
	for _, a := range s.Saved {
		if a.Location == location {
			set.Add(permission.Approval{
				Permission: a.Permission, Session: a.Session, Agent: a.Agent, Action: a.Action, Resource: a.Resource,
				At: a.At, Expires: a.Expires, Person: a.Person, Event: a.Event,
			})
		}
	}
	return set
}

// A permissionRecorder is the permission.Recorder of a workspace. It appends permission
// events to the session of the call.
type permissionRecorder struct {
	workspace *Workspace
	location  string
}

// Requested records a permission request.
func (r *permissionRecorder) Requested(ctx context.Context, q permission.Request) error {
	return r.workspace.Runner.Note(ctx, q.Invocation, events.PermissionRequested{
		Permission: q.ID, Message: q.Invocation.Message, Call: q.Invocation.Call, Agent: q.Invocation.Agent,
		Action: q.Action, Resources: q.Resources, Save: q.Save, Metadata: q.Metadata, Shown: q.Shown,
	})
}

// Decided records the decision on a request.
func (r *permissionRecorder) Decided(ctx context.Context, d permission.Decision) error {
	e := events.PermissionDecided{
		Permission: d.Permission, Effect: d.Effect, By: events.Decider(d.By.String()), Rule: d.Rule,
		Scope: d.Choice.String(), Feedback: d.Feedback, WaitedMS: d.Waited.Milliseconds(), Person: d.Person,
	}
	for _, a := range d.Approvals {
		e.Approvals = append(e.Approvals, events.UsedApproval{Event: a.Event, Resource: a.Resource})
	}
	return r.workspace.Runner.Note(ctx, d.Invocation, e)
}

// Saved records an approval for later requests, in the session in which it was given.
func (r *permissionRecorder) Saved(ctx context.Context, a permission.Approval) (domain.EventID, error) {
	return r.workspace.Runner.Record(ctx, domain.Invocation{Session: a.Session}, events.ApprovalSaved{
		Permission: a.Permission, Agent: a.Agent, Location: r.location, Action: a.Action, Resource: a.Resource, Expires: a.Expires, Person: a.Person,
	})
}

// QuestionAsked records the questions of a call.
func (r *permissionRecorder) QuestionAsked(ctx context.Context, q permission.QuestionRequest) error {
	return r.workspace.Runner.Note(ctx, q.Invocation, events.QuestionAsked{
		Question: q.ID, Message: q.Invocation.Message, Call: q.Invocation.Call, Agent: q.Invocation.Agent, Questions: q.Questions,
	})
}

// QuestionAnswered records the answers to the questions of a call, or their dismissal.
func (r *permissionRecorder) QuestionAnswered(ctx context.Context, q permission.QuestionResult) error {
	e := events.QuestionAnswered{
		Question: q.ID, Dismissed: q.Dismissed, Feedback: q.Feedback, By: events.Decider(q.By.String()), WaitedMS: q.Waited.Milliseconds(), Person: q.Person,
	}
	for _, chosen := range q.Answers {
		e.Answers = append(e.Answers, events.AnsweredQuestion{Chosen: append([]string{}, chosen...)})
	}
	return r.workspace.Runner.Note(ctx, q.Invocation, e)
}

// Revoke records in the stream of this process that a person revoked approvals for a
// reason. It also removes the approvals from the workspaces of this process. It stops
// at the first error of the store; the approvals before that one are revoked.
func (p *Process) Revoke(ctx context.Context, revoked []SavedApproval, person, reason string) error {
	for _, a := range revoked {
		e := events.ApprovalRevoked{Agent: a.Agent, Location: a.Location, Action: a.Action, Resource: a.Resource, Person: person, Reason: reason}
		if err := p.record(ctx, e); err != nil {
			return fmt.Errorf("revoke the approval of %s %s: %w", a.Action, a.Resource, err)
		}
		p.mu.Lock()
		set := p.mu.approvals[a.Location]
		p.mu.Unlock()
		if set != nil {
			set.Revoke(a.Agent, a.Action, a.Resource)
		}
	}
	return nil
}

// approvalsAt returns the approvals of a location. All workspaces of the process with
// that location share the returned value.
func (p *Process) approvalsAt(location string, saved *SavedApprovals) *permission.Approvals {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.approvals[location] == nil {
		if p.mu.approvals == nil {
			p.mu.approvals = map[string]*permission.Approvals{}
		}
		p.mu.approvals[location] = saved.forLocation(location)
	}
	return p.mu.approvals[location]
}

// looping asks for permission to run a call that repeats earlier calls without progress.
func (w *Workspace) looping(ctx context.Context, inv domain.Invocation, found events.LoopDetected) error {
	return w.Gate.Assert(ctx, inv, permission.Ask{
		Action: "doom_loop", Resources: []string{found.Tool}, Save: []string{found.Tool},
		Preview: func(ctx context.Context) (domain.Preview, error) { return w.showLoop(ctx, inv, found) },
	})
}

// showLoop returns the preview of a permission request about a loop. The preview has
// the calls of one repetition with their inputs. showLoop reads the log of the session only
// if a compaction came during the repetition.
func (w *Workspace) showLoop(ctx context.Context, inv domain.Invocation, found events.LoopDetected) (domain.Preview, error) {
	var round []domain.Call
	w.Runner.Look(inv.Session, func(s *conversation.State) { round = loopRound(s, found) })
	if len(round) < found.Period {
		s, err := w.Conversation(ctx, inv.Session)
		if err != nil {
			return domain.Preview{}, fmt.Errorf("read the calls of a loop: %w", err)
		}
		round = loopRound(s, found)
	}
	return domain.NewPreview(domain.PreviewCall, roundText(round, found.Rounds)), nil
}

// loopRound returns the calls of the last repetition of a loop, as far as s has them. It
// searches from the end, where that repetition is.
func loopRound(s *conversation.State, found events.LoopDetected) (round []domain.Call) {
	for _, m := range slices.Backward(s.Messages) {
		if m.Reply == nil {
			continue
		}
		for _, c := range slices.Backward(m.Reply.Calls) {
			if len(round) > 0 || m.ID == found.Message && c.ID == found.Call {
				round = append(round, c.Call)
			}
			if len(round) == found.Period {
				slices.Reverse(round)
				return round
			}
		}
	}
	slices.Reverse(round)
	return round
}

// roundText returns the calls of one repetition of a loop, one on each line, and a last
// line with the number of repetitions.
func roundText(round []domain.Call, times int) string {
	var b strings.Builder
	for _, c := range round {
		fmt.Fprintf(&b, "%s %s\n", c.Name, c.Input)
	}
	fmt.Fprintf(&b, "(%d times in a row)", times)
	return b.String()
}
