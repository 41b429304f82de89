package query

import (
	"context"
	"iter"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// An EventFilter selects the events that match all of its fields. The zero EventFilter
// selects every event. A caller calls Resolve and FindSession before Matches.
type EventFilter struct {
	Stream    string           // a whole name; empty: all streams
	Kinds     []string         // empty: all kinds
	Session   string           // an ID, shortened or not; empty: all sessions
	sessionID domain.SessionID // of Session, as Resolve found it
	When      Period           // in which the event was appended; only event ls sets it
}

// FindSession finds the session that f.Session identifies. It returns a usage or not-found
// error if there is none.
func (f *EventFilter) FindSession(r *index.Snapshot) error {
	session, err := Session(r, f.Session)
	f.sessionID = session.ID
	return err
}

// Resolve checks the filter. It returns a usage or not-found error if a kind or the stream
// of f is unknown. If f.Session is set, the caller also calls FindSession.
func (f *EventFilter) Resolve(ctx context.Context, s *stores.Store) error {
	if err := CheckKinds(ctx, s, f.Kinds); err != nil {
		return err
	}
	return checkStream(ctx, s, f.Stream)
}

// Matches reports whether the filter selects the event. e is the event as stored. v is
// the decoded event, or zero if e does not decode. The session of an event is that of
// its stream, or for any other stream the correlation of v.
func (f *EventFilter) Matches(e events.Entry, v events.Envelope) bool {
	session := v.Correlation
	if own, ok := e.Stream.Session(); ok {
		session = own
	}
	return (f.Stream == "" || string(e.Stream) == f.Stream) && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) &&
		(f.sessionID.IsZero() || session == f.sessionID) && f.When.Contains(e.Time)
}

// LastEntries returns the last n entries, up to the position end, that the filter selects,
// in the order of the log. It reads backward from the end, and returns an ErrDamaged if it
// meets a record that the store cannot read.
func LastEntries(ctx context.Context, s *stores.Store, filter EventFilter, end events.Position, n int) ([]events.Entry, error) {
	var latest []events.Entry
	if n == 0 {
		return nil, nil
	}
	for e, err := range events.Scan(ctx, s.Log, events.Query{Filter: events.Filter{Kinds: filter.Kinds}, Stream: events.Stream(filter.Stream), Backward: true}) {
		if err != nil {
			return nil, err
		}
		var v events.Envelope
		if !filter.sessionID.IsZero() {
			v, _ = events.Decode(e) // an entry that does not decode is of the session of its stream
		}
		if e.Position.Compare(end) > 0 || !filter.Matches(e, v) {
			continue
		}
		if latest = append(latest, e); len(latest) == n {
			break
		}
	}
	slices.Reverse(latest)
	return latest, nil
}

// Entries yields the entries after a position that the filter selects. It yields an
// entry that does not decode together with an ErrDamaged, and a record that the store
// cannot read as a zero Entry with an ErrDamaged. Any other error ends the loop.
func Entries(ctx context.Context, s *stores.Store, after events.Position, filter EventFilter) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range s.Entries(ctx, after) {
			var v events.Envelope
			if err == nil {
				v, err = events.Decode(e)
			}
			if !e.ID.IsZero() && !filter.Matches(e, v) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
