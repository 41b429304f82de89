package projections

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// The errors of a View. Callers match them with errors.Is.
var (
	// ErrRunning: another goroutine is in Run, Refresh or Rebuild of this view.
	ErrRunning = errors.New("view is being folded already")
	// ErrCheckpoint: a checkpoint was not saved. The state of the view is current.
	ErrCheckpoint = errors.New("checkpoint is not saved")
)

// A View keeps the state of a projection current. Run, Refresh and Rebuild fold on
// the goroutine of their caller, one at a time. All methods are safe for concurrent
// use.
//
// Two locks guard it. folding excludes a second fold and is held for as long as one
// lasts; mu guards the state and is held while one event is applied or the state is
// read. A goroutine that needs both locks folding first.
type View[S any] struct {
	projection  Projection[S]
	ledger      *events.Ledger
	checkpoints Checkpoints
	// folding is held by Run, Refresh and Rebuild, which try it and never wait.
	folding sync.Mutex
	// loaded records that loadCheckpoint has looked for a checkpoint. Guarded by
	// folding.
	loaded bool
	// policy measures when the next checkpoint is due. Guarded by folding.
	policy checkpointPolicy

	mu struct {
		sync.RWMutex
		state S
		// lastRef is the last event that a checkpoint can name. All events up to and
		// including lastRef were folded or skipped, and the log has lastRef. It is zero
		// before the first event.
		lastRef eventRef
		// through is the position through which all events were folded or skipped. It
		// is never before the position of lastRef.
		through events.Position
		// folded is the number of events in the state. The goroutine that holds
		// folding may read it without mu.
		folded uint64
		// waiting holds the waiter of each pending Await.
		waiting map[*waiter]struct{}
	}
}

// A waiter is a pending Await for an event of a stream. View.mu guards it, except for
// done, which is closed once.
type waiter struct {
	stream events.Stream
	// revision is the place of the event in its stream.
	revision events.Revision
	// at is the position of the event. It is zero until Await has found the event in
	// the log.
	at events.Position
	// done is closed when the view may have passed the event; Await then checks.
	done chan struct{}
}

// NewView returns a view that has folded no event. It reads neither the log nor c
// until the first Run, Refresh or Rebuild. If c is nil, the view saves no checkpoint
// and folds the whole log.
func NewView[S any](p Projection[S], l *events.Ledger, c Checkpoints) *View[S] {
	v := &View[S]{projection: p, ledger: l, checkpoints: c}
	v.mu.state = p.Init()
	v.mu.waiting = map[*waiter]struct{}{}
	return v
}

// Current returns the state of a projection at the end of the log, as [View.Refresh]
// computes it. The caller owns the state. Current ignores an ErrCheckpoint, the
// failure to save a checkpoint. If c is nil, it folds the whole log.
func Current[S any](ctx context.Context, p Projection[S], l *events.Ledger, c Checkpoints) (answer S, err error) {
	view := NewView(p, l, c)
	if err := view.Refresh(ctx); err != nil && !errors.Is(err, ErrCheckpoint) {
		return answer, err
	}
	view.Read(func(current S) { answer = current })
	return answer, nil
}

// Saved returns the state of a projection at the end of the log, as [Current] does, and saves
// a checkpoint if the state or its position is new, whatever the policy. It is for states so
// small that saving one costs less than folding a few events again.
func Saved[S any](ctx context.Context, p Projection[S], l *events.Ledger, c Checkpoints) (answer S, err error) {
	view := NewView(p, l, c)
	if err := view.Refresh(ctx); err != nil && !errors.Is(err, ErrCheckpoint) {
		return answer, err
	}
	view.folding.Lock()
	defer view.folding.Unlock()
	_ = view.save(ctx) // a failed save costs the next start the same events
	view.Read(func(current S) { answer = current })
	return answer, nil
}

// Run folds all events of the log and then follows the log until ctx ends or an error
// occurs. It returns the cause of ctx or the error. If another goroutine folds this
// view, Run returns an ErrRunning at once. It starts at the position of the view; for
// a new view, this is the position of the checkpoint.
//
// Run saves a checkpoint when it has caught up with the log and has folded 1,000
// events, and an eighth of all events, since the last checkpoint. It saves earlier,
// and also before it has caught up, if folding those events again would take twenty
// times as long as saving. It also saves a minute after the last checkpoint and when
// it returns. A failed save does not end Run: the error that it finally returns is
// then also an ErrCheckpoint.
func (v *View[S]) Run(ctx context.Context) error {
	if !v.folding.TryLock() {
		return v.running()
	}
	defer v.folding.Unlock()
	v.loadCheckpoint(ctx)
	unsaved, err := v.catchUp(ctx, nil)
	if err == nil {
		following := events.Following{Filter: v.projection.Reads, CaughtUp: func(p events.Position) {
			v.advance(p)
			if v.due(caughtUp) {
				unsaved = v.save(ctx)
			}
		}}
		err = v.fold(v.ledger.Follow(ctx, v.Position(), following), v.apply)
	}
	// In most cases ctx has ended here, and a later process still profits from the
	// checkpoint.
	return errors.Join(err, unsaved, v.save(context.WithoutCancel(ctx)))
}

