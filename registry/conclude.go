package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// conclude turns the result of a tool into the settlement of the call: it runs the hooks
// after the tool, bounds the output and retains the parts over the limits. It adds the
// last reported progress to a settlement that is no success.
func (s *callExec) conclude(ctx context.Context, id domain.EventID, r stepResult[domain.Output]) domain.Settlement {
	if r.end == nil {
		r = s.runAfterHooks(ctx, r.value)
	}
	end := r.end
	if end == nil {
		// A tool that succeeds in spite of an interruption has succeeded.
		end = new(s.keep(ctx, id, r.value))
	}
	if end.Outcome != domain.Succeeded {
		end.Progress = s.last.get(s.m.registry.config.Limits)
	}
	return *end
}

// runAfterHooks runs the hooks after the tool in order, each on its own goroutine, and
// returns the output with the content that the last hook returned. All hooks share one
// grace period. The call ends if a hook fails or is left behind.
func (s *callExec) runAfterHooks(ctx context.Context, out domain.Output) stepResult[domain.Output] {
	hooks := s.m.registry.config.After
	if len(hooks) == 0 {
		return stepResult[domain.Output]{value: out}
	}
	until, cancel := s.grace(ctx)
	defer cancel()
	st := foreignStep{"the hook after " + s.call.Name, domain.InterruptedWhile, func(err error) domain.Settlement {
		return outcomeOfError(ctx, hookError("after", s.call.Name, preferInterruption(ctx, err)))
	}}
	for _, hook := range hooks {
		current := out
		r := await(ctx, until, s, st, func() (domain.Contents, error) { return hook(ctx, s.inv, s.call, current) })
		if r.end != nil {
			return stepResult[domain.Output]{end: r.end}
		}
		out = out.WithContent(r.value)
	}
	return stepResult[domain.Output]{value: out}
}

// preferInterruption returns an interruption if ctx has ended, since the interruption
// is the likely cause of err, the error of a hook. Otherwise it returns err.
func preferInterruption(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", domain.ErrInterrupted, context.Cause(ctx))
}

// keep returns the settlement, with the ID id, of a call whose tool succeeded. It
// bounds the output and stores the parts over the limits. The settlement has one of
// four outcomes:
//
//   - Succeeded.
//   - RetentionFailed, if a part over the limits cannot be stored.
//   - MediaTooLarge, if the media are over their limit.
//   - Interrupted, if the grace period ended during a write.
func (s *callExec) keep(ctx context.Context, id domain.EventID, out domain.Output) domain.Settlement {
	within := lazyGrace{exec: s, ctx: ctx}
	defer within.stop()
	b := s.bounder(&within, id)
	b.lost = out.Lost()
	bounded, err := b.bound(out)
	if err == nil {
		return domain.Settlement{
			Outcome: domain.Succeeded, Structured: bounded.structured, Content: bounded.content, Retained: bounded.retained, Lost: out.Lost(), Files: s.m.registry.config.Limits.boundFiles(out.Files()),
		}
	}
	if errors.Is(err, errCutOff) {
		end := domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx)))
		end.Detail = err.Error()
		return end
	}
	end := domain.Settlement{Outcome: domain.RetentionFailed, Text: failureText(err), Detail: err.Error()}
	if _, media := errors.AsType[mediaLimitError](err); media {
		end.Outcome = domain.MediaTooLarge
	}
	return end
}

// boundFiles returns the files of a call in valid UTF-8, as many as fit in the limits of
// lines and bytes.
func (l Limits) boundFiles(files []domain.FileAccess) []domain.FileAccess {
	var kept []domain.FileAccess
	room := l.Bytes
	for _, f := range files {
		f.Path, f.Access, f.Version = valid(f.Path), valid(f.Access), valid(f.Version)
		if room -= len(f.Path) + len(f.Access) + len(f.Version); room < 0 || len(kept) == l.Lines {
			break
		}
		kept = append(kept, f)
	}
	return kept
}

// errCutOff reports a write of an output that did not end within the grace period.
var errCutOff = errors.New("the write was cut off")

// bounder returns the outputBounder of one settlement. It writes each output on a new
// goroutine. At the end of the grace period Settle leaves a write behind that ignores
// its context. No settlement in the log names that output then, so a later sweep
// removes it.
func (s *callExec) bounder(within *lazyGrace, id domain.EventID) outputBounder {
	return outputBounder{limits: s.m.registry.config.Limits, settlement: id, keep: func(ref domain.Ref, mime, text string) (domain.Retained, error) {
		until := within.start()
		type keepResult struct {
			retained domain.Retained
			err      error
		}
		cutOff := func(domain.Interruption) domain.Settlement { return domain.Settlement{Outcome: domain.Interrupted} }
		st := foreignStep{"the storage of outputs", cutOff, defective}
		r := await(within.ctx, until, s, st, func() (keepResult, error) {
			retained, err := s.m.registry.config.Outputs.Keep(until, ref, mime, strings.NewReader(text))
			if err != nil {
				err = errors.New(err.Error()) // the methods of err are foreign code
			}
			return keepResult{retained, err}, nil
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
