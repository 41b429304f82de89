package runner

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// settle settles the calls of a reply in parallel, at most Config.Parallel at a time, and
// waits for all of them. A failure of one call does not affect the others. It returns
// true if the run stops, and the joined errors of calls without a recorded end.
func (c *runState) settle(ctx context.Context, calls []openCall) (stop bool, err error) {
	if err := c.refreshTools(ctx); err != nil {
		return true, err
	}
	c.loops.advance(c.session)
	c.journal.forgetCalls()
	for i, a := range calls {
		if i == 0 || calls[i-1].message != a.message {
			reply, _ := c.session.Reply(a.message)
			c.journal.reserveCalls(a.message, reply)
		}
		c.journal.track(a)
	}
	ends, err := c.settleAll(ctx, calls)
	c.waitForAdded()
	if err != nil {
		return true, err
	}
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	return c.stopAfter(ctx, calls, ends)
}

// settleAll settles tracked calls in parallel, at most Config.Parallel at a time. It
// returns their ends in order and the joined errors of calls without a recorded end.
func (c *runState) settleAll(ctx context.Context, calls []openCall) ([]domain.Settlement, error) {
	ends := make([]domain.Settlement, len(calls))
	errs := make([]error, len(calls))
	var group errgroup.Group
	group.SetLimit(c.config.Parallel)
	for i, a := range calls {
		group.Go(func() error {
			ends[i], errs[i] = c.settleOne(ctx, a)
			return nil
		})
	}
	_ = group.Wait() // the goroutines keep their own errors
	return ends, errors.Join(errs...)
}

// settleOne settles one call through the registry. A call that closes a loop runs only if
// Config.Looping allows it.
func (c *runState) settleOne(ctx context.Context, a openCall) (domain.Settlement, error) {
	inv := domain.Invocation{Session: c.session.Session, Agent: a.agent, Message: a.message, Call: a.ID}
	if c.config.Settling != nil {
		if err := c.config.Settling(ctx, inv, a.ReplyCall.Call); err != nil {
			return domain.Settlement{}, fmt.Errorf("settle %s %s: %w", registry.ShortName(a.Name), a.ID, err)
		}
	}
	if found, ok := c.loops.found[messageCall{a.message, a.ID}]; ok && c.config.Looping != nil {
		if end, refused, err := c.checkLoop(ctx, inv, a, found); refused || err != nil {
			return end, err
		}
	}
	return c.registry().Recall(a.offer).Settle(ctx, c.journal, inv, a.ReplyCall.Call)
}

// checkLoop records a detected loop and asks Config.Looping whether the call may run.
// If Looping denies or declines, checkLoop records and returns the end of the call, and
// refused is true. It returns any other error of Looping; the call then has no end.
func (c *runState) checkLoop(ctx context.Context, inv domain.Invocation, a openCall, found events.LoopDetected) (end domain.Settlement, refused bool, err error) {
	if err := c.Note(ctx, inv, found); err != nil {
		return end, false, err
	}
	err = c.config.Looping(ctx, inv, found)
	denied, isDenied := errors.AsType[*domain.Denied](err)
	declined, isDeclined := errors.AsType[*domain.Declined](err)
	switch {
	case isDenied:
		end = domain.Settlement{Outcome: domain.DeniedByRule, Text: denied.Error(), Rule: denied.Rule}
	case isDeclined:
		end = domain.Settlement{Outcome: domain.DeclinedByUser, Text: declined.Feedback}
	default:
		return end, false, err
	}
	end.Offered, _ = a.offer.Find(a.Name)
	ended := c.endDrafts([]openCall{a}, func(openCall) domain.Settlement { return end })
	return ended[0].Event.(events.CallSettled).Settlement(ended[0].ID), true, c.journal.record(ctx, ended...)
}

// stopAfter decides whether a run stops after its calls ended. If a person declined a
// call without feedback, it records the interruption and returns true, because that
// person is expected to write the next prompt. Under the policy Stop, it returns true
// and ErrBroken for a defect, a failed retention or media over the limit.
func (c *runState) stopAfter(ctx context.Context, calls []openCall, ends []domain.Settlement) (bool, error) {
	for i, end := range ends {
		switch end.Outcome {
		case domain.DeclinedByUser:
			if end.Text != "" {
				continue
			}
			d := c.config.Ledger.Draft(events.SessionInterrupted{Reason: domain.ByUser, Detail: "declined " + registry.ShortName(calls[i].Name)}, end.ID)
			_, err := c.journal.writer.Append(ctx, d)
			return true, err
		case domain.Defective, domain.RetentionFailed, domain.MediaTooLarge:
			if c.config.OnBroken == Stop {
				return true, fmt.Errorf("run %s %s: %w: %s", calls[i].Name, calls[i].ID, ErrBroken, end.Text)
			}
		}
	}
	return false, nil
}
