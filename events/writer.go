package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// A Writer is the one appender of a stream in this process: it owns the
// stream's revision, so that several goroutines may append one after the
// other. The stream itself is still the serialization: an append by anybody
// else makes the next one a *Conflict.
type Writer struct {
	ledger  *Ledger
	stream  Stream
	session domain.SessionID // whose stream it is; zero where it is none's
	mu      struct {
		sync.Mutex
		revision Revision
		open     []Draft  // of the last Append, if its error leaves the outcome open
		after    Revision // the length of the stream that this Append named
		refused  error    // why such drafts were refused when they were added again; nil once Resume was called
	}
}

// Writer returns a writer for a stream whose length is revision.
func (l *Ledger) Writer(s Stream, revision Revision) *Writer {
	w := &Writer{ledger: l, stream: s}
	w.session, _ = s.Session()
	w.mu.revision = revision
	return w
}

// Stream returns the stream that w appends to.
func (w *Writer) Stream() Stream { return w.stream }

// Revision returns the length of the stream after the last append of w whose
// end is known.
func (w *Writer) Revision() Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.revision
}

// Append adds drafts to the end of the stream, with the errors of
// [Store.Append]. If an error leaves it open whether drafts were added, the
// next Append of any caller first adds them again, so that they are on record
// once and before later drafts; if it is given the same drafts, it does no more
// than that.
//
// If the context ended before the call, or the drafts of an earlier Append could
// not be added again, w does not try to add these drafts and does not keep them:
// the error is an ErrNotTried with the cause. [Refused] tells such an error from
// one that leaves the outcome open. Append holds the lock of w while it writes.
//
// If the store refuses those earlier drafts for another reason than a conflict,
// they are not on record although a caller may have counted on them: every Append
// is an ErrNotTried from then on, until [Writer.Resume].
func (w *Writer) Append(ctx context.Context, drafts ...Draft) ([]Envelope, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := len(drafts) > 0 && slices.EqualFunc(w.mu.open, drafts, func(a, b Draft) bool { return a.ID == b.ID })
	if again {
		return w.flushLocked(ctx)
	}
	err := context.Cause(ctx)
	if err == nil {
		_, err = w.flushLocked(ctx)
	}
	switch {
	case w.mu.refused != nil:
		// That error is about other drafts: it must not match what is said of these.
		return nil, fmt.Errorf("append to %s: %w: an earlier append was refused: %s", w.stream, ErrNotTried, w.mu.refused)
	case err != nil:
		return nil, fmt.Errorf("append to %s: %w: %w", w.stream, ErrNotTried, err)
	}
	return w.appendLocked(ctx, w.mu.revision, drafts)
}

// Flush adds the drafts again of an Append whose outcome is open, if there is
// one, so that the writer knows what is on record. It returns ErrConflict if the
// stream has other records in their place, or another error for which [Refused]
// is true: then they are not on record, and the writer drops them.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.flushLocked(ctx)
	return err
}

// Resume makes w take drafts again after it dropped refused ones. The caller has
// read the stream since, and counts on nothing that is not there.
func (w *Writer) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.refused = nil
}

// Advance tells w of a length that was read from the stream. A length below
// the one it knows changes nothing.
func (w *Writer) Advance(to Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.revision = max(w.mu.revision, to)
}

// flushLocked adds the open drafts where they were appended first: at another
// place they would be other records.
func (w *Writer) flushLocked(ctx context.Context) ([]Envelope, error) {
	if len(w.mu.open) == 0 {
		return nil, nil
	}
	envelopes, err := w.appendLocked(ctx, w.mu.after, w.mu.open)
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrBadRecord) {
		w.mu.refused = err
	}
	return envelopes, err
}

func (w *Writer) appendLocked(ctx context.Context, after Revision, drafts []Draft) ([]Envelope, error) {
	envelopes, err := w.ledger.append(ctx, w.stream, w.session, after, drafts)
	switch {
	case err == nil:
		w.mu.revision = max(w.mu.revision, after+Revision(len(drafts)))
		w.mu.open = nil
	case Refused(err):
		w.mu.open = nil
	default:
		w.mu.open, w.mu.after = slices.Clone(drafts), after
	}
	return envelopes, err
}
