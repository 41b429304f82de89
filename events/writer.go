package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// A Writer is the one appender of a stream in this process. It owns the
// revision of the stream and serializes the appends of several goroutines. The
// store still detects appends of other writers: they make the next append a
// *Conflict.
type Writer struct {
	ledger  *Ledger
	stream  Stream
	session domain.SessionID // the session of the stream; zero for other streams
	mu      struct {
		sync.Mutex
		revision Revision
		open     []Draft  // the drafts of the last Append, if its outcome is unknown
		after    Revision // the revision that this Append named
		refused  error    // the error with which a retry was refused; nil after Resume
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

// Revision returns the length of the stream after the last append of known
// outcome.
func (w *Writer) Revision() Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.revision
}

// Pending reports whether the outcome of the last append is unknown, so that the next one
// first retries it.
func (w *Writer) Pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.open) > 0
}

// Append adds drafts to the end of the stream, with the errors of
// [Store.Append]. If an error leaves the outcome unknown, the next Append of
// any caller first retries these drafts. So they are stored once, and before
// later drafts. If that next Append has the same drafts, it only retries them.
//
// Append returns an ErrNotTried with the cause if ctx had ended before the
// call, or if the retry of earlier drafts failed. It then did not append its
// drafts and will not retry them. [Refused] distinguishes such an error from
// one of unknown outcome. Append holds the lock of w while it writes.
//
// If the store refuses the retried drafts for a reason other than a conflict,
// they are lost although a caller may rely on them. From then on every Append
// returns an ErrNotTried, until [Writer.Resume].
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
		// Do not wrap it: the error is about other drafts.
		return nil, fmt.Errorf("append to %s: %w: an earlier append was refused: %s", w.stream, ErrNotTried, w.mu.refused)
	case err != nil:
		return nil, fmt.Errorf("append to %s: %w: %w", w.stream, ErrNotTried, err)
	}
	return w.appendLocked(ctx, w.mu.revision, drafts)
}

// Flush retries the append whose outcome is unknown, if there is one. It returns
// ErrConflict if the stream has other records where the drafts belong, or another error
// for which [Refused] is true. After such an error the drafts are not stored, and the
// writer drops them.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.flushLocked(ctx)
	return err
}

// Resume lets w append again after the store refused drafts and w dropped them. The
// caller has reread the stream and relies only on the records in it.
func (w *Writer) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.refused = nil
}

// Advance sets the revision to a length that the caller read from the stream.
// A length below the current revision changes nothing.
func (w *Writer) Advance(to Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.revision = max(w.mu.revision, to)
}

// flushLocked retries the open drafts: those of the last Append, if its outcome
// is unknown. It appends them at the revision that this Append named, because
// at another revision the store would add them a second time. It returns no
// envelopes if no drafts are open. The caller holds mu.
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

// appendLocked appends drafts. After a success it advances the revision. If the
// outcome is unknown, it keeps the drafts as the open drafts; otherwise no
// drafts are open. The caller holds mu.
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
