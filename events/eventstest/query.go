package eventstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// queryStreams are names and categories of which some are prefixes of others.
var queryStreams = []events.Stream{"query-1", "query-10", "query-1-2", "quer-1", "queryx-1", "query"}

// queryFilters runs random queries over random records and compares the
// results with expectedEntries.
func queryFilters(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		rng := rand.New(rand.NewPCG(11, 7))
		all, err := b.appendVaried(ctx, rng, 150)
		if err != nil {
			return err
		}
		for i := range 150 {
			q := randomQuery(rng, all)
			if i == 0 {
				q = events.Query{}
			}
			want := expectedEntries(all, q)
			got, err := collect(events.Scan(ctx, b.Store, q))
			if err != nil {
				return fmt.Errorf("Scan(%s): %w", formatQuery(q), err)
			}
			if !slices.EqualFunc(got, want, sameEntry) {
				return fmt.Errorf("Scan(%s) yields %s, want %s", formatQuery(q), formatPositions(got), formatPositions(want))
			}
		}
		return nil
	}())
}

// appendVaried appends at least n records of several kinds, times and sizes to
// several streams, and returns all entries.
func (b *fixture) appendVaried(ctx context.Context, rng *rand.Rand, n int) ([]events.Entry, error) {
	lengths := map[events.Stream]events.Revision{}
	for made := 0; made < n; {
		s := queryStreams[rng.IntN(len(queryStreams))]
		records := b.records(1 + rng.IntN(6))
		for i := range records {
			records[i].Time = queryTime(rng)
			switch rng.IntN(4) {
			case 0:
				records[i].Metadata = nil
			case 1:
				records[i].Data = fmt.Appendf(nil, `{"long":%q}`, bytes.Repeat([]byte("x"), rng.IntN(3000)))
			}
		}
		if err := b.Append(ctx, s, lengths[s], records...); err != nil {
			return nil, err
		}
		lengths[s] += events.Revision(len(records))
		made += len(records)
	}
	return collect(b.ReadAll(ctx, events.Position{}))
}

// queryTime returns one of few times, so that bounds of queries coincide with
// times of records.
func queryTime(rng *rand.Rand) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 1000*rng.IntN(20), time.UTC)
}

// randomQuery returns a valid query with random fields and bounds at positions
// of entries.
func randomQuery(rng *rand.Rand, all []events.Entry) (q events.Query) {
	place := func() events.Position { return all[rng.IntN(len(all))].Position }
	for _, of := range []struct {
		one int
		set func()
	}{
		{3, func() {
			q.Kinds = append(q.Kinds, fmt.Sprintf("Kind%d", rng.IntN(7)), fmt.Sprintf("Kind%d", rng.IntN(9)))
		}},
		{4, func() { q.Categories = append(q.Categories, []string{"query", "quer", "que", "queryx"}[rng.IntN(4)]) }},
		{4, func() { q.Prefixes = append(q.Prefixes, []string{"q", "query-", "query-1", "z"}[rng.IntN(4)]) }},
		{4, func() { q.Since = queryTime(rng) }},
		{4, func() { q.Until = queryTime(rng).Add(time.Duration(rng.IntN(2)) * time.Nanosecond) }},
		{3, func() { q.Stream = append(slices.Clone(queryStreams), "query-none")[rng.IntN(len(queryStreams)+1)] }},
		{2, func() { q.Backward = true }},
		{3, func() { q.After = place() }},
		{3, func() { q.Through = place() }},
	} {
		if rng.IntN(of.one) == 0 {
			of.set()
		}
	}
	if q.Valid() != nil {
		q.Until = time.Time{}
	}
	return q
}

