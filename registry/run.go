package registry

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A ran is the result of foreign code: a value, or the end of the call.
type ran[T any] struct {
	value T
	end   *domain.Settlement // nil where there is a value
}

func endedAs[T any](end domain.Settlement) ran[T] { return ran[T]{end: &end} }

// A step is foreign code on the way of one call: a hook, a codec, the tool, or
// the storage of outputs.
type step struct {
	name        string                                      // in the defect of a step that ends its goroutine
	interrupted func(domain.Interruption) domain.Settlement // the end of a call that leaves the step behind
	failed      func(error) domain.Settlement               // the end of a call whose step returned an error
}

// attempt calls do on the calling goroutine and then pass with its result,
// whatever do does: it may panic or end its goroutine. An error is turned into
// an end here, as the methods of errors are foreign code too.
func attempt[T any](st step, do func() (T, error), pass func(ran[T])) {
	r := endedAs[T](broken(&domain.Defect{Value: st.name + " ended its goroutine"}))
	defer func() { pass(r) }()
	defer func() {
		if v := recover(); v != nil {
			r = endedAs[T](broken(&domain.Defect{Value: v, Stack: debug.Stack()}))
		}
	}()
	value, err := do()
	if err != nil {
		r = endedAs[T](st.failed(err))
		return
	}
	r = ran[T]{value: value}
}

// await runs a step on a goroutine of its own and returns its result. If until
// ends first, the step is left behind: its result is dropped, and only
// [Layers.Wait] waits for it.
func await[T any](ctx, until context.Context, s *settling, st step, do func() (T, error)) ran[T] {
	passed := make(chan ran[T], 1)
	s.m.registry.layers.calls.run(func() {
		attempt(st, do, func(r ran[T]) { passed <- r })
	})
	select {
	case r := <-passed:
		return r
	case <-until.Done():
	}
	select {
	case r := <-passed: // at the same time
		return r
	default:
		return endedAs[T](st.interrupted(domain.InterruptionOf(context.Cause(ctx))))
	}
}

// A handover passes the result of a tool to the settling, or leaves it to the
// goroutine of the tool where the settling no longer waits.
type handover struct {
	taken  atomic.Bool        // by whichever side came first
	ran    ran[domain.Output] // by the tool, before it takes
	passed chan struct{}      // closed once the tool took, and the settling may read ran
}

// run runs the tool on a goroutine of its own, so that one that ignores its
// interruption can be left behind when its grace is over. The result of such a
// tool is kept as late.
func (s *settling) run(ctx context.Context, bound domain.Bound) ran[domain.Output] {
	h := &s.tool
	h.passed = make(chan struct{})
	inv := s.inv.Reporting(s.last.set)
	tool := step{name: "the tool", failed: func(err error) domain.Settlement { return ended(ctx, err) }}
	s.m.registry.layers.calls.run(func() {
		attempt(tool, func() (domain.Output, error) { return bound.Run(ctx, inv) }, func(r ran[domain.Output]) {
			h.ran = r
			if h.taken.CompareAndSwap(false, true) {
				close(h.passed)
				return
			}
			s.late(ctx, r)
		})
	})
	select {
	case <-h.passed:
		return h.ran
	case <-ctx.Done():
	}
	grace := time.NewTimer(s.m.registry.config.Grace)
	defer grace.Stop()
	select {
	case <-h.passed:
		return h.ran
	case <-grace.C:
	}
	if h.taken.CompareAndSwap(false, true) {
		return endedAs[domain.Output](domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx))))
	}
	<-h.passed
	return h.ran
}

// late records the result of a tool that was left behind, once the end of its
// call is on record.
func (s *settling) late(ctx context.Context, r ran[domain.Output]) {
	<-s.over
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
