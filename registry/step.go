package registry

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// A foreignStep describes foreign code that a call runs: a hook, a codec, the tool or a
// write to the output store. Foreign code may panic, hang or end its goroutine. Other
// calls must not be affected.
type foreignStep struct {
	// name names the step in the text of a defect if the step ends its goroutine.
	name string
	// interrupted returns the end of a call that stops waiting for the step. It is nil
	// for the tool.
	interrupted func(domain.Interruption) domain.Settlement
	// failed returns the end of a call whose step returned an error.
	failed func(error) domain.Settlement
}

// A stepResult is the result of a foreignStep: a value, or the end of the call.
type stepResult[T any] struct {
	value T
	// end is nil if there is a value.
	end *domain.Settlement
}

// stepEnded returns a stepResult that ends the call.
func stepEnded[T any](end domain.Settlement) stepResult[T] { return stepResult[T]{end: &end} }

// attempt calls do on the calling goroutine and then calls pass with the result, even if
// do panics or ends its goroutine. It converts an error into an end before it calls pass,
// because the methods of a foreign error are foreign code too.
func attempt[T any](st foreignStep, do func() (T, error), pass func(stepResult[T])) {
	r := stepEnded[T](defective(&domain.Defect{Value: st.name + " ended its goroutine"}))
	defer func() { pass(r) }()
	defer func() {
		if v := recover(); v != nil {
			r = stepEnded[T](defective(&domain.Defect{Value: v, Stack: debug.Stack()}))
		}
	}()
	value, err := do()
	if err != nil {
		r = stepEnded[T](st.failed(err))
		return
	}
	r = stepResult[T]{value: value}
}

// await runs a step on its own goroutine and returns its result. If until ends first,
// await leaves the step behind: it drops the result, returns the step's interruption, and
// [Layers.Wait] waits for the goroutine.
func await[T any](ctx, until context.Context, s *callExec, st foreignStep, do func() (T, error)) stepResult[T] {
	passed := make(chan stepResult[T], 1)
	s.m.registry.layers.calls.spawn(func() {
		attempt(st, do, func(r stepResult[T]) { passed <- r })
	})
	select {
	case r := <-passed:
		return r
	case <-until.Done():
	}
	select {
	case r := <-passed: // the step returned just as the grace period ended
		return r
	default:
		return stepEnded[T](st.interrupted(domain.InterruptionOf(context.Cause(ctx))))
	}
}

// grace returns a context that ends one grace period after ctx ends, or when the caller
// calls the returned function. The caller must call it, because it also stops the
// timer.
func (s *callExec) grace(ctx context.Context) (context.Context, context.CancelFunc) {
	graceCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		grace := time.NewTimer(s.m.registry.config.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			cancel(context.DeadlineExceeded)
		case <-graceCtx.Done():
		}
	})
	return graceCtx, func() { stop(); cancel(context.Canceled) }
}

// A lazyGrace holds the grace context of one step. The first write creates the context,
// so a step without writes starts no timer. One goroutine uses it.
type lazyGrace struct {
	exec *callExec
	ctx  context.Context
	// graceCtx is nil until start.
	graceCtx context.Context
	cancel   context.CancelFunc
}

// start returns the grace context and creates it on the first call.
func (g *lazyGrace) start() context.Context {
	if g.graceCtx == nil {
		g.graceCtx, g.cancel = g.exec.grace(g.ctx)
	}
	return g.graceCtx
}

// stop releases the grace context, if start created one.
func (g *lazyGrace) stop() {
	if g.graceCtx != nil {
		g.cancel()
	}
}
