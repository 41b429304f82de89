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
	ErrRunning    = errors.New("view is being folded already")
	ErrCheckpoint = errors.New("checkpoint is not saved")
)

// A View keeps the state of a projection current. Run, Refresh and Rebuild
// fold on the goroutine of their caller. All methods are safe for concurrent
// use.
type View[S any] struct {
	projection  Projection[S]
	ledger      *events.Ledger
	checkpoints Checkpoints
	folding     sync.Mutex       // held by who folds
	loaded      bool             // a checkpoint was looked for; guarded by folding
	policy      checkpointPolicy // guarded by folding

	mu struct {
		sync.RWMutex
		state   S
		lastRef eventRef        // of an event that the log had: all through it were folded or passed over
		through events.Position // all through it were folded or passed over; not before known
		folded  uint64          // all events that the state holds; written by who holds folding
		waiting map[*waiter]struct{}
	}
}

// A waiter waits until the view has folded or skipped an event of a stream.
type waiter struct {
	stream   events.Stream
	revision events.Revision
	at       events.Position // of the event; zero while the log does not have it
	done     chan struct{}   // closed when it may be folded or passed over
}

// NewView returns a view that has folded no event. If c is nil, the view saves
// no checkpoint and folds the whole log.
func NewView[S any](p Projection[S], l *events.Ledger, c Checkpoints) *View[S] {
	v := &View[S]{projection: p, ledger: l, checkpoints: c}
	v.mu.state = p.Init()
	v.mu.waiting = map[*waiter]struct{}{}
	return v
}

// Current returns the state of a projection at the end of the log, as
// [View.Refresh] computes it. A failed save of a checkpoint is no error. If c
// is nil, it folds the whole log.
func Current[S any](ctx context.Context, p Projection[S], l *events.Ledger, c Checkpoints) (answer S, err error) {
	view := NewView(p, l, c)
	if err := view.Refresh(ctx); err != nil && !errors.Is(err, ErrCheckpoint) {
		return answer, err
	}
	view.Read(func(current S) { answer = current })
	return answer, nil
}

// Run folds all events and follows the log until ctx ends, whose cause it
// returns, or an error. It starts at the position of the view: at first, the
// checkpoint. It returns ErrRunning if another goroutine folds.
//
// Run saves a checkpoint when it has caught up and has folded 1,000 events,
// and an eighth of all, since the last one; earlier, and also before it has
// caught up, once folding those events again would take twenty times as long
// as saving; a minute after the last one, when it has caught up; and when it
// returns. A failed save does not end Run: the error it finally returns is
// then an ErrCheckpoint too.
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
	// The context has ended as a rule, and what was folded is worth keeping.
	return errors.Join(err, unsaved, v.save(context.WithoutCancel(ctx)))
}

// Refresh folds to the present end of the log and returns. It starts, and
// saves checkpoints, as Run does, except when it returns. After an error that
// is an ErrCheckpoint, the view is current.
func (v *View[S]) Refresh(ctx context.Context) error {
	if !v.folding.TryLock() {
		return v.running()
	}
	defer v.folding.Unlock()
	v.loadCheckpoint(ctx)
	unsaved, err := v.catchUp(ctx, nil)
	if err != nil || !v.due(caughtUp) {
		return errors.Join(err, unsaved)
	}
	return v.save(ctx)
}

// Rebuild folds the log from its beginning to its end, without a checkpoint
// and without the state of the view, and saves a checkpoint. It calls
// progress, if that is not nil, about every half second and at the end, on its
// own goroutine. Until Rebuild returns, and after an error, Read sees the
// state of the events folded so far. After an error that is an ErrCheckpoint,
// the view is current.
func (v *View[S]) Rebuild(ctx context.Context, progress func(Progress)) error {
	if !v.folding.TryLock() {
		return v.running()
	}
	defer v.folding.Unlock()
	v.loaded = true
	v.reset(v.projection.Init(), eventRef{}, 0)
	report := newReport(progress)
	unsaved, err := v.catchUp(ctx, report)
	if err != nil {
		return errors.Join(err, unsaved)
	}
	report.end(v)
	return v.save(ctx)
}

func (v *View[S]) running() error { return fmt.Errorf("fold %s: %w", v.projection.Name, ErrRunning) }

// reset replaces the state and wakes all waiters.
func (v *View[S]) reset(state S, at eventRef, folded uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.state, v.mu.lastRef, v.mu.through, v.mu.folded = state, at, at.Position, folded
	for w := range v.mu.waiting {
		v.releaseLocked(w)
	}
	v.policy.saved(0)
}

// catchUp folds to the end that the log has when it is called.
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
		q.Filter = events.Filter{} // such a store reads all there is, and the view knows how far
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

// checkEvery is the number of events between two checks of the clock.
const checkEvery = 4096

// fold calls apply for each event until the sequence ends or has an error.
func (v *View[S]) fold(seq iter.Seq2[events.Envelope, error], apply func(events.Envelope)) error {
	for e, err := range seq {
		if err != nil {
			return fmt.Errorf("fold %s: %w", v.projection.Name, err)
		}
		apply(e)
	}
	return nil
}

// apply folds one event and wakes the waiters for this and earlier events.
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

// advance records that all events through p were folded or skipped. It wakes
// the waiters that do not know the position of their event yet, so that they
// look it up again: the view may have skipped the event.
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

// advanceTo is advance to the position of an event of the log, which a
// checkpoint can then name.
func (v *View[S]) advanceTo(p eventRef) {
	v.advance(p.Position)
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Position == v.mu.through {
		v.mu.lastRef = p
	}
}

// releaseLocked wakes a waiter.
func (v *View[S]) releaseLocked(w *waiter) {
	delete(v.mu.waiting, w)
	close(w.done)
}

// Read calls look with the state. The view owns the state: look must not
// change it, keep it or a part that the projection may reuse, or call the
// view. Folding waits meanwhile.
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

// Await returns once the view has folded the first revision events of a
// stream, as far as the projection reads them, including events that are not
// appended yet. It does not fold: another goroutine must. It returns the cause
// of ctx, or the error of reading the log.
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

// await returns true if the view has passed the event, and otherwise waits
// until it may have. It registers the waiter before it reads the log, so that
// the event either wakes it or is in the log already.
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

// addWaiter registers a waiter.
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

// removeWaiter removes a waiter.
func (v *View[S]) removeWaiter(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mu.waiting, w)
}

// A checkpointPolicy measures when the next checkpoint is due. The goroutine
// that folds owns it.
type checkpointPolicy struct {
	unsaved uint64        // events folded since the last
	moved   bool          // events were passed over since the last
	last    time.Time     // when the last was saved, or folding began
	cost    time.Duration // of saving or taking the last; zero while not known
}

// saved records that a checkpoint was saved or loaded now, and how long that
// took.
func (p *checkpointPolicy) saved(cost time.Duration) {
	*p = checkpointPolicy{last: time.Now(), cost: cost}
}
