package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Settle brings a call to its one end and returns that, once it is on record.
// Asked again about the same call it joins the settling that runs, or returns
// the settlement on record and runs nothing; with another tool or input it
// returns ErrCallConflict. A call that is on record as begun, and is not
// settled here, is ErrBegan: recovery ends it.
//
// Its order is: resolve the name, compare with the offer, run the hooks before,
// decode, record the start, run, encode, present, run the hooks after, bound
// and keep, record the end. Any other error is that of the journal or of the
// ledger, and then the call has no end on record that Settle knows of. If ctx
// ends, the tool is given the grace of the registry to return; the end is
// recorded all the same.
func (m *Materialization) Settle(ctx context.Context, j Journal, inv domain.Invocation, call domain.Call) (domain.Settlement, error) {
	key := callKey{inv.Session, inv.Message, call.ID}
	inv.Call = call.ID
	return m.registry.layers.calls.settle(ctx, key, call, func() (domain.Settlement, error) {
		recorded, err := j.Recorded(ctx, inv.Message, call.ID)
		switch {
		case err != nil:
			return domain.Settlement{}, fmt.Errorf("settle %s %s: %w", call.Name, call.ID, err)
		case (recorded.Began || recorded.Settlement != nil) && !sameCall(recorded.Call, call):
			return domain.Settlement{}, conflict(call)
		case recorded.Settlement != nil:
			return *recorded.Settlement, nil
		case recorded.Began:
			return domain.Settlement{}, fmt.Errorf("settle %s %s: %w", call.Name, call.ID, ErrBegan)
		}
		s := &settling{m: m, journal: j, inv: inv, call: call, settled: make(chan struct{})}
		defer close(s.settled)
		return s.settle(ctx)
	})
}

// A settling is one call on its way to its end.
type settling struct {
	m       *Materialization
	journal Journal
	inv     domain.Invocation
	call    domain.Call
	found   found
	input   json.RawMessage // after hooks, where they changed it
	start   domain.EventID  // zero until the call began
	last    lastProgress
	settled chan struct{}  // closed when the settling is over
	end     domain.EventID // the end on record; zero where there is none; read after settled
}

func (s *settling) settle(ctx context.Context) (domain.Settlement, error) {
	bound, end, ok := s.prepare(ctx)
	if !ok {
		return s.record(ctx, s.id(), end)
	}
	if ctx.Err() != nil {
		return s.record(ctx, s.id(), domain.InterruptedBefore(domain.InterruptionOf(context.Cause(ctx))))
	}
	if err := s.begin(ctx); err != nil {
		return s.beginFailed(ctx, err)
	}
	out, err := s.run(ctx, bound)
	id := s.id()
	return s.record(ctx, id, s.conclude(ctx, id, out, err))
}

func (s *settling) id() domain.EventID { return s.m.registry.layers.ledger.Mint().Event() }

// prepare goes as far as nothing outside the process can have changed. If ok
// is false, the call ends there.
func (s *settling) prepare(ctx context.Context) (bound domain.Bound, end domain.Settlement, ok bool) {
	offered, ok := s.m.offer.Find(s.call.Name)
	if !ok {
		return bound, domain.Settlement{Outcome: domain.UnknownTool, Text: "Unknown tool: " + s.call.Name}, false
	}
	s.found = s.m.find(offered)
	if s.found.changedBy.IsZero() && s.found.effective.Registration != offered.Registration {
		s.found.changedBy = s.closing(ctx, offered)
	}
	if s.found.tool.IsZero() {
		return bound, domain.Settlement{Outcome: domain.Stale, Text: "Stale tool call: " + s.call.Name}, false
	}
	input, err := s.before(ctx)
	if err != nil {
		return bound, broken(err), false
	}
	bound, err = s.found.tool.Bind(input)
	switch {
	case err == nil:
		return bound, end, true
	case errors.Is(err, domain.ErrInvalidInput):
		text := fmt.Sprintf("Invalid tool input: %v. Rewrite the input so that it fits the schema of %s.", err, s.call.Name)
		return bound, domain.Settlement{Outcome: domain.InvalidInput, Text: text}, false
	}
	return bound, broken(err), false
}

// closing finds the event that ended a registration of another process.
func (s *settling) closing(ctx context.Context, offered domain.Offered) domain.EventID {
	for v, err := range s.m.registry.layers.ledger.Read(ctx, events.LayerStream(offered.Layer), 0) {
		if err != nil {
			return domain.EventID{}
		}
		switch e := v.Event.(type) {
		case events.RegistrationClosed:
			if e.Registration == offered.Registration {
				return v.ID
			}
		case events.LayerClosed:
			return v.ID
		}
	}
	return domain.EventID{}
}

// before runs the hooks and returns the input to decode.
func (s *settling) before(ctx context.Context) (input json.RawMessage, err error) {
	defer contain(&err)
	call := s.call
	for _, hook := range s.m.registry.config.Before {
		if call.Input, err = hook(ctx, s.inv, call); err != nil {
			return nil, fmt.Errorf("run hook before %s: %w", s.call.Name, err)
		}
	}
	if !sameCall(call, s.call) {
		s.input = call.Input
	}
	return call.Input, nil
}

