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

// queryStreams are the streams of the query checks. Some names and categories are
// prefixes of others, so that a filter that compares too few bytes selects too much.
var queryStreams = []events.Stream{"query-1", "query-10", "query-1-2", "quer-1", "queryx-1", "query"}

// queryFilters appends 150 random records and runs 150 random queries over them. It
// compares each result with expectedEntries, which filters in memory. The first query
// has no bounds and no filter. The seed is fixed, so a failure repeats.
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

// appendVaried appends at least n records to queryStreams, in random order, and
// returns all entries of the store. The records have few kinds and times, so that a
// filter selects several of them. Some have no metadata, and some have up to 3 KiB of
// data.
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

// queryTime returns one of 20 times. With so few times, a bound of a query is often
// equal to the time of a record, which shows whether a store includes or excludes the
// bound.
func queryTime(rng *rand.Rand) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 1000*rng.IntN(20), time.UTC)
}

// randomQuery returns a valid query with random fields. The table has a number n for
// each field: one of n queries sets the field. After and Through are positions of
// entries in all, which must not be empty.
func randomQuery(rng *rand.Rand, all []events.Entry) (q events.Query) {
	place := func() events.Position { return all[rng.IntN(len(all))].Position }
	for _, of := range []struct {
		one int    // the field is set in one of so many queries
		set func() // sets the field of q
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

// expectedEntries returns the entries that a correct store yields for q. The argument
// all has the entries of the store in the order of their positions. expectedEntries
// defines what a query selects, and does not use the store.
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

// formatQuery returns all fields of a query, for an error text.
func formatQuery(q events.Query) string {
	return fmt.Sprintf("kinds %q categories %q prefixes %q since %s until %s stream %q backward %t after %s through %s",
		q.Kinds, q.Categories, q.Prefixes, q.Since.Format(time.RFC3339Nano), q.Until.Format(time.RFC3339Nano), q.Stream, q.Backward, q.After, q.Through)
}

// formatPositions returns the number and the positions of entries, for an error text.
func formatPositions(entries []events.Entry) string {
	text := fmt.Sprintf("%d entries at", len(entries))
	for _, e := range entries {
		text += " " + e.Position.String()
	}
	return text
}

// sameEntry reports whether two entries are equal in all fields, including the
// position.
func sameEntry(a, b events.Entry) bool { return sameLocation(a, b) && sameRecord(a.Record, b.Record) }

// pagesAreTheWhole reads five queries in pages while the log grows: forward,
// backward, of one stream in both directions, and filtered by kind.
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

// checkPages reads a query in pages of three entries, each after the last entry of the
// page before. After each of the first three pages it appends a record to the stream
// fresh. A forward query must include these records. A backward query must not, because
// it starts at the position that was the end of the log before the appends.
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

// length reads a stream to its end and returns the number of its entries.
func (b *fixture) length(ctx context.Context, s events.Stream) (events.Revision, error) {
	entries, err := collect(b.Read(ctx, s, 0))
	return events.Revision(len(entries)), err
}

// partsAreTheWhole splits queries into 1 to 19 parts. The parts, read one after the
// other, must yield the entries of the query. It then splits a query without an end,
// appends, and expects the new records in the last part.
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
		// The last part has no end, so it includes records that are appended after
		// Split.
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

// checkSplit calls Split with q and the argument parts. It returns an error if Split
// returns no query or more than parts, or if the queries in sequence do not yield the
// expected entries. The argument all has the entries of the store.
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

// checkParts scans the queries one after the other. It returns an error unless
// together they yield exactly the wanted entries, in order.
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

// lentIsTheSame runs 60 random queries with Lend and with Headers. It compares the
// lent entries and the headers with expectedEntries. A header must have the size of
// the whole record.
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
			// A lent entry is valid only in the body of the loop, so cloneEntries
			// copies it there.
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

// cloneEntries returns a loop over copies of the entries of loop. It copies each
// entry in the body of the inner loop, where the lent bytes are valid, so its caller
// may keep them.
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

// badQueriesYieldNothing passes each kind of invalid filter to Scan, Lend, Headers,
// Follow and Split. It expects ErrBadQuery and no entry or part. A Split into 0 parts
// must return ErrBadQuery as well.
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

// headerEntries returns a loop over entries with the fields of the headers and
// without data, so that checks can use one type of loop.
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

// filteredFollowerMissesNothing follows with a filter over a log of 40 matching and
// 40 other records, and then while records of both kinds are appended.
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

// checkFilteredFollower appends from inside CaughtUp, in rounds with matching
// records, with other records, and with both. At each CaughtUp it compares the
// yielded entries with expectedEntries. It also expects CaughtUp with the last
// position of the log, even if the filter rejects the last record.
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

// round appends five records to each stream of round n: to both streams, or to only
// one of them. The filter of the check rejects the stream passed-1 and selects
// seen-1.
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
