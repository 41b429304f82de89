package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A run is a session that is carried forward now, by the first who asked.
type run struct {
	recovers bool            // it is a Recover, which asks no model
	journal  *sessionJournal // nil until the run has begun; guarded by the Runner's mu
	done     chan struct{}   // closed when the run has ended
	err      error           // read after done
}

// Run takes steps until the session rests: there is nothing that the model has
// not read, or a person refused a call and admitted no message since, or the
// steps allowed are used up. What an earlier process left open is ended first.
// Whoever calls Run while the session runs joins that run and gets its error;
// leaving a joined run does not end it. If Run returns nil, every message that
// was admitted before the call was read, unless the steps were used up.
//
// If ctx ends, Run ends the calls that have no end as interrupted, records the
// interruption and returns the cause of ctx. After any other error it ends open
// calls in the same way, as a shutdown: the provider's, the ledger's, ErrBroken
// and ErrNoProgress. It records nothing after ErrElsewhere, ErrNoSession,
// ErrImported, events.ErrUnknownKind, and a *events.Conflict, which says that
// another process appends to the session. The session can be run again.
func (r *Runner) Run(ctx context.Context, session domain.SessionID) error {
	return r.drive(ctx, session, false)
}

// Recover ends what is open in a session and asks the model nothing: calls
// that began are lost; calls that did not are settled against the registry,
// where what a dead process offered is stale; requests for permission that
// nobody waits for are dismissed.
func (r *Runner) Recover(ctx context.Context, session domain.SessionID) error {
	return r.drive(ctx, session, true)
}

func (r *Runner) drive(ctx context.Context, id domain.SessionID, recovers bool) error {
	for {
		first, joined := r.joinOrStart(id, recovers)
		if !joined {
			return r.execute(ctx, id, first)
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

// joinOrStart returns the run of a session, and whether it was there already.
func (r *Runner) joinOrStart(id domain.SessionID, recovers bool) (_ *run, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := r.sessionLocked(id)
	if live.run != nil {
		return live.run, true
	}
	live.run = &run{recovers: recovers, done: make(chan struct{}), err: ErrNotRunning}
	return live.run, false
}

// clearRun takes a run off its session.
func (r *Runner) clearRun(id domain.SessionID, ended *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if live := r.sessionLocked(id); live.run == ended {
		live.run = nil
	}
}

// execute carries a session on for all who joined.
func (r *Runner) execute(ctx context.Context, id domain.SessionID, run *run) error {
	defer func() {
		r.clearRun(id, run)
		close(run.done)
	}()
	c, err := r.begin(ctx, id, run)
	if err == nil {
		err = c.runSteps(ctx)
	}
	run.err = err
	return err
}

// begin reads the session that a run carries on.
func (r *Runner) begin(ctx context.Context, id domain.SessionID, run *run) (*runState, error) {
	live := r.session(id)
	release, err := live.admits.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	s, w, err := r.load(ctx, id)
	if err != nil {
		return nil, err
	}
	w.Advance(s.Revision)
	w.Resume()
	j := newJournal(r.config.Ledger, w)
	j.session, j.allowances = id, r.config.Allowances
	r.mu.Lock()
	run.journal = j
	r.mu.Unlock()
	return &runState{Runner: r, run: run, admits: live.admits, session: s, journal: j, loops: newLoopDetector(r.config.Rounds)}, nil
}

// Note records an event of a running call in its session, such as a decision
// about a permission. It returns ErrNotRunning if the session is not running.
func (r *Runner) Note(ctx context.Context, inv domain.Invocation, e events.Event) error {
	r.mu.Lock()
	var j *sessionJournal
	if run := r.sessionLocked(inv.Session).run; run != nil {
		j = run.journal
	}
	r.mu.Unlock()
	err := ErrNotRunning
	if j != nil {
		err = j.Note(ctx, messageCall{inv.Message, inv.Call}, e)
	}
	if errors.Is(err, ErrNotRunning) {
		return fmt.Errorf("record %s in session %s: %w", e.Kind(), inv.Session, err)
	}
	return err
}
