package eventstest

import (
	"context"
	"iter"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A scanSaboteur is a saboteur that implements events.Scanner. A nil field leaves the
// operation to package events, which answers it with Read and ReadAll of the
// saboteur.
type scanSaboteur struct {
	*saboteur
	scan    func(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error]     // in place of Scan
	headers func(ctx context.Context, q events.Query) iter.Seq2[events.Header, error]    // in place of Headers
	split   func(ctx context.Context, q events.Query, parts int) ([]events.Query, error) // in place of Split
}

// newScanSaboteur returns a scanSaboteur over a new Slice. It keeps every law until the
// caller sets the field that breaks one.
func newScanSaboteur() *scanSaboteur { return &scanSaboteur{saboteur: &saboteur{Slice: NewSlice()}} }

// Scan implements events.Scanner.
func (x *scanSaboteur) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	if x.scan != nil {
		return x.scan(ctx, q)
	}
	return events.Scan(ctx, x.saboteur, q)
}

// Lend implements events.Scanner. The entries are copies, which the contract allows.
func (x *scanSaboteur) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return events.Lend(ctx, x.saboteur, q)
}

// Headers implements events.Scanner.
func (x *scanSaboteur) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	if x.headers != nil {
		return x.headers(ctx, q)
	}
	return events.Headers(ctx, x.saboteur, q)
}

// Split implements events.Scanner.
func (x *scanSaboteur) Split(ctx context.Context, q events.Query, parts int) ([]events.Query, error) {
	if x.split != nil {
		return x.split(ctx, q, parts)
	}
	return events.Split(ctx, x.saboteur, q, parts)
}

// harness returns the Harness of the embedded saboteur whose Open returns x, so that
// the check uses the overridden methods.
func (x *scanSaboteur) harness() Harness {
	h := x.saboteur.harness()
	h.Open = func(context.Context) (events.Store, error) { x.reopen(); return x, nil }
	return h
}

// includesUntil yields records whose time is equal to Until. A correct store excludes
// them. It leaves pages and backward queries alone, because other laws check them.
func includesUntil() Harness {
	x := newScanSaboteur()
	x.scan = func(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
		if !q.Until.IsZero() && q.Valid() == nil && q.After.IsZero() && !q.Backward {
			q.Until = q.Until.Add(time.Microsecond)
		}
		return events.Scan(ctx, x.saboteur, q)
	}
	return x.harness()
}

// cachesEndOfLog reads the end of the log at the first page of a query and ends later
// pages there. Records that are appended between pages are lost.
func cachesEndOfLog() Harness {
	x := newScanSaboteur()
	var end events.Position
	x.scan = func(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
		if q.Backward || q.Valid() != nil {
			return events.Scan(ctx, x.saboteur, q)
		}
		if q.After.IsZero() || end.IsZero() {
			for e := range x.Slice.ReadAll(ctx, events.Position{}) {
				end = e.Position
			}
		} else if q.Through.IsZero() {
			q.Through = end
		}
		return events.Scan(ctx, x.saboteur, q)
	}
	return x.harness()
}

// losesEntryBetweenParts splits a query into two parts that leave out the third
// entry.
func losesEntryBetweenParts() Harness {
	x := newScanSaboteur()
	x.split = func(ctx context.Context, q events.Query, parts int) ([]events.Query, error) {
		if q.Valid() != nil || parts < 2 || q.Backward {
			return events.Split(ctx, x.saboteur, q, parts)
		}
		var at []events.Position
		for e := range events.Scan(ctx, x.saboteur, q) {
			at = append(at, e.Position)
		}
		if len(at) < 4 {
			return []events.Query{q}, nil
		}
		first, second := q, q
		first.Through, second.After = at[1], at[2]
		return []events.Query{first, second}, nil
	}
	return x.harness()
}

// omitsMetadataFromSize sets the size of a header to the length of the data alone.
func omitsMetadataFromSize() Harness {
	x := newScanSaboteur()
	x.headers = func(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
		return func(yield func(events.Header, error) bool) {
			for e, err := range events.Scan(ctx, x.saboteur, q) {
				h := events.Header{}
				if err == nil {
					h = e.Header()
					h.Size = len(e.Data)
				}
				if !yield(h, err) {
					return
				}
			}
		}
	}
	return x.harness()
}

// reportsLastMatchAsCaughtUp passes to CaughtUp the position of the last entry that
// the filter accepted. A correct store passes the last position that it has read.
func reportsLastMatchAsCaughtUp() Harness {
	x := &saboteur{Slice: NewSlice()}
	x.follow = func(ctx context.Context, after events.Position, options []events.Following) iter.Seq2[events.Entry, error] {
		if len(options) == 0 || options[0].Filter.IsZero() || options[0].CaughtUp == nil {
			return x.Slice.Follow(ctx, after, options...)
		}
		return func(yield func(events.Entry, error) bool) {
			last, inner := after, options[0]
			inner.CaughtUp = func(events.Position) { options[0].CaughtUp(last) }
			for e, err := range x.Slice.Follow(ctx, after, inner) {
				if err == nil {
					last = e.Position
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
	return x.harness()
}

// acceptsBadQueries ends the loop of an invalid query without an error.
func acceptsBadQueries() Harness {
	x := newScanSaboteur()
	x.scan = func(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
		if q.Valid() != nil {
			return func(func(events.Entry, error) bool) {}
		}
		return events.Scan(ctx, x.saboteur, q)
	}
	return x.harness()
}
