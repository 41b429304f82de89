package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// A Ledger is a [Store] with typed events, a mint and a clock. It is safe for
// concurrent use. It does not own the store.
type Ledger struct {
	store Store
	mint  *domain.Mint
	now   func() time.Time
}

// NewLedger returns a ledger over a store.
func NewLedger(store Store, mint *domain.Mint, now func() time.Time) *Ledger {
	return &Ledger{store, mint, now}
}

// Mint returns the mint of the ledger's IDs.
func (l *Ledger) Mint() *domain.Mint { return l.mint }

// Now returns the time by the ledger's clock, in UTC to the microsecond.
func (l *Ledger) Now() time.Time { return l.now().UTC().Truncate(time.Microsecond) }

// A Draft is an event with its ID and time, before it is appended. Appended a
// second time it is the same record, so that an append whose end is not known
// can be made again.
type Draft struct {
	ID          domain.EventID
	Time        time.Time
	Correlation domain.SessionID // zero: taken from the stream, if it is a session's
	Causation   domain.EventID
	Event       Event
}

// Draft gives an event an ID and the time. The cause is the event that led to
// it, or zero.
func (l *Ledger) Draft(e Event, cause domain.EventID) Draft {
	return Draft{ID: l.mint.Event(), Time: l.Now(), Causation: cause, Event: e}
}

// Append adds drafts to a stream whose length is exactly after, as
// [Store.Append] does and with its errors, and returns their envelopes. An event
// that cannot be encoded is an ErrBadRecord.
func (l *Ledger) Append(ctx context.Context, s Stream, after Revision, drafts ...Draft) ([]Envelope, error) {
	session, _ := s.Session()
	return l.append(ctx, s, session, after, drafts)
}

// append is Append to a stream that belongs to a session, or to none.
func (l *Ledger) append(ctx context.Context, s Stream, session domain.SessionID, after Revision, drafts []Draft) ([]Envelope, error) {
	room := scratches.Get().(*scratch)
	defer room.done() // as no store keeps a reference to what it is given
	envelopes := make([]Envelope, len(drafts))
	for i, d := range drafts {
		if d.Correlation.IsZero() {
			d.Correlation = session
		}
		record, err := room.encode(d)
		if err != nil {
			return nil, fmt.Errorf("append to %s: %w: %w", s, ErrBadRecord, err)
		}
		room.records = append(room.records, record)
		envelopes[i] = Envelope{
			ID: d.ID, Stream: s, Revision: after + Revision(i) + 1, Time: record.Time,
			Correlation: d.Correlation, Causation: d.Causation, Event: d.Event,
		}
	}
	if err := l.store.Append(ctx, s, after, room.records...); err != nil {
		return nil, err
	}
	return envelopes, nil
}

// Read is [Store.Read] with typed events. A record that does not decode ends
// it with an ErrDamaged.
func (l *Ledger) Read(ctx context.Context, s Stream, after Revision) iter.Seq2[Envelope, error] {
	return decoded(l.store.Read(ctx, s, after), (*decoder).decode)
}

// ReadAll is [Store.ReadAll] with typed events. A record that does not decode
// ends it with an ErrDamaged.
func (l *Ledger) ReadAll(ctx context.Context, after Position) iter.Seq2[Envelope, error] {
	return decoded(l.store.ReadAll(ctx, after), (*decoder).decode)
}

// Follow is [Store.Follow] with typed events. A record that does not decode
// ends it with an ErrDamaged.
func (l *Ledger) Follow(ctx context.Context, after Position, options ...Following) iter.Seq2[Envelope, error] {
	return decoded(l.store.Follow(ctx, after, options...), (*decoder).decode)
}

// Scan yields the events that a query asks for, as [Scanner] says of entries. A
// record that does not decode ends it with an ErrDamaged.
func (l *Ledger) Scan(ctx context.Context, q Query) iter.Seq2[Envelope, error] {
	return decoded(Lend(ctx, l.store, q), (*decoder).lent)
}

// Headers is [Headers] of the store.
func (l *Ledger) Headers(ctx context.Context, q Query) iter.Seq2[Header, error] {
	return Headers(ctx, l.store, q)
}

// Head returns the header of the last entry. It reports false where there is
// none, and where the store is no [Scanner], which would have to read all it
// has.
func (l *Ledger) Head(ctx context.Context) (Header, bool, error) {
	if _, ok := l.store.(Scanner); !ok {
		return Header{}, false, nil
	}
	for h, err := range Headers(ctx, l.store, Query{Backward: true}) {
		return h, err == nil, err
	}
	return Header{}, false, nil
}

// Entries is [Store.ReadAll]: the records as they are kept.
func (l *Ledger) Entries(ctx context.Context, after Position) iter.Seq2[Entry, error] {
	return l.store.ReadAll(ctx, after)
}

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
