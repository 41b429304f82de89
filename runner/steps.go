package runner

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A runState is one run of a session on its way. Its session is folded from
// the log and nothing else.
type runState struct {
	*Runner
	run     *run
	admits  semaphore // of its session
	stopped bool      // the last step stopped the run
	session *conversation.State
	journal *sessionJournal
	loops   *loopDetector
	turn    domain.TurnID  // the last one that this run took; zero: none yet
	halted  domain.EventID // the interruption that the run last tried to record; zero: none yet
}

// runSteps takes steps until the session rests. However that ends, nothing of the
// session is left open, unless another process carries it on.
func (c *runState) runSteps(ctx context.Context) error {
	for {
		idles, err := c.advance(ctx)
		if err != nil {
			return c.halt(ctx, err)
		}
		if !idles {
			continue
		}
		if over, err := c.finishIfIdle(ctx); err != nil {
			return c.halt(ctx, err)
		} else if over {
			return nil
		}
	}
}

// advance takes the next step. It reports whether the run ends there.
func (c *runState) advance(ctx context.Context) (idles bool, err error) {
	next, err := plan(c.session, c.config.Steps)
	if err != nil || c.isLast(next) {
		return true, err
	}
	if err := c.checkOwner(ctx, next); err != nil {
		return false, err
	}
	before := c.session.Revision
	c.stopped, err = c.take(ctx, next)
	if err != nil {
		return false, err
	}
	if err := c.refresh(ctx); err != nil {
		return false, err
	}
	if c.session.Revision == before {
		return false, fmt.Errorf("run session %s: %w: %T", c.session.Session, ErrNoProgress, next)
	}
	return c.stopped, nil
}

// isLast reports whether a run ends at a step and does not take it.
func (c *runState) isLast(next step) bool {
	_, asks := next.(askModel)
	return next == (idle{}) || asks && (c.run.recovers || c.config.Provider == nil)
}

// take takes one step. It reports whether the run stops there.
func (c *runState) take(ctx context.Context, next step) (stop bool, err error) {
	switch next := next.(type) {
	case loseCalls:
		return false, c.recordEnds(ctx, next.calls, lost)
	case refuseCalls:
		return false, c.recordEnds(ctx, next.calls, func(openCall) domain.Settlement { return domain.DisabledCall() })
	case dismissAsks:
		return false, c.dismiss(ctx, next.asks)
	case settleCalls:
		return c.settle(ctx, next.calls)
	case askModel:
		return false, c.ask(ctx, next.last)
	}
	return true, nil
}

// finishIfIdle ends a run in order. It reports false, and the run goes on, if a message
// was admitted meanwhile that the run has to answer. No message is admitted while
// it looks, so one that is admitted later finds that the session does not run.
func (c *runState) finishIfIdle(ctx context.Context) (over bool, err error) {
	release, err := c.admits.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	c.journal.close()
	if err := c.refresh(ctx); err != nil {
		return false, err
	}
	next, err := plan(c.session, c.config.Steps)
	if err != nil {
		return false, err
	}
	if !c.isLast(next) && !(c.stopped && c.session.Unread == 0) {
		c.journal.reopen()
		return false, nil
	}
	c.clearRun(c.session.Session, c.run)
	return true, nil
}

// refresh folds what was appended since.
func (c *runState) refresh(ctx context.Context) error {
	p := conversation.Projection()
	stream := events.SessionStream(c.session.Session)
	s, err := projections.Fold(p, c.session, c.config.Ledger.Read(ctx, stream, c.session.Revision))
	if err != nil {
		return fmt.Errorf("read session %s: %w", c.session.Session, err)
	}
	*c.session = *s
	return nil
}

// lost is the end of a call that began in another process.
func lost(a openCall) domain.Settlement {
	return domain.LostCall(a.Started.Offered, a.Started.Effective)
}

// recordEnds records the same kind of end for several calls, without running any.
func (c *runState) recordEnds(ctx context.Context, calls []openCall, how func(openCall) domain.Settlement) error {
	return c.journal.record(ctx, c.endDrafts(calls, how)...)
}

// endDrafts returns the ends of several calls, bounded as the registry bounds those
// that it records. An end comes of the start of its call, or of the reply that
// asked for a call that did not begin.
func (c *runState) endDrafts(calls []openCall, how func(openCall) domain.Settlement) []events.Draft {
	drafts := make([]events.Draft, len(calls))
	for i, a := range calls {
		cause := a.reply
		if a.Started != nil {
			cause = a.StartedBy
		}
		end := c.config.Registry.Ended(a.offer.Turn, a.message, a.Call.Call, how(a))
		drafts[i] = c.config.Ledger.Draft(c.journal.withAllowedRules(end), cause)
	}
	return drafts
}

func (c *runState) dismiss(ctx context.Context, asks []events.PermissionRequested) error {
	return c.journal.record(ctx, c.dismissalDrafts(asks)...)
}

func (c *runState) dismissalDrafts(asks []events.PermissionRequested) []events.Draft {
	drafts := make([]events.Draft, len(asks))
	for i, a := range asks {
		drafts[i] = c.config.Ledger.Draft(events.PermissionDecided{
			Permission: a.Permission, Effect: domain.Deny, By: events.ByRecovery, Scope: "reject",
		}, c.session.Last)
	}
	return drafts
}
