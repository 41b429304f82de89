package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// record records the end of the call and returns the end that is on record. If the
// store cannot hold the end, record replaces it and tries again:
//
//   - An end that is too large loses its input, if the start has the input.
//   - An end without a wire form becomes a replacementEnd with the outcome Defective.
//   - An end that is still too large becomes a replacementEnd with the outcome
//     RetentionFailed.
//
// record then confirms the retained outputs. All these steps share one grace period of
// ctx. If no end is certain to be on record, record returns the error of the journal.
func (s *callExec) record(ctx context.Context, id domain.EventID, end domain.Settlement) (domain.Settlement, error) {
	end = s.boundTexts(ctx, id, s.completeEnd(id, end))
	ctx, cancel := s.grace(ctx)
	defer cancel()
	d := s.draft(end)
	err := s.journal.Settle(ctx, d)
	if errors.Is(err, events.ErrTooLarge) && end.Input != nil && !s.start.IsZero() {
		end.Input = nil // the recorded start has the input
		err = s.journal.Settle(ctx, s.draft(end))
	}
	if errors.Is(err, events.ErrBadRecord) {
		if _, formless := events.Encode(d); formless != nil {
			end = replacementEnd(end, domain.Defective, formless)
			err = s.journal.Settle(ctx, s.draft(end))
		}
	}
	if errors.Is(err, events.ErrTooLarge) {
		end = replacementEnd(end, domain.RetentionFailed, err)
		err = s.journal.Settle(ctx, s.draft(end))
	}
	if err != nil {
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record end: %w", ShortName(s.call.Name), s.call.ID, err)
	}
	s.end = id
	if len(end.Retained) > 0 {
		// The next recovery looks up unconfirmed outputs in the log.
		_ = s.m.registry.config.Outputs.Confirm(ctx, id)
	}
	return end, nil
}

// boundTexts cuts the texts of an end to the limits. It first retains the full text
// of an error that the tool returned, like an output; if that fails, the cut-off part
// is lost. It does not retain other texts, because they repeat the call or a person's
// answer, which are on record elsewhere.
func (s *callExec) boundTexts(ctx context.Context, id domain.EventID, end domain.Settlement) domain.Settlement {
	limits := s.m.registry.config.Limits
	fromTool := end.Outcome == domain.Failed || end.Outcome == domain.Defective || end.Outcome == domain.InvalidOutput
	if end.Began && fromTool && !limits.fits(end.Text) {
		within := lazyGrace{exec: s, ctx: ctx}
		defer within.stop()
		preview, err := s.bounder(&within, id).retain(&end.Retained, domain.TextChannel, "text/plain; charset=utf-8", end.Text)
		if err == nil {
			end.Text = preview
		} else {
			end.Detail = err.Error() + "\n" + end.Detail
		}
	}
	return limits.cutEnd(end)
}

// completeEnd adds the event ID, the start, the rewritten input and the resolution of
// the call to an end. It makes the texts of the end valid UTF-8, so that the end in
// memory equals the one that is read back from the log.
func (s *callExec) completeEnd(id domain.EventID, end domain.Settlement) domain.Settlement {
	end.ID = id
	end.Began = end.Began || !s.start.IsZero()
	end.Input, end.Ran = s.input, s.ran.Truncate(time.Millisecond)
	end.Offered, end.Effective, end.ChangedBy = s.resolved.offered, s.resolved.effective, s.resolved.changedBy
	end.Text, end.Detail = valid(end.Text), valid(end.Detail)
	return end
}

// draft returns the event of an end, caused by the call's start.
func (s *callExec) draft(end domain.Settlement) events.Draft {
	return events.Draft{
		ID: end.ID, Time: s.m.registry.layers.ledger.Now(), Causation: s.start,
		Event: events.Settled(s.m.offer.Turn, s.inv.Message, domain.Call{ID: s.call.ID, Name: ShortName(s.call.Name)}, end),
	}
}

// replacementEnd returns an end to record in place of end, with err as the reason.
// The replacement has the given outcome if end was a success, and otherwise the
// outcome of end. It has no input, output or progress.
func replacementEnd(end domain.Settlement, outcome domain.Outcome, err error) domain.Settlement {
	if end.Outcome == domain.Succeeded {
		end.Outcome = outcome
	}
	end.Text, end.Detail = failureText(err), err.Error()
	end.Input, end.Structured, end.Content, end.Retained, end.Progress, end.Files = nil, nil, nil, nil, nil, nil
	end.Text, end.Detail = DefaultLimits.Cut(valid(end.Text)), DefaultLimits.Cut(valid(end.Detail))
	return end
}
