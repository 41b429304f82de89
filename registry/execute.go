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

func (s *callExec) begin(ctx context.Context) error {
	d := s.m.registry.layers.ledger.Draft(events.CallStarted{
		Turn: s.m.offer.Turn, Message: s.inv.Message, Call: s.call.ID, Tool: s.call.Name,
		Offered: s.resolved.offered, Effective: s.resolved.runs, Input: s.input,
		Idempotent: s.resolved.tool.Idempotent(), Process: s.m.registry.layers.process,
	}, domain.EventID{})
	if err := s.journal.Begin(ctx, d); err != nil {
		return err
	}
	s.start = d.ID
	return nil
}

// beginFailed ends a call whose start could not be recorded, and whose tool thus
// does not run. A start that can never be recorded ends it as a defect. If the
// call was interrupted, its end says that it began unless the journal refused
// the start: a start whose outcome is open is on record before the end is. In
// any other case there is no end.
func (s *callExec) beginFailed(ctx context.Context, err error) (domain.Settlement, error) {
	switch {
	case errors.Is(err, events.ErrTooLarge), errors.Is(err, events.ErrBadRecord):
		s.input = nil // it is what is too large, and would be in the end too
		return s.record(ctx, s.id(), defective(fmt.Errorf("record start: %w", err)))
	case ctx.Err() == nil:
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record start: %w", s.call.Name, s.call.ID, err)
	case events.Refused(err):
		return s.record(ctx, s.id(), domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx))))
	}
	return s.record(ctx, s.id(), domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx))))
}

// A resultHandoff passes the result of a tool to the settling, or leaves it to the
// goroutine of the tool where the settling no longer waits.
type resultHandoff struct {
	taken  atomic.Bool               // by whichever side came first
	result stepResult[domain.Output] // by the tool, before it takes
	passed chan struct{}             // closed once the tool took, and the settling may read ran
}

// runTool runs the tool on a goroutine of its own, so that one that ignores its
// interruption can be left behind when its grace is over. The result of such a
// tool is kept as late.
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

// recordLate records the result of a tool that was left behind, once the end of its
// call is on record.
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
	// The call has its end; what broke while this was kept has nobody to read it.
	_ = s.journal.Late(ctx, s.m.registry.layers.ledger.Draft(e, s.end))
}