// expectedEntries filters all entries by the definition of a query.
func expectedEntries(all []events.Entry, q events.Query) (want []events.Entry) {
	for _, e := range all {
		after, through := e.Position.Compare(q.After), e.Position.Compare(q.Through)
		if q.Backward {
			after, through = -after, -through
		}
		if (q.After.IsZero() || after > 0) && (q.Through.IsZero() || through <= 0) &&
			(q.Stream == "" || q.Stream == e.Stream) && q.Matches(e.Header()) {
			want = append(want, e)
		}
	}
	if q.Backward {
		slices.Reverse(want)
	}
	return want
}

// formatQuery returns the fields of a query for an error text.
func formatQuery(q events.Query) string {
	return fmt.Sprintf("kinds %q categories %q prefixes %q since %s until %s stream %q backward %t after %s through %s",
		q.Kinds, q.Categories, q.Prefixes, q.Since.Format(time.RFC3339Nano), q.Until.Format(time.RFC3339Nano), q.Stream, q.Backward, q.After, q.Through)
}

// formatPositions returns the number and the positions of entries for an error
// text.
func formatPositions(entries []events.Entry) string {
	text := fmt.Sprintf("%d entries at", len(entries))
	for _, e := range entries {
		text += " " + e.Position.String()
	}
	return text
}

// sameEntry reports whether two entries are equal in all fields.
func sameEntry(a, b events.Entry) bool { return sameLocation(a, b) && sameRecord(a.Record, b.Record) }

// pagesAreTheWhole reads several queries in pages while the log grows.
func pagesAreTheWhole(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		for i, q := range []events.Query{
			{}, {Backward: true}, {Stream: "page-1"}, {Stream: "page-1", Backward: true},
			{Filter: events.Filter{Kinds: []string{"Kind1", "Kind2", "Kind3"}}},
		} {
			if err := b.checkPages(ctx, q, events.Stream(fmt.Sprintf("page-x%d", i))); err != nil {
				return fmt.Errorf("query %d: %w", i+1, err)
			}
		}
		return nil
	}())
}

// checkPages reads a query in pages of three, each after the last entry of the
// page before, and appends between pages. A forward query includes the new
// records; a backward one does not.
func (b *fixture) checkPages(ctx context.Context, q events.Query, fresh events.Stream) error {
	for i, s := range []events.Stream{"page-1", "page-2"} {
		length, err := b.length(ctx, s)
		if err == nil {
			_, err = b.add(ctx, s, length, 8+i)
		}
		if err != nil {
			return err
		}
	}
	before, err := collect(b.ReadAll(ctx, events.Position{}))
	if err != nil {
		return err
	}
	var got []events.Entry
	for changed := events.Revision(0); ; changed++ {
		page, err := collect(limit(events.Scan(ctx, b.Store, q), 3))
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		q.After = page[len(page)-1].Position
		if changed < 3 {
			if _, err := b.add(ctx, fresh, changed, 1); err != nil {
				return err
			}
		}
	}
	all, err := collect(b.ReadAll(ctx, events.Position{}))
	if err != nil {
		return err
	}
	if q.Backward {
		all = before
	}
	q.After = events.Position{}
	if want := expectedEntries(all, q); !slices.EqualFunc(got, want, sameEntry) {
		return fmt.Errorf("pages of three of Scan(%s) are %s, want %s", formatQuery(q), formatPositions(got), formatPositions(want))
	}
	return nil
}

// length returns the length of a stream.
func (b *fixture) length(ctx context.Context, s events.Stream) (events.Revision, error) {
	entries, err := collect(b.Read(ctx, s, 0))
	return events.Revision(len(entries)), err
}

// partsAreTheWhole splits queries into 1 to 19 parts and compares the parts in
// sequence with the query.
func partsAreTheWhole(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		rng := rand.New(rand.NewPCG(12, 7))
		all, err := b.appendVaried(ctx, rng, 100)
		if err != nil {
			return err
		}
		for parts := 1; parts < 20; parts++ {
			for _, q := range []events.Query{{}, {Backward: true}, randomQuery(rng, all)} {
				if err := b.checkSplit(ctx, q, parts, all); err != nil {
					return err
				}
			}
		}
		// What is appended after the call is in the last part.
		queries, err := events.Split(ctx, b.Store, events.Query{}, 4)
		if err != nil {
			return err
		}
		if _, err := b.add(ctx, "query-later", 0, 3); err != nil {
			return err
		}
		all, err = collect(b.ReadAll(ctx, events.Position{}))
		if err != nil {
			return err
		}
		return b.checkParts(ctx, queries, all)
	}())
}

