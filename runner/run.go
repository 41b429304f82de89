package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A run is the current run of a session. The first caller of Run executes it, and later
// callers join it.
type run struct {
	// live is the session of the run, which the run uses.
	live *session
	// recovers is set for a Recover, which asks no model.
	recovers bool
	// state is nil until the run has begun. The Runner's mu guards the pointer.
	state *runState
	// done is closed when the run has ended.
	done chan struct{}
	// err is the result of the run. It is read after done.
	err error
}

// Run takes steps until the session is idle. A session is idle if the model has read
// all messages, if the allowed steps are used up, or if a person declined a call and no
// message was admitted since. Run first ends calls that an earlier process left open.
// If Run returns nil, the model has read every message that was admitted before Run was
// called, unless the steps were used up.
//
// If the session is already running, Run joins that run and returns its error. A caller
// that joined returns when its own ctx ends; the run continues.
//
// If ctx ends, Run records open calls as interrupted, records the interruption, and
// returns the cause of ctx. After an error of the provider or the ledger, ErrBroken or
// ErrNoProgress, Run ends the open calls in the same way, with the reason shutdown. It
// records no interruption after ErrElsewhere, ErrNoSession, ErrImported,
// events.ErrUnknownKind, or a *events.Conflict, which means that another process
// appends to the session. The session can be run again after any error.
func (r *Runner) Run(ctx context.Context, session domain.SessionID) error {
	return r.drive(ctx, session, false)
}

// Recover ends the open work of a session without asking the model. It ends as lost
// each call that began. It settles the other calls against the registry, where a tool
// that a dead process offered is stale. It dismisses open permission requests. It
// returns the errors of Run.
func (r *Runner) Recover(ctx context.Context, session domain.SessionID) error {
	return r.drive(ctx, session, true)
}

// drive executes a new run of a session or joins the current one. A caller of Run
// that joined a recovery starts a run of its own after the recovery, because a
// recovery does not ask the model.
func (r *Runner) drive(ctx context.Context, id domain.SessionID, recovers bool) error {
	for {
		first, joined := r.joinOrStart(id, recovers)
		if !joined {
			return r.execute(ctx, first)
		}
		select {
		case <-first.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !first.recovers || recovers {
			return first.err
		}
	}
}

// joinOrStart returns the current run of a session and true, or a new run that the caller
// must execute and false.
func (r *Runner) joinOrStart(id domain.SessionID, recovers bool) (_ *run, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if live, ok := r.mu.sessions[id]; ok && live.run != nil {
		return live.run, true
	}
	live := r.useLocked(id)
	live.run = &run{live: live, recovers: recovers, done: make(chan struct{}), err: ErrNotRunning}
	return live.run, false
}

// clearRun removes a run from its session if it is the session's current run.
func (r *Runner) clearRun(ended *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended.live.run == ended {
		ended.live.run = nil
	}
}

// execute runs a session to its end, removes the run and wakes the callers that joined
// it. If a step panics, these callers receive ErrNotRunning.
func (r *Runner) execute(ctx context.Context, run *run) error {
	defer func() {
		r.clearRun(run)
		close(run.done)
		r.release(run.live)
	}()
	c, err := r.begin(ctx, run)
	if err == nil {
		err = c.runSteps(ctx)
		r.clearRun(run)
		r.keep(run.live, &foldedSession{c.session, c.loops})
	}
	run.err = err
	return err
}

// begin loads a session and opens the run's journal. It holds the admission semaphore,
// so that no message is admitted between loading the session and marking it as running.
// It returns the errors of load.
func (r *Runner) begin(ctx context.Context, run *run) (*runState, error) {
	live := run.live
	release, err := live.admits.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	f, err := r.load(ctx, live)
	if err != nil {
		return nil, err
	}
	live.writer.Advance(f.state.Revision)
	live.writer.Resume()
	j := newJournal(r.config.Ledger, live.writer)
	j.session, j.allowances = live.id, r.config.Allowances
	c := &runState{Runner: r, run: run, alive: ctx, admits: live.admits, session: f.state, journal: j, loops: f.loops}
	if err := c.loadProfile(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	run.state = c
	r.mu.Unlock()
	return c, nil
}

// Note records an event of a running call in its session, such as a permission decision.
// It returns ErrNotRunning if the session is not running in this process, or an error of
// the ledger.
func (r *Runner) Note(ctx context.Context, inv domain.Invocation, e events.Event) error {
	_, err := r.Record(ctx, inv, e)
	return err
}

// Record is Note, and returns the ID of the recorded event.
func (r *Runner) Record(ctx context.Context, inv domain.Invocation, e events.Event) (id domain.EventID, err error) {
	err = ErrNotRunning
	if c := r.running(inv.Session); c != nil {
		id, err = c.journal.Note(ctx, messageCall{inv.Message, inv.Call}, e)
	}
	if errors.Is(err, ErrNotRunning) {
		return id, fmt.Errorf("record %s in session %s: %w", e.Kind(), inv.Session, err)
	}
	return id, err
}
