package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// conclude turns the result of a tool into the end of its call.
func (s *settling) conclude(ctx context.Context, id domain.EventID, r ran[domain.Output]) domain.Settlement {
	if r.end == nil {
		r = s.after(ctx, r.value)
	}
	end := r.end
	if end == nil {
		// A success that arrives in spite of an interruption stands, and is kept.
		end = new(s.keep(ctx, id, r.value))
	}
	if end.Outcome != domain.Succeeded {
		end.Progress = s.last.get(s.m.registry.config.Limits)
	}
	return *end
}

// after runs the hooks after the tool, each on its own goroutine, within one
// grace.
func (s *settling) after(ctx context.Context, out domain.Output) ran[domain.Output] {
	hooks := s.m.registry.config.After
	if len(hooks) == 0 {
		return ran[domain.Output]{value: out}
	}
	until, cancel := s.grace(ctx)
	defer cancel()
	st := step{"the hook after " + s.call.Name, domain.InterruptedWhile, func(err error) domain.Settlement {
		return ended(ctx, hookError("after", s.call.Name, outranked(ctx, err)))
	}}
	for _, hook := range hooks {
		shown := out
		r := await(ctx, until, s, st, func() (domain.Contents, error) { return hook(ctx, s.inv, s.call, shown) })
		if r.end != nil {
			return ran[domain.Output]{end: r.end}
		}
		out = out.WithContent(r.value)
	}
	return ran[domain.Output]{value: out}
}

func hookError(when, name string, err error) error {
	return fmt.Errorf("run hook %s %s: %w", when, name, err)
}

// errCutOff is a write of an output that the end of the grace cut off.
var errCutOff = errors.New("the write was cut off")

// keep bounds an output and returns the end of a call that succeeded with it,
// or that could not keep it. A write that is cut off when the grace is over is
// an interruption.
func (s *settling) keep(ctx context.Context, id domain.EventID, out domain.Output) domain.Settlement {
	within := graced{settling: s, ctx: ctx}
	defer within.end()
	b := s.bounding(&within, id)
	b.lost = out.Lost()
	shown, err := b.bound(out)
	if err == nil {
		return domain.Settlement{
			Outcome: domain.Succeeded, Structured: shown.structured, Content: shown.content, Retained: shown.retained, Lost: out.Lost(),
		}
	}
	if errors.Is(err, errCutOff) {
		end := domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx)))
		end.Detail = err.Error()
		return end
	}
	end := domain.Settlement{Outcome: domain.RetentionFailed, Text: failedText(err), Detail: err.Error()}
	if _, media := errors.AsType[tooMuchMedia](err); media {
		end.Outcome = domain.MediaTooLarge
	}
	return end
}

// bounding returns the bounding of one settlement. Each write has a goroutine of
// its own and is left behind, where it ignores its context, when the grace is
// over: the log never names what it keeps, so that a recovery removes it.
func (s *settling) bounding(within *graced, id domain.EventID) bounding {
	return bounding{limits: s.m.registry.config.Limits, settlement: id, keep: func(ref domain.Ref, mime, text string) (domain.Retained, error) {
		until := within.begin()
		type kept struct {
			retained domain.Retained
			err      error
		}
		cutOff := func(domain.Interruption) domain.Settlement { return domain.Settlement{Outcome: domain.Interrupted} }
		st := step{"the storage of outputs", cutOff, broken}
		r := await(within.ctx, until, s, st, func() (kept, error) {
			retained, err := s.m.registry.config.Outputs.Keep(until, ref, mime, strings.NewReader(text))
			if err != nil {
				err = errors.New(err.Error()) // its methods are foreign code
			}
			return kept{retained, err}, nil
		})
		switch {
		case r.end != nil && r.end.Outcome != domain.Interrupted:
			return domain.Retained{}, errors.New(r.end.Detail)
		case r.end != nil:
			return domain.Retained{}, errCutOff
		case r.value.err != nil && until.Err() != nil:
			return domain.Retained{}, fmt.Errorf("%w: %w", errCutOff, r.value.err)
		}
		return r.value.retained, r.value.err
	}}
}

