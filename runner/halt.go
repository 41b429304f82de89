package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// The number of tries to record an interruption, and the pause after the first try, which
// doubles with each further one.
const (
	// haltTries bounds the tries.
	haltTries = 6
	// haltPause is the pause after the first try.
	haltPause = 10 * time.Millisecond
)

// halt ends a run that failed or was interrupted, and returns the reason. It records an
// end for each open call, dismisses open permission requests, and records the
// interruption last. All these events are one append, unless the store's limit requires
// several. The append uses a context that ends after Config.Grace. If the append fails,
// halt returns its error joined to the reason, and the next run or recovery ends the
// open calls.
//
// halt first resolves earlier appends whose outcome is unknown, because a reply or a
// start in them needs an end too. It records no event if another process owns the
// session, or if the run was a recovery, which the next recovery completes. It records
// no interruption for a failure that left no call or request open.
func (c *runState) halt(ctx context.Context, failed error) error {
	c.journal.close()
	c.waitForAdded()
	foreign := errors.Is(failed, events.ErrConflict) || errors.Is(failed, ErrElsewhere) || errors.Is(failed, events.ErrUnknownKind)
	note := events.SessionInterrupted{Reason: domain.ByShutdown, Detail: registry.DefaultLimits.Cut(failed.Error())}
	interrupted := ctx.Err() != nil
	switch {
	case interrupted && foreign:
		return errors.Join(context.Cause(ctx), failed)
	case interrupted:
		failed = context.Cause(ctx)
		note = events.SessionInterrupted{Reason: domain.InterruptionOf(failed)}
	}
	if foreign || c.run.recovers {
		return failed
	}
	keep, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Grace)
	defer cancel()
	if err := c.recordHalt(keep, note, interrupted); err != nil {
		return errors.Join(failed, fmt.Errorf("record interruption: %w", err))
	}
	return failed
}

// recordHalt repeats tryHalt with growing pauses until the outcome is certain, the
// tries are used up, or ctx ends. Before each try it resolves the unknown outcome of
// earlier appends, so that it records the interruption only once.
func (c *runState) recordHalt(ctx context.Context, note events.SessionInterrupted, interrupted bool) error {
	for try := 1; ; try++ {
		err := c.journal.writer.Flush(ctx)
		if err == nil || wasRejected(err) {
			err = c.tryHalt(ctx, note, interrupted)
		}
		final := err == nil || events.Refused(err) && !errors.Is(err, events.ErrNotTried)
		if final || errors.Is(err, ErrElsewhere) || try == haltTries || !wait(ctx, haltPause<<(try-1)) {
			return err
		}
	}
}

// tryHalt reads the session again and appends the ends and the interruption that are
// not on record yet. It appends no event if interrupted is false and the run left no
// call or request open. It returns ErrElsewhere if another process owns the open calls.
func (c *runState) tryHalt(ctx context.Context, note events.SessionInterrupted, interrupted bool) error {
	if err := c.refresh(ctx); err != nil {
		return err
	}
	if !c.halted.IsZero() && c.session.Last == c.halted {
		return nil // an earlier try did append the interruption
	}
	c.journal.writer.Resume()
	begun, waiting := open(c.session)
	calls := append(begun, waiting...)
	drafts := c.endDrafts(calls, func(a openCall) domain.Settlement { return c.interruptedEnd(a, note.Reason) })
	drafts = append(drafts, c.dismissalDrafts()...)
	if len(drafts) > 0 {
		if err := c.checkOwner(ctx, loseCalls{calls}); err != nil {
			return err
		}
	} else if !interrupted && c.halted.IsZero() {
		return nil
	}
	interruption := c.config.Ledger.Draft(note, c.session.Last)
	c.halted = interruption.ID
	return c.journal.record(ctx, append(drafts, interruption)...)
}

// interruptedEnd returns the end of a call at an interruption. A call that began before
// this run is lost, because no code of this process knows its outcome.
func (c *runState) interruptedEnd(a openCall, reason domain.Interruption) domain.Settlement {
	if a.Started == nil {
		end := domain.InterruptedBefore(reason)
		end.Offered, _ = a.offer.Find(a.Name)
		return end
	}
	if !c.journal.tracks(messageCall{a.message, a.ID}) {
		return lost(a)
	}
	end := domain.InterruptedWhile(reason)
	end.Offered, end.Effective = a.Started.Offered, a.Started.Effective
	return end
}
