package query

import (
	"bytes"
	"context"
	"errors"
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
	_, own := e.Stream.Session()
	return f.mayMatch(e) && (f.sessionID.IsZero() || own || v.Correlation == f.sessionID)
}

// mayMatch reports whether the filter can select an entry, which depends on its data only
// if its stream is not that of a session.
func (f *EventFilter) mayMatch(e events.Entry) bool {
	own, ok := e.Stream.Session()
	return (f.Stream == "" || string(e.Stream) == f.Stream) && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) &&
		(f.sessionID.IsZero() || !ok || own == f.sessionID) && f.When.Contains(e.Time)
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
		if e.Position.Compare(end) > 0 || !filter.mayMatch(e) {
			continue
		}
		if !filter.sessionID.IsZero() {
			v, _ := events.Decode(e) // an entry that does not decode is of the session of its stream
			if !filter.Matches(e, v) {
				continue
			}
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
//
// If the filter selects a stream, Entries reads only that, unless it meets a record that
// the store cannot read. For a session it reads the log, because events of other streams
// belong to it, and decodes those that may match.
func Entries(ctx context.Context, s *stores.Store, after events.Position, filter EventFilter) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		if filter.Stream != "" {
			at, err := streamEntries(ctx, s, after, filter, yield)
			if !errors.Is(err, events.ErrDamaged) {
				return
			}
			after = at
		}
		for e, err := range s.LentEntries(ctx, after) {
			if !filter.pass(e, err, yield) {
				return
			}
		}
	}
}

// streamEntries yields the entries of the stream of a filter as Entries does. If the store
// cannot read one, it returns that error, which it does not yield, and the position of the
// last entry before.
func streamEntries(ctx context.Context, s *stores.Store, after events.Position, filter EventFilter, yield func(events.Entry, error) bool) (events.Position, error) {
	for e, err := range events.Lend(ctx, s.Log, events.Query{Stream: events.Stream(filter.Stream), After: after}) {
		if errors.Is(err, events.ErrDamaged) {
			return after, err
		}
		if err == nil {
			after = e.Position
		}
		if !filter.pass(e, err, yield) {
			break
		}
	}
	return after, nil
}

// pass yields a copy of a lent entry if the filter selects it. It reports whether the loop
// goes on. An error that it is given is yielded.
func (f *EventFilter) pass(e events.Entry, err error, yield func(events.Entry, error) bool) bool {
	if err != nil {
		return yield(e, err)
	}
	if !f.mayMatch(e) {
		return true
	}
	e.Data, e.Metadata = bytes.Clone(e.Data), bytes.Clone(e.Metadata)
	v, err := events.Decode(e)
	return !f.Matches(e, v) || yield(e, err)
}
