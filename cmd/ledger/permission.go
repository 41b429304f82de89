package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
)

// defaultRules are those of a run without --rules: what the workspace holds
// may be read and changed, what lies outside and what may hold secrets is
// asked about.
//
//go:embed default.rules
var defaultRules string

// loadRules reads a file of rules, or the default ones where none is named.
func loadRules(path string) (domain.Rules, error) {
	if path == "" {
		return permission.ParseRules("default rules", strings.NewReader(defaultRules))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, hinted(fmt.Errorf("--rules: %w", err), "name a file of rules, one on each line: EFFECT ACTION RESOURCE")
	}
	defer f.Close()
	rules, err := permission.ParseRules(path, f)
	if err != nil {
		return nil, hinted(err, "effects are allow, ask and deny; the last rule that matches decides")
	}
	return rules, nil
}

// An approval is one that was saved, and for which location.
type approval struct {
	events.ApprovalSaved
	Session domain.SessionID `json:"session"`
	At      time.Time        `json:"at"`
}

// approvals are those of all sessions that were not revoked.
type approvals struct {
	Saved []approval `json:"saved"`
}

// approvalsSaved is the projection of approvals. An approval counts for the
// location in which it was given.
func approvalsSaved() projections.Projection[*approvals] {
	return projections.Projection[*approvals]{
		Name: "approvals", Version: 1,
		Init: func() *approvals { return &approvals{} },
		Apply: func(s *approvals, v events.Envelope) *approvals {
			switch e := v.Event.(type) {
			case events.ApprovalSaved:
				s.revoke(e.Location, e.Action, e.Resource)
				s.Saved = append(s.Saved, approval{e, v.Correlation, v.Time})
			case events.ApprovalRevoked:
				s.revoke(e.Location, e.Action, e.Resource)
			}
			return s
		},
	}
}

func (s *approvals) revoke(location, action, resource string) {
	kept := s.Saved[:0]
	for _, a := range s.Saved {
		if a.Location != location || a.Action != action || a.Resource != resource {
			kept = append(kept, a)
		}
	}
	s.Saved = kept
}

// at returns the approvals of a location, for a gate.
func (s *approvals) at(location string) *permission.Approvals {
	set := new(permission.Approvals)
	for _, a := range s.Saved {
		if a.Location == location {
			set.Add(permission.Approval{
				Permission: a.Permission, Session: a.Session, Action: a.Action, Resource: a.Resource, At: a.At, Expires: a.Expires,
			})
		}
	}
	return set
}

// A recorder keeps facts about permission in the session of the call.
type recorder struct {
	runner   *runner.Runner
	location string
}

// Requested keeps that a call asked.
func (r *recorder) Requested(ctx context.Context, q permission.Request) error {
	return r.runner.Note(ctx, q.Invocation, events.PermissionRequested{
		Permission: q.ID, Message: q.Invocation.Message, Call: q.Invocation.Call, Agent: q.Invocation.Agent,
		Action: q.Action, Resources: q.Resources, Save: q.Save, Metadata: q.Metadata, Shown: q.Shown,
	})
}

// Decided keeps how that ended.
func (r *recorder) Decided(ctx context.Context, d permission.Decision) error {
	return r.runner.Note(ctx, d.Invocation, events.PermissionDecided{
		Permission: d.Permission, Effect: d.Effect, By: events.Decider(d.By.String()), Rule: d.Rule,
		Scope: d.Scope.String(), Feedback: d.Feedback, WaitedMS: d.Waited.Milliseconds(),
	})
}

// Saved keeps what a person allowed from now on.
func (r *recorder) Saved(ctx context.Context, a permission.Approval) error {
	return r.runner.Note(ctx, domain.Invocation{Session: a.Session}, events.ApprovalSaved{
		Permission: a.Permission, Location: r.location, Action: a.Action, Resource: a.Resource, Expires: a.Expires,
	})
}

// showLoop returns the text of a question about a loop: the calls of one round,
// each with its input, as the session's log has them.
func (b *bench) showLoop(ctx context.Context, inv domain.Invocation, found events.LoopDetected) (domain.Shown, error) {
	s, err := b.conversation(ctx, inv.Session)
	if err != nil {
		return domain.Shown{}, fmt.Errorf("read the calls of a loop: %w", err)
	}
	return domain.Show(domain.ShownCall, loopText(s, found)), nil
}

// loopText returns the calls of the round that ends with the call found, one on
// each line, and how often they were made.
func loopText(s *conversation.State, found events.LoopDetected) string {
	var made []domain.Call
	for _, m := range s.Messages {
		if m.Reply == nil {
			continue
		}
		for _, c := range m.Reply.Calls {
			made = append(made, c.Call)
			if m.ID == found.Message && c.ID == found.Call {
				return roundText(made[max(0, len(made)-found.Period):], found.Rounds)
			}
		}
	}
	return roundText(made, found.Rounds)
}

func roundText(round []domain.Call, times int) string {
	var b strings.Builder
	for _, c := range round {
		fmt.Fprintf(&b, "%s %s\n", c.Name, c.Input)
	}
	fmt.Fprintf(&b, "(%d times in a row)", times)
	return b.String()
}

// approver returns who decides what the rules leave open: the person at the
// terminal, or nobody. The person is read from a goroutine that ends with the
// process. Lines that others write to the standard error do not run into an
// open question.
func (a *app) approver(ctx context.Context) permission.Approver {
	in, ok := a.in.(*os.File)
	if !ok || !isTerminal(in) || a.output != asTable {
		return permission.Headless{}
	}
	t := permission.NewTerminal(in, a.err)
	a.err = t.Background()
	go func() { _ = t.Run(ctx) }() // a terminal that breaks has nobody to ask
	return t
}