// Refresh folds all events up to the end that the log has when Refresh is called. It
// starts at the same position as Run and saves checkpoints by the same rules, but it
// does not save one merely because it returns. After an ErrCheckpoint the view is
// current; after any other error it is not. If the log fails, Refresh returns that error
// and no ErrCheckpoint.
func (v *View[S]) Refresh(ctx context.Context) error {
	if !v.folding.TryLock() {
		return v.running()
	}
	defer v.folding.Unlock()
	v.loadCheckpoint(ctx)
	unsaved, err := v.catchUp(ctx, nil)
	if err != nil {
		return err // without unsaved: the view is not current
	}
	if !v.due(caughtUp) {
		return unsaved
	}
	return v.save(ctx)
}

// Rebuild discards the state, folds the log from its beginning to its present end
// without a checkpoint, and saves a checkpoint. If progress is not nil, Rebuild calls
// it about every half second and at the end, on its own goroutine. Until Rebuild
// returns, and after an error, Read sees the state of the events folded so far. After an
// ErrCheckpoint the view is current; after any other error it is not.
func (v *View[S]) Rebuild(ctx context.Context, progress func(RebuildProgress)) error {
	if !v.folding.TryLock() {
		return v.running()
	}
	defer v.folding.Unlock()
	v.loaded = true
	v.reset(v.projection.Init(), eventRef{}, 0)
	report := newReport(progress)
	if _, err := v.catchUp(ctx, report); err != nil {
		return err // without a failed save: the view is not current
	}
	report.end(v)
	return v.save(ctx)
}

// running returns an ErrRunning that names the projection.
func (v *View[S]) running() error { return fmt.Errorf("fold %s: %w", v.projection.Name, ErrRunning) }

// reset replaces the state, sets lastRef and through to the event at, and sets the
// number of folded events. It wakes all waiters, which then check against the new
// position. The caller holds folding.
func (v *View[S]) reset(state S, at eventRef, folded uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.state, v.mu.lastRef, v.mu.through, v.mu.folded = state, at, at.Position, folded
	for w := range v.mu.waiting {
		v.releaseLocked(w)
	}
	v.policy.saved(0)
}

// catchUp folds all events up to the end that the log has when catchUp is called, and
// saves the checkpoints that are due on the way. unsaved is the error of the last of
// these saves, which does not end the fold. err is an error of the log. report may be
// nil. The caller holds folding.
func (v *View[S]) catchUp(ctx context.Context, report *progressReporter) (unsaved, err error) {
	head, ok, err := v.ledger.Head(ctx)
	if err != nil {
		return nil, fmt.Errorf("fold %s: %w", v.projection.Name, err)
	}
	q := events.Query{Filter: v.projection.Reads, After: v.Position()}
	if ok {
		if head.Position.Compare(q.After) <= 0 {
			return nil, nil
		}
		q.Through = head.Position
	} else {
		// A store without a head cannot scan and reads every record in any case.
		// Without the filter the view sees the skipped events too, and so learns
		// their positions.
		q.Filter = events.Filter{}
	}
	report.begin(ctx, v.ledger, q)
	err = v.fold(v.ledger.ScanAhead(ctx, q), func(e events.Envelope) {
		if !v.projection.reads(e) {
			v.advanceTo(refOf(e))
			return
		}
		v.apply(e)
		if report.count(e); v.policy.unsaved%checkEvery == 0 && v.due(onTheWay) {
			unsaved = v.save(ctx)
		}
	})
	if err == nil && ok {
		v.advanceTo(refOfHeader(head))
	}
	return unsaved, err
}

// checkEvery is the number of folded events between two checks of the policy while
// the view catches up. A check reads the clock.
const checkEvery = 4096

// fold passes each event of seq to apply until seq ends or yields an error. It
// returns the error, wrapped with the name of the projection.
func (v *View[S]) fold(seq iter.Seq2[events.Envelope, error], apply func(events.Envelope)) error {
	for e, err := range seq {
		if err != nil {
			return fmt.Errorf("fold %s: %w", v.projection.Name, err)
		}
		apply(e)
	}
	return nil
}

