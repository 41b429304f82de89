package permission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrNoResource says that a request has no action or no resources.
var ErrNoResource = errors.New("the permission request names no action or no resource")

// ErrBadGate says that a Config lacks a required field.
var ErrBadGate = errors.New("incomplete gate configuration")

// A Config configures a [Gate]. Rules, Approver, Recorder, Mint and Now are required.
type Config struct {
	// Rules returns the sets of rules that bind a call, such as those of its agent and the
	// configured ones. The Gate evaluates the sets apart: deny beats ask beats allow.
	Rules func(domain.Invocation) domain.RuleSets
	// Approver decides the requests that rules and approvals leave open.
	Approver Approver
	// Questioner answers the questions of calls. Nil: Headless, which dismisses them.
	Questioner Questioner
	// Recorder records requests, decisions, approvals, questions and their answers.
	Recorder Recorder
	// Mint names requests.
	Mint *domain.Mint
	// Now is the clock.
	Now func() time.Time
	// Approvals is the set that the Gate reads and extends. Nil: the Gate
	// starts with an empty set of its own.
	Approvals *Approvals
	// ApprovalLifetime is the lifetime of a new approval. Zero: until it is revoked.
	ApprovalLifetime time.Duration
	// Person names the person behind the Approver, such as a user of the
	// operating system. The Gate records it with the decisions and approvals
	// of that person. It may be empty.
	Person string
	// Allowances stores the rules that allowed requests of calls. Nil: the Gate
	// does not store them.
	Allowances *Allowances
}

// A Gate decides permission requests of calls by rules, approvals and, if these leave a
// request open, an Approver. It passes questions of calls to a Questioner. It is safe for concurrent use.
type Gate struct {
	config Config
	mu     struct {
		sync.Mutex
		waiting []*pendingPrompt // oldest first
	}
}

// NewGate returns a Gate. It returns an ErrBadGate that names the missing field.
func NewGate(c Config) (*Gate, error) {
	for _, required := range []struct {
		name string
		set  bool
	}{{"Rules", c.Rules != nil}, {"Approver", c.Approver != nil}, {"Recorder", c.Recorder != nil}, {"Mint", c.Mint != nil}, {"Now", c.Now != nil}} {
		if !required.set {
			return nil, fmt.Errorf("make gate: %w: Config.%s is not set", ErrBadGate, required.name)
		}
	}
	if c.Approvals == nil {
		c.Approvals = new(Approvals)
	}
	if c.Questioner == nil {
		c.Questioner = Headless{}
	}
	return &Gate{config: c}, nil
}

// Assert returns nil if a call may act. After any error the caller must not act. Assert
// returns a *domain.Denied or a *domain.Declined, which the tool returns unchanged;
// ErrNoResource; the error of ask.Preview; the cause of ctx if ctx ends while a person
// decides; or an error of the Approver or the Recorder.
func (g *Gate) Assert(ctx context.Context, inv domain.Invocation, ask Ask) error {
	if ask.Action == "" || len(ask.Resources) == 0 {
		return fmt.Errorf("ask for permission: %w: action %q, %d resources", ErrNoResource, ask.Action, len(ask.Resources))
	}
	v := g.evaluate(inv, ask)
	if v.effect == domain.Allow && v.by == ByRule {
		g.config.Allowances.add(inv, v.allowed)
		return nil
	}
	r := Request{ID: g.config.Mint.Permission(), Invocation: inv, Ask: cloneAsk(ask)}
	if v.effect == domain.Ask && ask.Preview != nil {
		var err error
		if r.Shown, err = ask.Preview(ctx); err != nil {
			return err
		}
	}
	if err := g.config.Recorder.Requested(ctx, r); err != nil {
		return fmt.Errorf("record the request %s: %w", r.ID, err)
	}
	var err error
	if v.effect == domain.Ask {
		err = g.waitForAnswer(ctx, r, v.approvals)
	} else {
		err = g.recordDecision(ctx, r, Decision{Effect: v.effect, By: v.by, Rule: v.rule, Resource: v.resource, Approvals: v.approvals})
	}
	if err == nil { // rules may have allowed some resources, and an approval or a person the others
		g.config.Allowances.add(inv, v.allowed)
	}
	return err
}