// checkSplit splits a query and compares its parts in sequence with the
// expected entries.
func (b *fixture) checkSplit(ctx context.Context, q events.Query, parts int, all []events.Entry) error {
	queries, err := events.Split(ctx, b.Store, q, parts)
	if err != nil || len(queries) == 0 || len(queries) > parts {
		return fmt.Errorf("Split(%s, %d) = %d parts and the error %v, want 1 to %d", formatQuery(q), parts, len(queries), err, parts)
	}
	if err := b.checkParts(ctx, queries, expectedEntries(all, q)); err != nil {
		return fmt.Errorf("Split(%s, %d): %w", formatQuery(q), parts, err)
	}
	return nil
}

// checkParts returns an error unless the queries in sequence yield these
// entries.
func (b *fixture) checkParts(ctx context.Context, queries []events.Query, want []events.Entry) error {
	var got []events.Entry
	for _, q := range queries {
		part, err := collect(events.Scan(ctx, b.Store, q))
		if err != nil {
			return err
		}
		got = append(got, part...)
	}
	if !slices.EqualFunc(got, want, sameEntry) {
		return fmt.Errorf("the %d parts give %s, want %s", len(queries), formatPositions(got), formatPositions(want))
	}
	return nil
}

// lentIsTheSame compares Lend and Headers with the expected entries of random
// queries.
func lentIsTheSame(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		rng := rand.New(rand.NewPCG(13, 7))
		all, err := b.appendVaried(ctx, rng, 150)
		if err != nil {
			return err
		}
		for i := range 60 {
			q := randomQuery(rng, all)
			if i == 0 {
				q = events.Query{}
			}
			want := expectedEntries(all, q)
			// The bytes are copied in the body of the loop, and compared after it.
			lent, err := collect(cloneEntries(events.Lend(ctx, b.Store, q)))
			if err != nil || !slices.EqualFunc(lent, want, sameEntry) {
				return fmt.Errorf("Lend(%s) yields %s and the error %v, want %s", formatQuery(q), formatPositions(lent), err, formatPositions(want))
			}
			n := 0
			for got, err := range events.Headers(ctx, b.Store, q) {
				if err != nil || n >= len(want) || got != want[n].Header() {
					return fmt.Errorf("Headers(%s) yields %v and the error %v as its number %d of %d, and Scan another", formatQuery(q), got, err, n+1, len(want))
				}
				n++
			}
			if n != len(want) {
				return fmt.Errorf("Headers(%s) yields %d headers, want %d", formatQuery(q), n, len(want))
			}
		}
		return nil
	}())
}

// cloneEntries copies each entry while the store still lends its bytes.
func cloneEntries(loop iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range loop {
			e.Record = cloneRecord(e.Record)
			if !yield(e, err) {
				return
			}
		}
	}
}

