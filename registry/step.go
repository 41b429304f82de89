package registry

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// A foreignStep is foreign code on the way of one call: a hook, a codec, the tool, or
// the storage of outputs.
type foreignStep struct {
	name        string                                      // in the defect of a step that ends its goroutine
	interrupted func(domain.Interruption) domain.Settlement // the end of a call that leaves the step behind
	failed      func(error) domain.Settlement               // the end of a call whose step returned an error
}

// A stepResult is the result of foreign code: a value, or the end of the call.
type stepResult[T any] struct {
	value T
	end   *domain.Settlement // nil where there is a value
}

func stepEnded[T any](end domain.Settlement) stepResult[T] { return stepResult[T]{end: &end} }

// attempt calls do on the calling goroutine and then pass with its result,
// whatever do does: it may panic or end its goroutine. An error is turned into
// an end here, as the methods of errors are foreign code too.
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

// await runs a step on a goroutine of its own and returns its result. If until
// ends first, the step is left behind: its result is dropped, and only
// [Layers.Wait] waits for it.
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
	case r := <-passed: // at the same time
		return r
	default:
		return stepEnded[T](st.interrupted(domain.InterruptionOf(context.Cause(ctx))))
	}
}

// grace returns a context in which the end of a call is recorded: it ends when
// the grace is over that begins with the end of ctx.
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

// A lazyGrace is the grace of one step of a settling, which begins when the step
// first needs it.
type lazyGrace struct {
	exec     *callExec
	ctx      context.Context
	graceCtx context.Context // nil until it is needed
	cancel   context.CancelFunc
}

func (g *lazyGrace) start() context.Context {
	if g.graceCtx == nil {
		g.graceCtx, g.cancel = g.exec.grace(g.ctx)
	}
	return g.graceCtx
}

func (g *lazyGrace) stop() {
	if g.graceCtx != nil {
		g.cancel()
	}
}
