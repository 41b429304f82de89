package projections

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/settlement-ledger/ledger/events"
)

// The errors of a View. Callers match them with errors.Is.
var (
	ErrRunning    = errors.New("view is being folded already")
	ErrCheckpoint = errors.New("checkpoint is not saved")
)

// A View keeps the answer of a projection current. It starts no goroutine:
// whoever calls Run or Refresh lends it one. All methods are safe for
// concurrent use.
type View[S any] struct {
	projection  Projection[S]
	ledger      *events.Ledger
	checkpoints Checkpoints
	folding     sync.Mutex // held by Run and Refresh
	begun       bool       // a checkpoint was looked for; guarded by folding
	unsaved     uint64     // events folded since the last checkpoint; guarded by folding

	mu struct {
		sync.RWMutex
		state   S
		last    place
		folded  uint64 // all events that the state holds; written by who holds folding
		waiting map[*waiter]struct{}
	}
}

// A waiter waits for an event of a stream.
type waiter struct {
	stream   events.Stream
	revision events.Revision
	done     chan struct{} // closed when it was folded, or the view skipped ahead
}

// NewView returns a view of a ledger that has folded nothing. Without
// checkpoints it folds the whole log each time that it is made.
func NewView[S any](p Projection[S], l *events.Ledger, c Checkpoints) *View[S] {
	v := &View[S]{projection: p, ledger: l, checkpoints: c}
	v.mu.state = p.Init()
	v.mu.waiting = map[*waiter]struct{}{}
	return v
}

// Run folds what there is and follows the log until its context ends, whose
// cause it returns, or an error ends it. It begins where the view is: at first,
// with the checkpoint. It saves one when it has caught up and a thousand events
// and an eighth of all were folded since the last, and on the way out. One that
// is not saved does not end it: the error it returns is then an ErrCheckpoint
// too. While another Run or Refresh folds, it is ErrRunning.
func (v *View[S]) Run(ctx context.Context) error {
	if !v.folding.TryLock() {
		return v.running()
	}
	defer v.folding.Unlock()
	v.begin(ctx)
	var unsaved error
	err := v.fold(v.ledger.Follow(ctx, v.Position(), events.Following{CaughtUp: func(events.Position) {
		if v.due() {
			unsaved = v.save(ctx)
		}
	}}))
	// The context has ended as a rule, and what was folded is worth keeping.
	return errors.Join(err, unsaved, v.save(context.WithoutCancel(ctx)))
}

// Refresh folds what there is to the end and returns. It begins as Run does,
// and saves a checkpoint at the end where Run saves one once it has caught up.
// After an error that is an ErrCheckpoint, the view is current.
func (v *View[S]) Refresh(ctx context.Context) error {
	if !v.folding.TryLock() {
		return v.running()
	}
	defer v.folding.Unlock()
	v.begin(ctx)
	if err := v.fold(v.ledger.ReadAll(ctx, v.Position())); err != nil {
		return err
	}
	if !v.due() {
		return nil
	}
	return v.save(ctx)
}

func (v *View[S]) running() error { return fmt.Errorf("fold %s: %w", v.projection.Name, ErrRunning) }

// fold applies a sequence until its end or an error.
func (v *View[S]) fold(seq iter.Seq2[events.Envelope, error]) error {
	for e, err := range seq {
		if err != nil {
			return fmt.Errorf("fold %s: %w", v.projection.Name, err)
		}
		v.apply(e)
	}
	return nil
}

// apply folds one event and releases who waits for it.
func (v *View[S]) apply(e events.Envelope) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.state = v.projection.Apply(v.mu.state, e)
	v.mu.last = placeOf(e)
	v.mu.folded++
	v.unsaved++
	for w := range v.mu.waiting {
		if w.stream == e.Stream && w.revision <= e.Revision {
			v.releaseLocked(w)
		}
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

// Position returns the position of the last event folded.
func (v *View[S]) Position() events.Position {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.mu.last.Position
}

// Await returns once the view has folded the first revision events of a
// stream, also where they are not on record yet. It folds nothing itself, and
// waits while nobody else does. It returns the cause of its context, or what
// breaks when it looks into the log.
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

// await reports that the event is folded, or waits until it may be. An event
// that is folded after the waiter is there wakes it; one that was folded before
// is on record by then.
func (v *View[S]) await(ctx context.Context, stream events.Stream, revision events.Revision) (bool, error) {
	w := v.wait(stream, revision)
	defer v.forget(w)
	for e, err := range v.ledger.Read(ctx, stream, revision-1) {
		if err != nil {
			return false, err
		}
		if e.Position.Compare(v.Position()) <= 0 {
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

func (v *View[S]) wait(stream events.Stream, revision events.Revision) *waiter {
	w := &waiter{stream: stream, revision: revision, done: make(chan struct{})}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.waiting[w] = struct{}{}
	return w
}

func (v *View[S]) forget(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mu.waiting, w)
}
