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

// A View keeps the answer of a projection current. Whoever calls Run, Refresh
// or Rebuild lends it a goroutine. All methods are safe for concurrent use.
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

// A waiter waits for an event of a stream.
type waiter struct {
	stream   events.Stream
	revision events.Revision
	at       events.Position // of the event; zero while the log does not have it
	done     chan struct{}   // closed when it may be folded or passed over
}

// NewView returns a view of a ledger that has folded nothing. Without
// checkpoints it folds the whole log each time that it is made.
func NewView[S any](p Projection[S], l *events.Ledger, c Checkpoints) *View[S] {
	v := &View[S]{projection: p, ledger: l, checkpoints: c}
	v.mu.state = p.Init()
	v.mu.waiting = map[*waiter]struct{}{}
	return v
}

// Current returns the answer of a projection for everything on record, as
// [View.Refresh] computes it. A checkpoint that cannot be saved is no error, since
// the answer is current. Without checkpoints the whole log is folded.
func Current[S any](ctx context.Context, p Projection[S], l *events.Ledger, c Checkpoints) (answer S, err error) {
	view := NewView(p, l, c)
	if err := view.Refresh(ctx); err != nil && !errors.Is(err, ErrCheckpoint) {
		return answer, err
	}
	view.Read(func(current S) { answer = current })
	return answer, nil
}

// Run folds what there is and follows the log until its context ends, whose
// cause it returns, or an error ends it. It begins where the view is: at first,
// with the checkpoint. It saves one when it has caught up and a thousand events
// and an eighth of all were folded since the last; sooner, also on the way,
// once to fold them again would cost twenty times what saving costs; a minute
// after the last, when it has caught up; and on the way out. One that is not
// saved does not end it: the error it returns is then an ErrCheckpoint too.
// While somebody else folds, it is ErrRunning.
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

// Refresh folds what there is to the end and returns. It begins as Run does,
// and saves a checkpoint where Run saves one. After an error that is an
// ErrCheckpoint, the view is current.
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

// Rebuild folds the log to its end from zero, whatever the checkpoint and the
// view hold, and saves a checkpoint. It calls progress, if that is not nil,
// about every half second and at the end, on its own goroutine. Until it is
// done, and after an error, Read sees the answer of the events folded so far.
// After an error that is an ErrCheckpoint, the view is current.
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

// reset puts an answer in place of the one there is.
func (v *View[S]) reset(state S, at eventRef, folded uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.state, v.mu.lastRef, v.mu.through, v.mu.folded = state, at, at.Position, folded
	for w := range v.mu.waiting {
		v.releaseLocked(w)
	}
	v.policy.saved(0)
}

// catchUp folds to the end that the log has when it begins.
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

// checkEvery is how many events are folded between two looks at the clock.
const checkEvery = 4096

// fold applies a sequence until its end or an error.
func (v *View[S]) fold(seq iter.Seq2[events.Envelope, error], apply func(events.Envelope)) error {
	for e, err := range seq {
		if err != nil {
			return fmt.Errorf("fold %s: %w", v.projection.Name, err)
		}
		apply(e)
	}
	return nil
}

// apply folds one event and releases who waits for it, or for one before it.
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

// advance records that everything through a position was folded or passed over.
// Who waits for an event of which it does not know the place looks again: the
// event may be on record by now, and be one that is not read.
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

// advanceTo is advance with an event that the log has there.
func (v *View[S]) advanceTo(p eventRef) {
	v.advance(p.Position)
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Position == v.mu.through {
		v.mu.lastRef = p
	}
}

func (v *View[S]) releaseLocked(w *waiter) {
	delete(v.mu.waiting, w)
	close(w.done)
}

// Read calls look with the answer. The answer belongs to the view: look must
// not change it, nor keep it or a part of it that the projection may reuse, nor
// call the view. Folding stands still meanwhile.
func (v *View[S]) Read(look func(S)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	look(v.mu.state)
}

// Position returns the position through which every event was folded, or
// passed over as one that the projection does not read.
func (v *View[S]) Position() events.Position {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.mu.through
}

// Await returns once the view has folded the first revision events of a
// stream, those that the projection reads, also where they are not on record
// yet. It folds nothing itself, and waits while nobody else does. It returns the
// cause of its context, or what breaks when it looks into the log.
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

// await reports that the event is folded or passed over, or waits until it may
// be. One that is after the waiter is there wakes it; one that was before is on
// record by then.
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

func (v *View[S]) addWaiter(stream events.Stream, revision events.Revision) *waiter {
	w := &waiter{stream: stream, revision: revision, done: make(chan struct{})}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.waiting[w] = struct{}{}
	return w
}

// setPosition tells a waiter where its event is, and reports whether the view is
// that far.
func (v *View[S]) setPosition(w *waiter, p events.Position) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	w.at = p
	return p.Compare(v.mu.through) <= 0
}

func (v *View[S]) removeWaiter(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mu.waiting, w)
}

// A checkpointPolicy says when the next checkpoint is due.
type checkpointPolicy struct {
	unsaved uint64        // events folded since the last
	moved   bool          // events were passed over since the last
	last    time.Time     // when the last was saved, or folding began
	cost    time.Duration // of saving or taking the last; zero while not known
}

// saved says that a checkpoint was saved or taken now, at a cost.
func (p *checkpointPolicy) saved(cost time.Duration) {
	*p = checkpointPolicy{last: time.Now(), cost: cost}
}
