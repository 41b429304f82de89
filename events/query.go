package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// A Filter selects records. Each field that is set narrows the selection; the
// zero Filter selects all records.
type Filter struct {
	Kinds      []string  // of one of these kinds
	Categories []string  // in a stream of one of these categories
	Prefixes   []string  // in a stream whose name begins with one of these
	Since      time.Time // at this time or later
	Until      time.Time // before this time
}

// IsZero reports whether f selects all records.
func (f Filter) IsZero() bool {
	return len(f.Kinds) == 0 && len(f.Categories) == 0 && len(f.Prefixes) == 0 && f.Since.IsZero() && f.Until.IsZero()
}

// Valid returns an ErrBadQuery with the reason if no record can match f, and
// otherwise nil.
func (f Filter) Valid() error {
	switch {
	case slices.Contains(f.Kinds, ""):
		return fmt.Errorf("%w: a kind is empty", ErrBadQuery)
	case slices.Contains(f.Categories, ""):
		return fmt.Errorf("%w: a category is empty", ErrBadQuery)
	case slices.Contains(f.Prefixes, ""):
		return fmt.Errorf("%w: a prefix of streams is empty", ErrBadQuery)
	case slices.ContainsFunc(f.Categories, func(c string) bool { return strings.Contains(c, "-") }):
		return fmt.Errorf("%w: a category has a hyphen, which no category can have", ErrBadQuery)
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return fmt.Errorf("%w: no time is both at %s or later and before %s", ErrBadQuery, f.Since.Format(time.RFC3339Nano), f.Until.Format(time.RFC3339Nano))
	}
	return nil
}

// Matches reports whether f selects the record with a header.
func (f Filter) Matches(h Header) bool {
	switch {
	case len(f.Kinds) > 0 && !slices.Contains(f.Kinds, h.Kind),
		len(f.Categories) > 0 && !slices.Contains(f.Categories, h.Stream.Category()),
		len(f.Prefixes) > 0 && !slices.ContainsFunc(f.Prefixes, func(p string) bool { return strings.HasPrefix(string(h.Stream), p) }),
		!f.Since.IsZero() && h.Time.Before(f.Since),
		!f.Until.IsZero() && !h.Time.Before(f.Until):
		return false
	}
	return true
}

// A Query selects entries, and the direction in which they are yielded. The
// zero Query selects all entries, forward.
type Query struct {
	Filter
	Stream   Stream   // only entries of this stream; empty: of all streams
	Backward bool     // the last entry first
	After    Position // only entries after this one, in the direction of the query; zero: from its start
	Through  Position // no entry beyond this one, in the direction of the query; zero: to the end
}

// A Header is an entry without data and metadata.
type Header struct {
	ID       domain.EventID
	Kind     string
	Version  int
	Time     time.Time
	Stream   Stream
	Revision Revision
	Position Position
	Size     int // bytes of data and metadata
}

// Header returns the header of e.
func (e Entry) Header() Header {
	return Header{
		ID: e.ID, Kind: e.Kind, Version: e.Version, Time: e.Time,
		Stream: e.Stream, Revision: e.Revision, Position: e.Position,
		Size: len(e.Data) + len(e.Metadata),
	}
}

// A Scanner is a Store that answers queries efficiently, for example from an
// index. Its iterators follow the rules of Store and end at the end of the log
// as of the start of the loop. A query with an invalid filter ends with
// ErrBadQuery.
//
// [Scan], [Lend], [Headers] and [Split] use the Scanner if the store is one,
// and otherwise read and filter.
type Scanner interface {
	Store

	// Scan yields the selected entries.
	Scan(ctx context.Context, q Query) iter.Seq2[Entry, error]

	// Lend is Scan without copies: data and metadata of an entry belong to the
	// store. The caller may read them until the body of the loop ends, and must
	// not write to them.
	Lend(ctx context.Context, q Query) iter.Seq2[Entry, error]

	// Headers yields the headers of the selected entries. It does not check
	// their data.
	Headers(ctx context.Context, q Query) iter.Seq2[Header, error]

	// Split divides a query into queries of about equal size in bytes, whose results in
	// sequence are the result of the query. The argument parts is the largest number of
	// queries to return; if it is less than 1, Split returns ErrBadQuery. The last query
	// of a forward query without an end includes later appends.
	Split(ctx context.Context, q Query, parts int) ([]Query, error)
}