// apply folds one event and wakes the waiters for this event and for earlier ones. It
// finds waiters of the same stream by revision, because a waiter may not have a
// position yet, and the others by position. The caller holds folding.
func (v *View[S]) apply(e events.Envelope) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.state = v.projection.Apply(v.mu.state, e)
	v.mu.lastRef, v.mu.through = refOf(e), e.Position
	v.mu.folded++
	v.policy.unsaved++
	for w := range v.mu.waiting {
		if w.stream == e.Stream && w.revision <= e.Revision || !w.at.IsZero() && w.at.Compare(e.Position) <= 0 {
			v.releaseLocked(w)
		}
	}
}

// advance records that all events through p were folded or skipped. It wakes the
// waiters for these events. It also wakes the waiters that do not know the position
// of their event, because the view may have skipped the event; Await then looks it up
// in the log again.
func (v *View[S]) advance(p events.Position) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Compare(v.mu.through) > 0 {
		v.mu.through = p
		v.policy.moved = true
	}
	for w := range v.mu.waiting {
		if w.at.Compare(v.mu.through) <= 0 {
			v.releaseLocked(w)
		}
	}
}

// advanceTo advances the view to the position of p, an event of the log, and sets
// lastRef to p so that a checkpoint can name it. If the view is past p, lastRef does
// not change.
func (v *View[S]) advanceTo(p eventRef) {
	v.advance(p.Position)
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Position == v.mu.through {
		v.mu.lastRef = p
	}
}

// releaseLocked removes a waiter and wakes it. The caller holds mu.
func (v *View[S]) releaseLocked(w *waiter) {
	delete(v.mu.waiting, w)
	close(w.done)
}

// Read calls look with the state. The view owns the state: look must not change it,
// must not retain it or a part that the projection may reuse, and must not call the
// view. No event is applied until look returns.
func (v *View[S]) Read(look func(S)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	look(v.mu.state)
}

// Position returns the position through which all events were folded or
// skipped.
func (v *View[S]) Position() events.Position {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.mu.through
}

// Await returns nil when the view has folded or skipped all events of a stream up to
// and including the given revision. The events need not be appended yet. Await does
// not fold: another goroutine must run Run, Refresh or Rebuild. It returns the cause
// of ctx if ctx ends first, and the error of the log if the log cannot be read. For
// revision 0 it returns nil at once.
func (v *View[S]) Await(ctx context.Context, stream events.Stream, revision events.Revision) error {
	for revision > 0 {
		folded, err := v.await(ctx, stream, revision)
		if err != nil {
			return fmt.Errorf("await revision %d of %s in %s: %w", revision, stream, v.projection.Name, err)
		}
		if folded {
			break
		}
	}
	return nil
}

// await returns true if the view has folded or skipped the event. Otherwise it waits
// until the view may have done so and returns false, and Await checks again. await
// registers the waiter before it reads the log, so that it misses no event: either
// the log already has the event, or a later fold of the event wakes the waiter.
func (v *View[S]) await(ctx context.Context, stream events.Stream, revision events.Revision) (bool, error) {
	w := v.addWaiter(stream, revision)
	defer v.removeWaiter(w)
	for e, err := range v.ledger.Read(ctx, stream, revision-1) {
		if err != nil {
			return false, err
		}
		if v.setPosition(w, e.Position) {
			return true, nil
		}
		break
	}
	select {
	case <-w.done:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// addWaiter registers a waiter for an event whose position is not known yet.
func (v *View[S]) addWaiter(stream events.Stream, revision events.Revision) *waiter {
	w := &waiter{stream: stream, revision: revision, done: make(chan struct{})}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.waiting[w] = struct{}{}
	return w
}

// setPosition stores the position of a waiter's event, and reports whether the
// view has passed it.
func (v *View[S]) setPosition(w *waiter, p events.Position) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	w.at = p
	return p.Compare(v.mu.through) <= 0
}

// removeWaiter removes a waiter, whether or not it was woken.
func (v *View[S]) removeWaiter(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mu.waiting, w)
}

// A checkpointPolicy holds the measurements on which the next checkpoint depends;
// [View.due] decides. The goroutine that holds View.folding owns it.
type checkpointPolicy struct {
	// unsaved is the number of events folded since the last checkpoint.
	unsaved uint64
	// moved reports whether the view skipped events since the last checkpoint.
	moved bool
	// last is the time at which the last checkpoint was saved or loaded, or at which
	// folding began.
	last time.Time
	// cost is the time that saving or loading the last checkpoint took. It is zero
	// while unknown.
	cost time.Duration
}

// saved restarts the counts of unsaved events and the time since the last checkpoint. The
// caller calls it after it has saved or loaded a checkpoint, and after a failed save, so
// that the view does not try again at each event. cost is how long that took.
func (p *checkpointPolicy) saved(cost time.Duration) {
	*p = checkpointPolicy{last: time.Now(), cost: cost}
}