// cloneAsk copies the slices and the map of an Ask, so that the caller may reuse them.
// Preview is shared.
func cloneAsk(a Ask) Ask {
	a.Resources, a.Save, a.Metadata = slices.Clone(a.Resources), slices.Clone(a.Save), slices.Clone(a.Metadata)
	a.Spellings = maps.Clone(a.Spellings)
	return a
}

// A ruling is the result of rules and approvals for a request.
type ruling struct {
	effect   domain.Effect
	by       Authority
	rule     domain.Rule   // the rule that denies; zero otherwise
	resource string        // the denied resource; empty otherwise
	allowed  []domain.Rule // the rules that allow, one of each set for each resource allowed by rule
	// approvals are those that allow the resources not allowed by rule, each once.
	approvals []Approval
}

// evaluate evaluates rules and approvals for each resource, and returns the strictest
// result: deny beats ask, and ask beats allow. An approval turns an ask into an allow
// and never overrides a deny.
func (g *Gate) evaluate(inv domain.Invocation, ask Ask) ruling {
	sets, now := g.config.Rules(inv), g.config.Now()
	v := ruling{effect: domain.Allow, by: ByRule}
	for _, resource := range ask.Resources {
		rule, _ := sets.EvaluateSpelled(ask.Action, resource, ask.Spellings[resource])
		switch rule.Effect {
		case domain.Deny:
			return ruling{effect: domain.Deny, by: ByRule, rule: rule, resource: resource}
		case domain.Allow:
			v.allowed = append(v.allowed, rulesOf(sets, ask, resource)...)
			continue
		}
		approval, approved := g.config.Approvals.find(inv.Agent, ask.Action, resource, now)
		if !approved {
			v.effect = domain.Ask
			continue
		}
		v.by = ByApproval
		if !slices.Contains(v.approvals, approval) {
			v.approvals = append(v.approvals, approval)
		}
	}
	return v
}

// rulesOf returns the rule of each set for a resource.
func rulesOf(sets domain.RuleSets, ask Ask, resource string) []domain.Rule {
	matched := make([]domain.Rule, len(sets))
	for i, rules := range sets {
		matched[i], _ = rules.EvaluateSpelled(ask.Action, resource, ask.Spellings[resource])
	}
	return matched
}

// waitForAnswer asks the Approver for a decision on r and records this decision. If the
// answer to another request also decides r, waitForAnswer records the decision of that
// answer. used are the approvals that allow some resources of r.
func (g *Gate) waitForAnswer(ctx context.Context, r Request, used []Approval) error {
	asked := g.config.Now()
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := &pendingPrompt{r.Invocation.Session, &r, end}
	g.addPending(w)
	if v := g.evaluate(r.Invocation, r.Ask); v.effect == domain.Allow { // an approval was saved before w was in the list
		end(&approvedElsewhereError{v.approvals})
	}
	answer, err := g.config.Approver.Decide(waiting, r)
	g.removePending(w)
	d, err := resolveAnswer(answer, err, context.Cause(waiting))
	if err != nil {
		return fmt.Errorf("ask for permission %s: %w", r.ID, err)
	}
	d.Waited = g.config.Now().Sub(asked)
	if d.Effect == domain.Allow && d.By != ByApproval {
		d.Approvals = used
	}
	recording, cancel := withGracePeriod(ctx, recordGrace)
	defer cancel()
	return g.recordDecision(recording, r, d)
}

// recordGrace is the time limit for recording an answer after the call was interrupted.
// An answer counts once a person has given it, so an interruption must not lose it.
const recordGrace = 5 * time.Second

// withGracePeriod returns a context that ends a grace period after ctx.
func withGracePeriod(ctx context.Context, grace time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		end := time.AfterFunc(grace, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(longer, func() { end.Stop() })
	})
	return longer, func() {
		stop()
		cancel(context.Canceled)
	}
}