func (s *settling) begin(ctx context.Context) error {
	d := s.m.registry.layers.ledger.Draft(events.CallStarted{
		Turn: s.m.offer.Turn, Message: s.inv.Message, Call: s.call.ID, Tool: s.call.Name,
		Offered: s.found.offered, Effective: s.found.effective, Input: s.input,
		Idempotent: s.found.tool.Idempotent(), Process: s.m.registry.layers.process,
	}, domain.EventID{})
	if err := s.journal.Begin(ctx, d); err != nil {
		return err
	}
	s.start = d.ID
	return nil
}

// beginFailed ends a call whose start could not be recorded. If it was
// interrupted at that, the start may be on record all the same, so that the end
// says that it began.
func (s *settling) beginFailed(ctx context.Context, err error) (domain.Settlement, error) {
	if ctx.Err() == nil {
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record start: %w", s.call.Name, s.call.ID, err)
	}
	end := domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx)))
	return s.record(ctx, s.id(), end)
}

// A ran is what came of a tool.
type ran struct {
	out domain.Output
	err error
}

// A handover passes what came of a tool to the settling, or leaves it to the
// goroutine of the tool where the settling no longer waits.
type handover struct {
	taken  atomic.Bool // by whichever side came first
	result chan ran
}

// run runs the tool on a goroutine of its own, so that one that does not heed
// its interruption can be left behind when its grace is over. What such a one
// returns is kept as late.
func (s *settling) run(ctx context.Context, bound domain.Bound) (domain.Output, error) {
	h := &handover{result: make(chan ran, 1)}
	inv := s.inv.Reporting(s.last.set)
	s.m.registry.layers.calls.tools.Go(func() {
		r := ran{err: &domain.Defect{Value: "the tool ended its goroutine"}}
		defer func() { // also where the tool ended its goroutine
			if h.taken.CompareAndSwap(false, true) {
				h.result <- r
				return
			}
			s.late(ctx, r)
		}()
		r.out, r.err = bound.Run(ctx, inv)
	})
	select {
	case r := <-h.result:
		return r.out, r.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(s.m.registry.config.Grace)
	defer grace.Stop()
	select {
	case r := <-h.result:
		return r.out, r.err
	case <-grace.C:
	}
	if h.taken.CompareAndSwap(false, true) {
		return domain.Output{}, fmt.Errorf("%w: %w", domain.ErrInterrupted, context.Cause(ctx))
	}
	r := <-h.result
	return r.out, r.err
}

// late keeps what came of a tool that was left behind, once the end of its
// call is on record.
func (s *settling) late(ctx context.Context, r ran) {
	<-s.settled
	if s.end.IsZero() {
		return
	}
	e := events.LateResultObserved{
		Message: s.inv.Message, Call: s.call.ID, Tool: s.call.Name, Settlement: s.end,
		Outcome: domain.Succeeded, Structured: r.out.Structured(),
	}
	if r.err != nil {
		end := ended(ctx, r.err)
		e.Outcome, e.Text = end.Outcome, end.Text
	}
	ctx, cancel := s.grace(ctx)
	defer cancel()
	// The call has its end; what broke while this was kept has nobody to read it.
	_ = s.journal.Late(ctx, s.m.registry.layers.ledger.Draft(e, s.end))
}

// grace returns a context in which the end of a call is recorded, whatever
// became of the context in which it ran.
func (s *settling) grace(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.m.registry.config.Grace)
}

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
	keep, cancel := s.grace(ctx)
	defer cancel()
	b := bounding{s.m.registry.config.Limits, s.m.registry.config.Outputs, id}
	shown, err := b.bound(keep, out)
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
			return domain.Output{}, fmt.Errorf("run hook after %s: %w", s.call.Name, err)
		}
		out = out.WithContent(content)
	}
	return out, nil
}

// ended returns the end of a call whose tool returned an error.
func ended(ctx context.Context, err error) domain.Settlement {
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

// contain turns a panic of a hook into a *domain.Defect in err.
func contain(err *error) {
	if v := recover(); v != nil {
		*err = &domain.Defect{Value: v, Stack: debug.Stack()}
	}
}

// record keeps the end of a call and returns it.
func (s *settling) record(ctx context.Context, id domain.EventID, end domain.Settlement) (domain.Settlement, error) {
	end.ID = id
	end.Began = end.Began || !s.start.IsZero()
	end.Input = s.input
	end.Offered, end.Effective, end.ChangedBy = s.found.offered, s.found.effective, s.found.changedBy
	ctx, cancel := s.grace(ctx)
	defer cancel()
	d := s.m.registry.layers.ledger.Draft(events.Settled(s.m.offer.Turn, s.inv.Message, s.call, end), s.start)
	d.ID = id
	if err := s.journal.Settle(ctx, d); err != nil {
		return domain.Settlement{}, fmt.Errorf("settle %s %s: record end: %w", s.call.Name, s.call.ID, err)
	}
	s.end = id
	if len(end.Retained) > 0 {
		// What is not confirmed is looked up in the log by the next recovery.
		_ = s.m.registry.config.Outputs.Confirm(ctx, id)
	}
	return end, nil
}

// A lastProgress holds what a running call said last.
type lastProgress struct {
	mu struct {
		sync.Mutex
		said *domain.Progress
	}
}

func (l *lastProgress) set(p domain.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.said = &p
}

func (l *lastProgress) get() *domain.Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.said
}
