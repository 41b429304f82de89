package runner

import (
	"context"
	"fmt"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A runState is the state of one run. Its session is folded from the log and holds no
// other state. One goroutine owns it, except while settle runs calls.
type runState struct {
	*Runner
	run *run
	// admits is the semaphore of the session.
	admits semaphore
	// stopped is set if the last step stopped the run.
	stopped bool
	// session is the fold of the session's stream, as of the last refresh, without the
	// messages that requests leave out. folding is held while it changes, and by other
	// goroutines while they read it.
	session *conversation.State
	folding sync.RWMutex
	journal *sessionJournal
	loops   *loopDetector
	// profile is that of profiled, the agent of the next turn.
	profile  Profile
	profiled domain.AgentID
	// alive is the context of the run.
	alive context.Context
	// adding is held for reading while added calls are being settled.
	adding sync.RWMutex
	// turn is the last turn of this run. Zero: the run has not taken a turn.
	turn domain.TurnID
	// halted is the interruption that the run last tried to record. Zero: it has not
	// tried.
	halted domain.EventID
}

// runSteps takes steps until the session is idle, and then returns nil. After an error,
// halt ends the open work of the session, unless another process runs it.
func (c *runState) runSteps(ctx context.Context) error {
	for {
		idles, err := c.advance(ctx)
		if err != nil {
			return c.halt(ctx, err)
		}
		if !idles {
			continue
		}
		if over, err := c.finishIfIdle(ctx); err != nil {
			return c.halt(ctx, err)
		} else if over {
			return nil
		}
	}
}

// advance plans and takes the next step, and folds the events that the step appended.
// It returns true if the run may end there. It returns ErrNoProgress if the step
// appended no event, since plan would then return the same step again and again.
func (c *runState) advance(ctx context.Context) (idles bool, err error) {
	if c.session.Agent != c.profiled {
		if err := c.loadProfile(ctx); err != nil {
			return false, err
		}
	}
	next, err := plan(c.session, c.steps(), c.contextLimits())
	if err != nil || c.isLast(next) {
		return true, err
	}
	if err := c.checkOwner(ctx, next); err != nil {
		return false, err
	}
	before := c.session.Revision
	c.stopped, err = c.take(ctx, next)
	if err != nil {
		return false, err
	}
	if err := c.refresh(ctx); err != nil {
		return false, err
	}
	if c.session.Revision == before {
		return false, fmt.Errorf("run session %s: %w: %T", c.session.Session, ErrNoProgress, next)
	}
	return c.stopped, nil
}

// isLast reports whether the run ends instead of taking a step. It ends at idle, and
// before a step that asks the model if the run is a recovery or has no provider.
func (c *runState) isLast(next step) bool {
	switch next.(type) {
	case idle:
		return true
	case askModel, compact:
		return c.run.recovers || c.config.Provider == nil
	}
	return false
}

// take takes one step. It returns true if the run stops after it.
func (c *runState) take(ctx context.Context, next step) (stop bool, err error) {
	switch next := next.(type) {
	case loseCalls:
		return false, c.recordEnds(ctx, next.calls, lost)
	case refuseCalls:
		return false, c.recordEnds(ctx, next.calls, func(openCall) domain.Settlement { return domain.DisabledCall() })
	case dismissAsks:
		return false, c.dismiss(ctx)
	case endAdded:
		return false, c.recordEnds(ctx, next.calls, abandoned)
	case settleCalls:
		return c.settle(ctx, next.calls)
	case compact:
		return false, c.compact(ctx, next.compaction)
	case askModel:
		return false, c.ask(ctx, next.last)
	}
	return true, nil
}

// finishIfIdle ends the run and returns true, or returns false if the run must answer a
// message that was admitted meanwhile. It holds the admission semaphore while it
// decides. This run answers a message admitted before that. For a message admitted
// afterwards the session is not running.
func (c *runState) finishIfIdle(ctx context.Context) (over bool, err error) {
	release, err := c.admits.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	c.journal.close()
	if err := c.refresh(ctx); err != nil {
		return false, err
	}
	next, err := plan(c.session, c.steps(), c.contextLimits())
	if err != nil {
		return false, err
	}
	if !c.isLast(next) && !(c.stopped && c.session.Unread == 0) {
		c.journal.reopen()
		return false, nil
	}
	c.clearRun(c.run)
	return true, nil
}

// refresh reads and folds only the events appended since the last refresh.
func (c *runState) refresh(ctx context.Context) error {
	return c.fold(ctx, &foldedSession{c.session, c.loops}, events.SessionStream(c.session.Session), &c.folding)
}

// fold folds the events of a session after the last one of f into f. The past of a fork is
// its beginning, for the loop detector too. After each compaction
// the loop detector reads the messages, and the state forgets those that requests leave
// out. fold holds lock while it applies an event, and not while it reads.
func (r *Runner) fold(ctx context.Context, f *foldedSession, stream events.Stream, lock sync.Locker) error {
	apply := conversation.Projection().Apply
	for v, err := range r.config.Ledger.Read(ctx, stream, f.state.Revision) {
		if err != nil {
			return fmt.Errorf("read session %s: %w", f.state.Session, err)
		}
		var past *conversation.State
		if e, ok := v.Event.(events.SessionForked); ok {
			if past, err = conversation.Past(ctx, r.config.Ledger, e); err != nil {
				return fmt.Errorf("read session %s: %w", f.state.Session, err)
			}
		}
		lock.Lock()
		f.state = apply(f.state, v)
		if past != nil {
			f.state = conversation.Inherit(past, f.state)
		}
		if _, ok := v.Event.(events.ContextCompacted); ok || past != nil {
			f.loops.advance(f.state)
			f.state.Forget()
		}
		lock.Unlock()
	}
	return nil
}

// Look calls look with the state of a running session as of its last step, and returns
// false if the session is not running in this process. The state lacks the messages that a
// compaction left out. look must not change it, retain it or wait.
func (r *Runner) Look(id domain.SessionID, look func(*conversation.State)) bool {
	c := r.running(id)
	if c == nil {
		return false
	}
	c.folding.RLock()
	defer c.folding.RUnlock()
	look(c.session)
	return true
}
