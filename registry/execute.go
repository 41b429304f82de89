package registry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// begin records the start of the call, with the registration that runs. The tool may run
// only after begin has returned nil.
func (s *callExec) begin(ctx context.Context, bound domain.Bound) error {
	d := s.m.registry.layers.ledger.Draft(events.CallStarted{
		Turn: s.m.offer.Turn, Message: s.inv.Message, Call: s.call.ID, Tool: s.call.Name,
		Offered: s.resolved.offered, Effective: s.resolved.runs, Input: s.input,
		Idempotent: s.resolved.tool.Idempotent(), AsksFirst: s.resolved.tool.AsksFirst(), Title: bound.Title(), Process: s.m.registry.layers.process,
	}, domain.EventID{})
	if err := s.journal.Begin(ctx, d); err != nil {
		return err
	}
	s.start, s.started = d.ID, time.Now()
	return nil
}

// beginFailed handles an error of the journal at the start of a call. The tool does
// not run. Three cases record an end:
//
//   - The start is too large or has no wire form, so it can never be recorded: a
//     defect.
//   - ctx has ended and the journal refused the start: an interruption before the
//     start.
//   - ctx has ended and the outcome of the append is unknown: an interruption after
//     the start, because the journal puts the start on record before the end.
//
// In all other cases beginFailed returns the error, and the call has no end yet.
func (s *callExec) beginFailed(ctx context.Context, err error) (domain.Settlement, error) {
	switch {
	case errors.Is(err, events.ErrTooLarge), errors.Is(err, events.ErrBadRecord):
		s.input = nil // the input is too large, and the end would repeat it
		return s.record(ctx, s.id(), defective(fmt.Errorf("record start: %w", err)))
	case ctx.Err() == nil:
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record start: %w", s.call.Name, s.call.ID, err)
	case events.Refused(err):
		return s.record(ctx, s.id(), domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx))))
	}
	return s.record(ctx, s.id(), domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx))))
}

// A resultHandoff passes the result of a tool from the tool's goroutine to the
// goroutine that settles the call. If the latter has stopped waiting, the tool's
// goroutine records the result as late. The goroutine that sets taken first decides, so
// a result is either used or recorded as late, never both and never neither.
type resultHandoff struct {
	// taken is set by the first of the two goroutines.
	taken atomic.Bool
	// result is written by the tool's goroutine before it sets taken.
	result stepResult[domain.Output]
	// passed is closed by the tool's goroutine after it has set taken. The goroutine
	// that settles the call reads result only then.
	passed chan struct{}
}

// runTool runs the tool on its own goroutine and waits for the result. After ctx ends it
// waits for the grace period and then leaves the tool behind: it returns an interruption,
// and the tool's goroutine records a later result with recordLate. A tool that never
// returns keeps its goroutine, for which Layers.Wait waits.
func (s *callExec) runTool(ctx context.Context, bound domain.Bound) stepResult[domain.Output] {
	h := &s.tool
	h.passed = make(chan struct{})
	inv := s.inv.Reporting(s.last.set)
	tool := foreignStep{name: "the tool", failed: func(err error) domain.Settlement { return outcomeOfError(ctx, err) }}
	s.m.registry.layers.calls.spawn(func() {
		attempt(tool, func() (domain.Output, error) { return bound.Run(ctx, inv) }, func(r stepResult[domain.Output]) {
			h.result = r
			if h.taken.CompareAndSwap(false, true) {
				close(h.passed)
				return
			}
			s.recordLate(ctx, r)
		})
	})
	select {
	case <-h.passed:
		return h.result
	case <-ctx.Done():
	}
	grace := time.NewTimer(s.m.registry.config.Grace)
	defer grace.Stop()
	select {
	case <-h.passed:
		return h.result
	case <-grace.C:
	}
	if h.taken.CompareAndSwap(false, true) {
		return stepEnded[domain.Output](domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx))))
	}
	<-h.passed
	return h.result
}

// recordLate records the result of a tool that Settle left behind. It runs on the
// tool's goroutine and waits until Settle has returned. If the call has no end on
// record, it records nothing. It cuts a text over the limits. It replaces an output
// over the byte limit by a note and does not retain it.
func (s *callExec) recordLate(ctx context.Context, r stepResult[domain.Output]) {
	<-s.done
	if s.end.IsZero() {
		return
	}
	limits := s.m.registry.config.Limits
	e := events.LateResultObserved{
		Message: s.inv.Message, Call: s.call.ID, Tool: s.call.Name, Settlement: s.end,
		Outcome: domain.Succeeded, Structured: r.value.Structured(),
	}
	if r.end != nil {
		e.Outcome, e.Text = r.end.Outcome, limits.Cut(valid(r.end.Text))
	}
	if len(e.Structured) > limits.Bytes {
		e.Text = fmt.Sprintf("output of %d bytes came late and is not kept: it is over the limit of %d", len(e.Structured), limits.Bytes)
		e.Structured = nil
	}
	ctx, cancel := s.grace(ctx)
	defer cancel()
	// The call has its end and its caller has returned, so no caller reads an
	// error of this append.
	_ = s.journal.Late(ctx, s.m.registry.layers.ledger.Draft(e, s.end))
}