// ended returns the end of a call whose tool returned an error. An interruption
// is that of ctx: an error that claims to be one while ctx goes on is a defect.
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
	if errors.Is(err, domain.ErrInterrupted) && ctx.Err() != nil {
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

func failedText(err error) string {
	if text := err.Error(); strings.TrimSpace(text) != "" {
		return "Tool execution failed: " + text
	}
	return "Tool execution failed without a message"
}

// record keeps the end of a call and returns it. An end that has no wire form,
// as a presentation held what is no content, is kept as a defect; one that is
// too large for the store, without what makes it large.
func (s *settling) record(ctx context.Context, id domain.EventID, end domain.Settlement) (domain.Settlement, error) {
	end = s.fit(ctx, id, s.completed(id, end))
	ctx, cancel := s.grace(ctx)
	defer cancel()
	d := s.draft(end)
	err := s.journal.Settle(ctx, d)
	if errors.Is(err, events.ErrTooLarge) && end.Input != nil && !s.start.IsZero() {
		end.Input = nil // the start has it
		err = s.journal.Settle(ctx, s.draft(end))
	}
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
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record end: %w", ShortName(s.call.Name), s.call.ID, err)
	}
	s.end = id
	if len(end.Retained) > 0 {
		// What is not confirmed is looked up in the log by the next recovery.
		_ = s.m.registry.config.Outputs.Confirm(ctx, id)
	}
	return end, nil
}

// fit holds the texts of an end to the limits of a text. What a tool said is
// kept whole like an output, and where that fails it is cut, as is any other
// text: those repeat what the call or a person's answer has on record.
func (s *settling) fit(ctx context.Context, id domain.EventID, end domain.Settlement) domain.Settlement {
	limits := s.m.registry.config.Limits
	said := end.Outcome == domain.Failed || end.Outcome == domain.Defective || end.Outcome == domain.InvalidOutput
	if end.Began && said && !limits.fits(end.Text) {
		within := graced{settling: s, ctx: ctx}
		defer within.end()
		preview, err := s.bounding(&within, id).retain(&end.Retained, domain.TextChannel, "text/plain; charset=utf-8", end.Text)
		if err == nil {
			end.Text = preview
		} else {
			end.Detail = err.Error() + "\n" + end.Detail
		}
	}
	return limits.cutEnd(end)
}

// cutEnd cuts the texts of an end to limits.
func (l Limits) cutEnd(end domain.Settlement) domain.Settlement {
	end.Text, end.Detail = l.Cut(valid(end.Text)), DefaultLimits.Cut(valid(end.Detail))
	if r := end.Rule; len(r.Action)+len(r.Resource)+len(r.Source) > l.Bytes {
		end.Rule, end.Detail = domain.Rule{}, strings.TrimPrefix(end.Detail+"\nthe rule that denied is too long to be kept", "\n")
	}
	return end
}

// Ended returns the event of an end that the caller records for a call which is
// not settled by [Materialization.Settle], such as one that was refused or lost.
// Its texts, its rule and the name of its tool are held to the limits of r.
func (r *Registry) Ended(turn domain.TurnID, message domain.MessageID, call domain.Call, end domain.Settlement) events.CallSettled {
	return events.Settled(turn, message, domain.Call{ID: call.ID, Name: ShortName(call.Name)}, r.config.Limits.cutEnd(end))
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
		Event: events.Settled(s.m.offer.Turn, s.inv.Message, domain.Call{ID: s.call.ID, Name: ShortName(s.call.Name)}, end),
	}
}

// maxName is the length to which a name that a model made up is repeated. The
// grammar of names allows 64 bytes.
const maxName = 256

// ShortName returns a name, or the beginning of a long one and its length. The
// reply that asks for the call has it whole.
func ShortName(name string) string {
	if len(name) <= maxName {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", head(name, maxName), len(name))
}

// instead returns an end that says why the one it stands for is not recorded.
// If that was a success, it is none any more.
func instead(end domain.Settlement, outcome domain.Outcome, err error) domain.Settlement {
	if end.Outcome == domain.Succeeded {
		end.Outcome = outcome
	}
	end.Text, end.Detail = failedText(err), err.Error()
	end.Input, end.Structured, end.Content, end.Retained, end.Progress = nil, nil, nil, nil, nil
	end.Text, end.Detail = DefaultLimits.Cut(valid(end.Text)), DefaultLimits.Cut(valid(end.Detail))
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