// resolveAnswer returns the decision of a request. answer and err are the results of the
// Approver, and cause is the cause with which its context ended, or nil. If err is nil,
// the decision is that of answer. Otherwise approvals saved elsewhere (an
// approvedElsewhereError) allow the request, and a rejectionError denies it. After any
// other cause, resolveAnswer returns cause as the error, and without a cause it returns
// err.
func resolveAnswer(answer Answer, err, cause error) (Decision, error) {
	other, rejected := cause.(*rejectionError)
	elsewhere, approved := cause.(*approvedElsewhereError)
	switch {
	case err == nil:
		return answer.decision()
	case approved:
		return Decision{Effect: domain.Allow, By: ByApproval, Approvals: elsewhere.approvals}, nil
	case rejected:
		return Decision{Effect: domain.Deny, By: ByUser, Choice: Reject, Feedback: other.feedback}, nil
	case cause != nil:
		return Decision{}, cause
	}
	return Decision{}, err
}

// decision validates an answer and converts it into a Decision. It returns an
// ErrInvalidValue for an Authority other than ByUser and ByHeadless, and for an invalid
// Choice.
func (a Answer) decision() (Decision, error) {
	if a.By != ByUser && a.By != ByHeadless {
		return Decision{}, fmt.Errorf("%w: answer by %s: only user and headless can answer a request", ErrInvalidValue, a.By)
	}
	switch a.Choice {
	case Once, Always:
		return Decision{Effect: domain.Allow, By: a.By, Choice: a.Choice}, nil
	case Reject:
		return Decision{Effect: domain.Deny, By: a.By, Choice: Reject, Feedback: a.Feedback}, nil
	}
	return Decision{}, fmt.Errorf("%w: scope %s", ErrInvalidValue, a.Choice)
}

// recordDecision records a decision and then applies it: it saves approvals, or rejects
// the other requests and questions of the session. It returns the error for the tool, or nil for an
// allow.
func (g *Gate) recordDecision(ctx context.Context, r Request, d Decision) error {
	d.Permission, d.Invocation = r.ID, r.Invocation
	if d.By == ByUser {
		d.Person = g.config.Person
	}
	if d.Effect == domain.Deny && d.Resource == "" {
		d.Resource = r.Resources[0]
	}
	if err := g.config.Recorder.Decided(ctx, d); err != nil {
		return fmt.Errorf("record the decision on %s: %w", r.ID, err)
	}
	if d.Choice == Always {
		if err := g.saveApprovals(ctx, r); err != nil {
			return err
		}
	}
	if d.Choice == Reject && d.By == ByUser {
		g.rejectSession(r.Invocation.Session, d.Feedback)
	}
	return d.toolError(r.Action)
}

// toolError returns the error that a decision gives to the tool, or nil for an allow.
func (d Decision) toolError(action string) error {
	switch {
	case d.Effect == domain.Allow:
		return nil
	case d.By == ByUser:
		return &domain.Declined{Feedback: d.Feedback}
	case d.By == ByRule:
		return &domain.Denied{Action: action, Resource: d.Resource, Rule: d.Rule}
	}
	return &domain.Denied{Action: action, Resource: d.Resource, Reason: noPerson}
}

// noPerson is the reason for a denial because no person can answer.
const noPerson = "no one to ask"

// saveApprovals stores the approval that the answer "always" gives, and ends the pending
// requests that the approval allows.
func (g *Gate) saveApprovals(ctx context.Context, r Request) error {
	for _, pattern := range r.Save {
		now := g.config.Now()
		if slices.ContainsFunc(g.config.Approvals.List(now), func(a Approval) bool {
			return a.Agent == r.Invocation.Agent && a.Action == r.Action && a.Resource == pattern
		}) {
			continue
		}
		a := Approval{
			Permission: r.ID, Session: r.Invocation.Session, Agent: r.Invocation.Agent, Action: r.Action, Resource: pattern, At: now, Person: g.config.Person,
		}
		if g.config.ApprovalLifetime > 0 {
			a.Expires = now.Add(g.config.ApprovalLifetime)
		}
		event, err := g.config.Recorder.Saved(ctx, a)
		if err != nil {
			return fmt.Errorf("record the approval of %s %s: %w", a.Action, a.Resource, err)
		}
		a.Event = event
		g.config.Approvals.Add(a)
	}
	g.endApproved()
	return nil
}
