package events

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// A Ledger is a [Store] with typed events, a mint, which generates IDs, and a clock. It
// is safe for concurrent use. The caller closes the store.
type Ledger struct {
	store Store
	mint  *domain.Mint
	now   func() time.Time
}

// NewLedger returns a ledger over a store. The ledger takes IDs from mint and
// calls now for the time of an event.
func NewLedger(store Store, mint *domain.Mint, now func() time.Time) *Ledger {
	return &Ledger{store, mint, now}
}

// Mint returns the mint of the ledger's IDs.
func (l *Ledger) Mint() *domain.Mint { return l.mint }

// Now returns the time of the ledger's clock, in UTC and truncated to the
// microsecond.
func (l *Ledger) Now() time.Time { return l.now().UTC().Truncate(time.Microsecond) }

// A Draft is an event with its ID and time, before it is appended. Each append
// of a draft makes the same record, so an append of unknown outcome can be
// retried.
type Draft struct {
	ID          domain.EventID
	Time        time.Time
	Correlation domain.SessionID // zero: taken from the stream, if it is a session's
	Causation   domain.EventID
	Event       Event
}

// Draft gives an event an ID and the current time. The cause is the ID of the
// event that led to it, or zero.
func (l *Ledger) Draft(e Event, cause domain.EventID) Draft {
	return Draft{ID: l.mint.Event(), Time: l.Now(), Causation: cause, Event: e}
}

// Append adds drafts to the end of a stream and returns their envelopes, without
// positions. The argument after is the length that the stream must have. Append returns
// the errors of [Store.Append], and ErrBadRecord for an event that cannot be encoded.
func (l *Ledger) Append(ctx context.Context, s Stream, after Revision, drafts ...Draft) ([]Envelope, error) {
	session, _ := s.Session()
	return l.append(ctx, s, session, after, drafts)
}

// append does the work of Append. The argument session is the session of the stream, or
// zero if the stream does not belong to a session. A draft without a correlation gets
// this session as its correlation.
func (l *Ledger) append(ctx context.Context, s Stream, session domain.SessionID, after Revision, drafts []Draft) ([]Envelope, error) {
	buffer := encodeBuffers.Get().(*encodeBuffer)
	defer buffer.release() // a store keeps no reference to its arguments
	envelopes := make([]Envelope, len(drafts))
	for i, d := range drafts {
		if d.Correlation.IsZero() {
			d.Correlation = session
		}
		record, err := buffer.encode(d)
		if err != nil {
			return nil, fmt.Errorf("append to %s: %w: %w", s, ErrBadRecord, err)
		}
		buffer.records = append(buffer.records, record)
		envelopes[i] = Envelope{
			ID: d.ID, Stream: s, Revision: after + Revision(i) + 1, Time: record.Time,
			Correlation: d.Correlation, Causation: d.Causation, Event: d.Event,
		}
	}
	if err := l.store.Append(ctx, s, after, buffer.records...); err != nil {
		return nil, err
	}
	return envelopes, nil
}

// Read is [Store.Read] with typed events. It ends with ErrDamaged at a record
// that does not decode.
func (l *Ledger) Read(ctx context.Context, s Stream, after Revision) iter.Seq2[Envelope, error] {
	return decoded(l.store.Read(ctx, s, after), (*decoder).decode)
}

// ReadAll is [Store.ReadAll] with typed events. It ends with ErrDamaged at a
// record that does not decode.
func (l *Ledger) ReadAll(ctx context.Context, after Position) iter.Seq2[Envelope, error] {
	return decoded(l.store.ReadAll(ctx, after), (*decoder).decode)
}

// Follow is [Store.Follow] with typed events. It ends with ErrDamaged at a
// record that does not decode.
func (l *Ledger) Follow(ctx context.Context, after Position, options ...Following) iter.Seq2[Envelope, error] {
	return decoded(l.store.Follow(ctx, after, options...), (*decoder).decode)
}

// Scan yields the selected events, as [Scanner] documents for entries. It ends
// with ErrDamaged at a record that does not decode.
func (l *Ledger) Scan(ctx context.Context, q Query) iter.Seq2[Envelope, error] {
	return decoded(Lend(ctx, l.store, q), (*decoder).lent)
}

// Headers yields the headers of the selected entries of the store, as the function
// [Headers] does.
func (l *Ledger) Headers(ctx context.Context, q Query) iter.Seq2[Header, error] {
	return Headers(ctx, l.store, q)
}

// Head returns the header of the last entry. It returns false for an empty
// store. It also returns false for a store that is not a [Scanner], because
// finding the last entry there means reading the whole log.
func (l *Ledger) Head(ctx context.Context) (Header, bool, error) {
	if _, ok := l.store.(Scanner); !ok {
		return Header{}, false, nil
	}
	for h, err := range Headers(ctx, l.store, Query{Backward: true}) {
		return h, err == nil, err
	}
	return Header{}, false, nil
}

// Entries is [Store.ReadAll]: the stored records, not decoded.
func (l *Ledger) Entries(ctx context.Context, after Position) iter.Seq2[Entry, error] {
	return l.store.ReadAll(ctx, after)
}