// badQueriesYieldNothing passes invalid filters to every kind of query and
// expects ErrBadQuery.
func badQueriesYieldNothing(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		if _, err := b.add(ctx, "bad-1", 0, 3); err != nil {
			return err
		}
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		for name, f := range map[string]events.Filter{
			"an empty kind":               {Kinds: []string{"Kind1", ""}},
			"an empty category":           {Categories: []string{""}},
			"an empty prefix":             {Prefixes: []string{""}},
			"a category with a hyphen":    {Categories: []string{"bad-1"}},
			"a time before its beginning": {Since: now, Until: now},
		} {
			q := events.Query{Filter: f}
			for of, loop := range map[string]iter.Seq2[events.Entry, error]{
				"Scan":    events.Scan(ctx, b.Store, q),
				"Lend":    events.Lend(ctx, b.Store, q),
				"Headers": headerEntries(events.Headers(ctx, b.Store, q)),
				"Follow":  b.Follow(ctx, events.Position{}, events.Following{Filter: f}),
			} {
				if entries, err := collect(loop); !errors.Is(err, events.ErrBadQuery) || len(entries) > 0 {
					return fmt.Errorf("%s with %s yields %d entries and the error %v, want ErrBadQuery", of, name, len(entries), err)
				}
			}
			if parts, err := events.Split(ctx, b.Store, q, 2); !errors.Is(err, events.ErrBadQuery) || len(parts) > 0 {
				return fmt.Errorf("Split with %s gives %d parts and the error %v, want ErrBadQuery", name, len(parts), err)
			}
		}
		if parts, err := events.Split(ctx, b.Store, events.Query{}, 0); !errors.Is(err, events.ErrBadQuery) || len(parts) > 0 {
			return fmt.Errorf("Split into 0 parts gives %d and the error %v, want ErrBadQuery", len(parts), err)
		}
		return nil
	}())
}

// headerEntries converts headers to entries without data.
func headerEntries(loop iter.Seq2[events.Header, error]) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for h, err := range loop {
			e := events.Entry{
				Record: events.Record{ID: h.ID, Kind: h.Kind, Version: h.Version, Time: h.Time},
				Stream: h.Stream, Revision: h.Revision, Position: h.Position,
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// filteredFollowerMissesNothing follows with a filter over matching and other
// records.
func filteredFollowerMissesNothing(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		if _, err := b.add(ctx, "seen-1", 0, 40); err != nil {
			return err
		}
		if _, err := b.add(ctx, "passed-1", 0, 40); err != nil {
			return err
		}
		return b.checkFilteredFollower(ctx)
	}())
}

// checkFilteredFollower appends from inside CaughtUp: other records, matching
// ones, and both in turn.
func (b *fixture) checkFilteredFollower(ctx context.Context) error {
	const rounds = 7
	filter := events.Filter{Categories: []string{"seen"}, Kinds: []string{"Kind1", "Kind2", "Kind3", "Kind4"}}
	var failed error
	var got []events.Entry
	caughtUp := 0
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	following := events.Following{Filter: filter, CaughtUp: func(p events.Position) {
		caughtUp++
		all, err := collect(b.ReadAll(ctx, events.Position{}))
		if want := expectedEntries(all, events.Query{Filter: filter}); err == nil && !slices.EqualFunc(got, want, sameEntry) {
			err = fmt.Errorf("the follower caught up %d times and yielded %s, want %s", caughtUp, formatPositions(got), formatPositions(want))
		}
		if last := all[len(all)-1].Position; err == nil && p != last {
			err = fmt.Errorf("CaughtUp(%s), and what was yielded or passed over ends at %s", p, last)
		}
		if err == nil && caughtUp < rounds {
			err = b.round(ctx, caughtUp)
		}
		if failed = err; err != nil || caughtUp == rounds {
			cancel(errStop)
		}
	}}
	for e, err := range b.Follow(ctx, events.Position{}, following) {
		if err != nil && context.Cause(ctx) != errStop {
			return err
		}
		if err == nil {
			got = append(got, e)
		}
	}
	if failed == nil && caughtUp != rounds {
		return fmt.Errorf("CaughtUp was called %d times, want %d", caughtUp, rounds)
	}
	return failed
}

// round appends the records of the nth round.
func (b *fixture) round(ctx context.Context, n int) error {
	for _, s := range [][]events.Stream{{"passed-1", "seen-1"}, {"passed-1"}, {"seen-1"}}[n%3] {
		length, err := b.length(ctx, s)
		if err == nil {
			_, err = b.add(ctx, s, length, 5)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