// ErrBadQuery reports an invalid filter, or a query that cannot be split.
var ErrBadQuery = errors.New("query is not valid")

// Scan yields the selected entries of a store, as [Scanner] documents.
func Scan(ctx context.Context, store Store, q Query) iter.Seq2[Entry, error] {
	if s, ok := store.(Scanner); ok {
		return s.Scan(ctx, q)
	}
	return q.from(ctx, store)
}

// Lend is [Scan] without copies: data and metadata of an entry belong to the
// store. The caller may read them until the body of the loop ends, and must
// not write to them.
func Lend(ctx context.Context, store Store, q Query) iter.Seq2[Entry, error] {
	if s, ok := store.(Scanner); ok {
		return s.Lend(ctx, q)
	}
	return q.from(ctx, store)
}

// Headers yields the headers of the selected entries, as [Scanner] documents.
func Headers(ctx context.Context, store Store, q Query) iter.Seq2[Header, error] {
	if s, ok := store.(Scanner); ok {
		return s.Headers(ctx, q)
	}
	return func(yield func(Header, error) bool) {
		for e, err := range q.from(ctx, store) {
			h := Header{}
			if err == nil {
				h = e.Header()
			}
			if !yield(h, err) {
				return
			}
		}
	}
}

// Split divides a query, as [Scanner] documents. If the store is not a Scanner, Split
// returns the query undivided.
func Split(ctx context.Context, store Store, q Query, parts int) ([]Query, error) {
	if s, ok := store.(Scanner); ok {
		return s.Split(ctx, q, parts)
	}
	if err := q.splits(parts); err != nil {
		return nil, err
	}
	return []Query{q}, nil
}

// splits returns an ErrBadQuery if q cannot be split: its filter is invalid, or
// parts is less than one.
func (q Query) splits(parts int) error {
	if parts < 1 {
		return fmt.Errorf("%w: it cannot be split into %d parts", ErrBadQuery, parts)
	}
	return q.Valid()
}

// from yields the selected entries of a store that is not a [Scanner], from its
// Read and ReadAll. For a backward query it collects all selected entries in
// memory first.
func (q Query) from(ctx context.Context, store Store) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := q.Valid(); err != nil {
			yield(Entry{}, err)
			return
		}
		if !q.Backward {
			q.forward(ctx, store)(yield)
			return
		}
		var found []Entry
		for e, err := range q.forward(ctx, store) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			found = append(found, e)
		}
		for _, e := range slices.Backward(found) {
			if err := context.Cause(ctx); err != nil {
				yield(Entry{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// forward yields the entries that q selects in the order of positions, even if
// q is backward.
func (q Query) forward(ctx context.Context, store Store) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		first, last := q.After, q.Through
		if q.Backward {
			first = Position{} // ReadAll excludes its argument, and Through is included
			last = q.After
		}
		entries := store.ReadAll(ctx, first)
		if q.Stream != "" {
			entries = store.Read(ctx, q.Stream, 0)
		}
		for e, err := range entries {
			if err == nil && !last.IsZero() && e.Position.Compare(last) > 0 {
				return
			}
			if err == nil && !(q.within(e.Position) && q.Matches(e.Header())) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// within reports whether a position is within the bounds of q.
func (q Query) within(p Position) bool {
	after, through := p.Compare(q.After), p.Compare(q.Through)
	if q.Backward {
		after, through = -after, -through
	}
	return (q.After.IsZero() || after > 0) && (q.Through.IsZero() || through <= 0)
}
