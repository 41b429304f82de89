package runner

import (
	"context"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// lost returns the end of a call that began in another process and has no end. Its
// outcome is unknown.
func lost(a openCall) domain.Settlement {
	return domain.LostCall(a.Started.Offered, a.Started.Effective)
}

// recordEnds records an end for each of several calls, without running their tools.
func (c *runState) recordEnds(ctx context.Context, calls []openCall, how func(openCall) domain.Settlement) error {
	return c.journal.record(ctx, c.endDrafts(calls, how)...)
}

// endDrafts returns the drafts of the ends of calls, cut to the registry's limits. The
// cause of an end is the start of its call, or the reply if the call did not begin.
func (c *runState) endDrafts(calls []openCall, how func(openCall) domain.Settlement) []events.Draft {
	drafts := make([]events.Draft, len(calls))
	for i, a := range calls {
		cause := a.reply
		if a.Started != nil {
			cause = a.StartedBy
		}
		end := c.registry().Ended(a.offer.Turn, a.message, a.ReplyCall.Call, how(a))
		drafts[i] = c.config.Ledger.Draft(c.journal.withAllowedRules(end), cause)
	}
	return drafts
}

// abandoned returns the end of a call that a running call added and that did not begin
// before the run of that call ended.
func abandoned(a openCall) domain.Settlement {
	end := domain.InterruptedBefore(domain.ByShutdown)
	end.Offered, _ = a.offer.Find(a.Name)
	return end
}

// dismiss records a denial by recovery for each open permission request and question.
func (c *runState) dismiss(ctx context.Context) error {
	return c.journal.record(ctx, c.dismissalDrafts()...)
}

// dismissalDrafts returns the drafts that dismiss the open permission requests and
// questions of the session.
func (c *runState) dismissalDrafts() []events.Draft {
	var drafts []events.Draft
	for _, a := range c.session.Asks {
		drafts = append(drafts, c.config.Ledger.Draft(events.PermissionDecided{
			Permission: a.Permission, Effect: domain.Deny, By: events.ByRecovery, Scope: "reject",
		}, c.session.Last))
	}
	for _, q := range c.session.Questions {
		drafts = append(drafts, c.config.Ledger.Draft(events.QuestionAnswered{Question: q.Question, Dismissed: true, By: events.ByRecovery}, c.session.Last))
	}
	return drafts
}
