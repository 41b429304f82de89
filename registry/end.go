package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// conclude turns what came of a tool into the end of its call.
func (s *settling) conclude(ctx context.Context, id domain.EventID, out domain.Output, err error) domain.Settlement {
	if err == nil {
		out, err = s.after(ctx, out)
	}
	if err != nil {
		end := ended(ctx, err)
		end.Progress = s.last.get()
		return end
	}
	// A success that arrives in spite of an interruption stands, and is kept.
	keeping := graced{settling: s, ctx: ctx}
	defer keeping.end()
	b := bounding{s.m.registry.config.Limits, s.m.registry.config.Outputs, id, keeping.begin}
	shown, err := b.bound(out)
	if err != nil {
		end := domain.Settlement{Outcome: domain.RetentionFailed, Text: failedText(err), Detail: err.Error()}
		if _, media := errors.AsType[tooMuchMedia](err); media {
			end.Outcome = domain.MediaTooLarge
		}
		end.Progress = s.last.get()
		return end
	}
	return domain.Settlement{
		Outcome: domain.Succeeded, Structured: shown.structured, Content: shown.content, Retained: shown.retained,
	}
}

func (s *settling) after(ctx context.Context, out domain.Output) (_ domain.Output, err error) {
	defer contain(&err)
	for _, hook := range s.m.registry.config.After {
		content, err := hook(ctx, s.inv, s.call, out)
		if err != nil {
			return domain.Output{}, fmt.Errorf("run hook after %s: %w", s.call.Name, outranked(ctx, err))
		}
		out = out.WithContent(content)
	}
	return out, nil
}

// ended returns the end of a call whose tool returned an error.
func ended(ctx context.Context, err error) domain.Settlement {
	if _, ok := errors.AsType[*domain.Defect](err); ok { // whatever the panic was given
		return broken(err)
	}
	if denied, ok := errors.AsType[*domain.Denied](err); ok {
		return domain.Settlement{Outcome: domain.DeniedByRule, Text: denied.Error(), Rule: denied.Rule}
	}
	if declined, ok := errors.AsType[*domain.Declined](err); ok {
		return domain.Settlement{Outcome: domain.DeclinedByUser, Text: declined.Feedback}
	}
	if errors.Is(err, domain.ErrInterrupted) {
		return domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx)))
	}
	if failure, ok := errors.AsType[*domain.Failure](err); ok {
		return domain.Settlement{Outcome: domain.Failed, Text: failure.Error()}
	}
	if errors.Is(err, domain.ErrInvalidOutput) {
		text := "Tool returned an invalid value for its output schema: " + err.Error()
		return domain.Settlement{Outcome: domain.InvalidOutput, Text: text}
	}
	return broken(err)
}

func broken(err error) domain.Settlement {
	s := domain.Settlement{Outcome: domain.Defective, Text: failedText(err), Detail: err.Error()}
	if defect, ok := errors.AsType[*domain.Defect](err); ok && len(defect.Stack) > 0 {
		s.Detail += "\n" + string(defect.Stack)
	}
	return s
}

func failedText(err error) string { return "Tool execution failed: " + err.Error() }

// record keeps the end of a call and returns it. An end that has no wire form,
// as a presentation held what is no content, is kept as a defect; one that is
// too large for the store, without what makes it large.
func (s *settling) record(ctx context.Context, id domain.EventID, end domain.Settlement) (domain.Settlement, error) {
	ctx, cancel := s.grace(ctx)
	defer cancel()
	end = s.completed(id, end)
	d := s.draft(end)
	err := s.journal.Settle(ctx, d)
	if errors.Is(err, events.ErrBadRecord) {
		if _, formless := events.Encode(d); formless != nil {
			end = instead(end, domain.Defective, formless)
			err = s.journal.Settle(ctx, s.draft(end))
		}
	}
	if errors.Is(err, events.ErrTooLarge) {
		end = instead(end, domain.RetentionFailed, err)
		err = s.journal.Settle(ctx, s.draft(end))
	}
	if err != nil {
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record end: %w", s.call.Name, s.call.ID, err)
	}
	s.end = id
	if len(end.Retained) > 0 {
		// What is not confirmed is looked up in the log by the next recovery.
		_ = s.m.registry.config.Outputs.Confirm(ctx, id)
	}
	return end, nil
}

// completed adds to an end what the settling knows of its call. Texts are made
// to be what they are read back as.
func (s *settling) completed(id domain.EventID, end domain.Settlement) domain.Settlement {
	end.ID = id
	end.Began = end.Began || !s.start.IsZero()
	end.Input = s.input
	end.Offered, end.Effective, end.ChangedBy = s.found.offered, s.found.effective, s.found.changedBy
	end.Text, end.Detail = valid(end.Text), valid(end.Detail)
	return end
}

func (s *settling) draft(end domain.Settlement) events.Draft {
	return events.Draft{
		ID: end.ID, Time: s.m.registry.layers.ledger.Now(), Causation: s.start,
		Event: events.Settled(s.m.offer.Turn, s.inv.Message, s.call, end),
	}
}

// instead returns an end that says why the one it stands for is not recorded.
// If that was a success, it is none any more.
func instead(end domain.Settlement, outcome domain.Outcome, err error) domain.Settlement {
	if end.Outcome == domain.Succeeded {
		end.Outcome = outcome
	}
	end.Text, end.Detail = failedText(err), err.Error()
	end.Input, end.Structured, end.Content, end.Retained, end.Progress = nil, nil, nil, nil, nil
	return end
}

// grace returns a context in which the end of a call is recorded: it ends when
// the grace is over that begins with the end of ctx.
func (s *settling) grace(ctx context.Context) (context.Context, context.CancelFunc) {
	kept, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		grace := time.NewTimer(s.m.registry.config.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			cancel(context.DeadlineExceeded)
		case <-kept.Done():
		}
	})
	return kept, func() { stop(); cancel(context.Canceled) }
}

// A graced is the grace of one step of a settling, which begins when the step
// first needs it.
type graced struct {
	settling *settling
	ctx      context.Context
	kept     context.Context // nil until it is needed
	cancel   context.CancelFunc
}

func (g *graced) begin() context.Context {
	if g.kept == nil {
		g.kept, g.cancel = g.settling.grace(g.ctx)
	}
	return g.kept
}

func (g *graced) end() {
	if g.kept != nil {
		g.cancel()
	}
}
