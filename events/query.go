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

// A Filter says which records. Each field that is set narrows it; the zero
// Filter lets everything through.
type Filter struct {
	Kinds      []string  // of one of these kinds
	Categories []string  // in a stream of one of these categories
	Prefixes   []string  // in a stream whose name begins with one of these
	Since      time.Time // whose time is this or later
	Until      time.Time // whose time is before this
}

// IsZero reports whether f lets everything through.
func (f Filter) IsZero() bool {
	return len(f.Kinds) == 0 && len(f.Categories) == 0 && len(f.Prefixes) == 0 && f.Since.IsZero() && f.Until.IsZero()
}

// Valid returns an ErrBadQuery that says what is wrong with f, or nil. A
// filter that nothing can pass is a mistake and not an empty answer.
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

// Matches reports whether f lets a record through.
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

// A Query asks for entries. The zero Query asks for all of them, in order.
type Query struct {
	Filter
	Stream   Stream   // of this stream alone; empty: of all streams
	Backward bool     // the last one first
	After    Position // those that come after this one, in the direction of the query; zero: all
	Through  Position // no further than this one, in the direction of the query; zero: to the end
}

// A Header is an entry without its data and metadata.
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

// A Scanner is a Store that answers queries where its records lie. Its
// iterators follow the rule of Store's and stop at the end that was there when
// the loop began. A query whose filter is not valid ends with ErrBadQuery.
//
// [Scan], [Lend], [Headers] and [Split] ask a Scanner, or any other Store by
// reading what there is and passing over what was not asked for.
type Scanner interface {
	Store

	// Scan yields the entries that a query asks for.
	Scan(ctx context.Context, q Query) iter.Seq2[Entry, error]

	// Lend is Scan, but the data and metadata of an entry belong to the store:
	// they may be read until the body of the loop ends, and never written to.
	Lend(ctx context.Context, q Query) iter.Seq2[Entry, error]

	// Headers yields the headers of the entries that a query asks for. That
	// the data under a header are whole is not looked at.
	Headers(ctx context.Context, q Query) iter.Seq2[Header, error]

	// Split cuts a query into at most so many that, answered one after the
	// other, give what the query gives; they ask for about as many bytes each.
	// What is appended after the call is in the last of them if the query runs
	// forward to the end. Fewer than one part is ErrBadQuery.
	Split(ctx context.Context, q Query, parts int) ([]Query, error)
}

// ErrBadQuery says that a query cannot be answered as it is.
var ErrBadQuery = errors.New("query is not valid")

// Scan yields the entries of a store that a query asks for, as [Scanner] says.
func Scan(ctx context.Context, store Store, q Query) iter.Seq2[Entry, error] {
	if s, ok := store.(Scanner); ok {
		return s.Scan(ctx, q)
	}
	return q.from(ctx, store)
}

// Lend is [Scan] with entries whose bytes belong to the store: they may be
// read until the body of the loop ends, and never written to.
func Lend(ctx context.Context, store Store, q Query) iter.Seq2[Entry, error] {
	if s, ok := store.(Scanner); ok {
		return s.Lend(ctx, q)
	}
	return q.from(ctx, store)
}

// Headers yields the headers of the entries that a query asks for, as
// [Scanner] says.
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

// Split cuts a query, as [Scanner] says. A store that is no Scanner gives one
// part, the query.
func Split(ctx context.Context, store Store, q Query, parts int) ([]Query, error) {
	if s, ok := store.(Scanner); ok {
		return s.Split(ctx, q, parts)
	}
	if err := q.splits(parts); err != nil {
		return nil, err
	}
	return []Query{q}, nil
}

func (q Query) splits(parts int) error {
	if parts < 1 {
		return fmt.Errorf("%w: it cannot be split into %d parts", ErrBadQuery, parts)
	}
	return q.Valid()
}

// from answers q with Read and ReadAll. Backward, it holds all that it yields.
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

// forward yields what q asks for in the order of positions, whatever its
// direction.
func (q Query) forward(ctx context.Context, store Store) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		first, last := q.After, q.Through
		if q.Backward {
			first = Position{} // Through is among what is asked for, and nothing asks for what stands at it
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

// within reports whether q asks for an entry at a position, whatever it is.
func (q Query) within(p Position) bool {
	after, through := p.Compare(q.After), p.Compare(q.Through)
	if q.Backward {
		after, through = -after, -through
	}
	return (q.After.IsZero() || after > 0) && (q.Through.IsZero() || through <= 0)
}
