package eventstoredb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// appendMixedRecords appends records of several kinds and categories, inside and
// outside of the namespace.
func appendMixedRecords(t *testing.T, d *database) {
	t.Helper()
	mint := newMint()
	for i := range 60 {
		stream := events.Stream(fmt.Sprintf("%s-%d", []string{"session", "layer", "session.x", "sessionx"}[i%4], i%8))
		if i%5 == 0 {
			stream = "beside." + stream
		} else {
			stream = events.Stream(d.config.Namespace) + stream
		}
		length := 0
		for _, err := range d.store.Read(t.Context(), stream, 0) {
			if length++; err != nil {
				t.Fatal(err)
			}
		}
		if err := d.store.Append(t.Context(), stream, events.Revision(length), record(mint, fmt.Sprintf("Kind%d", i%3), i)); err != nil {
			t.Fatal(err)
		}
	}
}

// namespaces returns the namespaces to query: one and, in a long test, also the whole
// database.
func namespaces() []string { return []string{"acme.", ""}[:repeats(1, 2)] }

// filters returns filters that pass some of the records.
func filters() map[string]events.Filter {
	return map[string]events.Filter{
		"all":                   {},
		"kinds":                 {Kinds: []string{"Kind1", "Kind2"}},
		"kind that begins so":   {Kinds: []string{"Kind"}},
		"categories":            {Categories: []string{"session", "layer"}},
		"category with a stop":  {Categories: []string{"session.x"}},
		"prefixes":              {Prefixes: []string{"session-2", "lay"}},
		"since":                 {Since: time.UnixMicro(30).UTC()},
		"kinds of a category":   {Kinds: []string{"Kind0"}, Categories: []string{"session"}},
		"categories and prefix": {Prefixes: []string{"session"}, Categories: []string{"sessionx"}, Until: time.UnixMicro(50).UTC()},
	}
}

// Every query yields exactly the entries that it selects, in order, in every
// direction and range.
func TestQueriesYieldTheMatchingEntries(t *testing.T) {
	t.Parallel()
	for _, namespace := range namespaces() {
		d := newDatabase(t)
		d.config.Namespace = namespace
		appendMixedRecords(t, d)
		s := d.open()
		all, err := collect(s.ReadAll(t.Context(), events.Position{}))
		if err != nil || len(all) != map[string]int{"": 60, "acme.": 48}[namespace] {
			t.Fatalf("ReadAll in %q yields %d entries and %v", namespace, len(all), err)
		}
		n := 0
		for name, filter := range filters() {
			for _, stream := range []events.Stream{"", "session-4", "session.x-2", "never-1"} {
				for _, bounds := range [][2]events.Position{{}, {all[3].Position, all[40].Position}, {all[40].Position, all[3].Position}, {all[len(all)-1].Position, {}}} {
					for _, backward := range []bool{false, true} {
						if n++; n%repeats(3, 1) > 0 {
							continue // another third of the combinations with each filter and stream
						}
						q := events.Query{Filter: filter, Stream: stream, Backward: backward, After: bounds[0], Through: bounds[1]}
						var want []string
						for _, e := range all {
							if inQuery(q, e) {
								want = append(want, e.ID.String())
							}
						}
						if backward {
							slices.Reverse(want)
						}
						var got []string
						for e, err := range s.Scan(t.Context(), q) {
							if err != nil {
								t.Fatalf("Scan(%+v): %v", q, err)
							}
							got = append(got, e.ID.String())
						}
						if !slices.Equal(got, want) {
							t.Errorf("in %q, %s, stream %q, backward %t, %v: Scan yields %d entries, want %d", namespace, name, stream, backward, bounds, len(got), len(want))
						}
					}
				}
			}
		}
	}
}

// inQuery reports whether a query selects an entry.
func inQuery(q events.Query, e events.Entry) bool {
	after, through := e.Position.Compare(q.After), e.Position.Compare(q.Through)
	if q.Backward {
		after, through = -after, -through
	}
	return (q.Stream == "" || q.Stream == e.Stream) && (q.After.IsZero() || after > 0) && (q.Through.IsZero() || through <= 0) && q.Matches(e.Header())
}

// A filtered follower that catches up reports the position of the last excluded
// record too.
func TestFilteredFollowerCatchesUpWithExcludedRecords(t *testing.T) {
	t.Parallel()
	for _, namespace := range namespaces() {
		d := newDatabase(t)
		d.config.Namespace = namespace
		appendMixedRecords(t, d)
		s, mint := d.open(), newMint()
		all, err := collect(s.ReadAll(t.Context(), events.Position{}))
		if err != nil {
			t.Fatal(err)
		}
		for name, filter := range filters() {
			var want, got []string
			for _, e := range all {
				if filter.Matches(e.Header()) {
					want = append(want, e.ID.String())
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			last, told := all[len(all)-1].Position, 0
			following := events.Following{Filter: filter, CaughtUp: func(p events.Position) {
				if p != last {
					t.Errorf("in %q, %s: CaughtUp(%s) the %d. time, want %s", namespace, name, p, told+1, last)
				}
				if told++; told == 3 {
					cancel()
					return
				}
				// Passed over by most filters, and after the follower looked.
				stream := events.Stream(fmt.Sprintf("more-%d-%d", len(all), told))
				r := record(mint, "Other", 1)
				if err := s.Append(ctx, stream, 0, r); err != nil {
					t.Error(err)
					cancel()
					return
				}
				e, err := collect(s.Read(ctx, stream, 0))
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				if filter.Matches(e[0].Header()) {
					want = append(want, r.ID.String())
				}
				last, all = e[0].Position, append(all, e[0])
			}}
			for e, err := range s.Follow(ctx, events.Position{}, following) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					break
				}
				got = append(got, e.ID.String())
			}
			cancel()
			if !slices.Equal(got, want) || told != 3 {
				t.Errorf("in %q, %s: Follow yields %d entries and catches up %d times, want %d and 3", namespace, name, len(got), told, len(want))
			}
		}
	}
}

// A waiting follower calls CaughtUp for excluded records, for which the server sends
// no message.
func TestWaitingFollowerCatchesUpWithExcludedRecords(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s, mint := d.open(), newMint()
	caught := make(chan events.Position, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = collect(s.Follow(ctx, events.Position{}, events.Following{Filter: events.Filter{Kinds: []string{"Kind"}}, CaughtUp: func(p events.Position) { caught <- p }}))
	}()
	if p := <-caught; !p.IsZero() {
		t.Errorf("CaughtUp(%s) in an empty store", p)
	}
	if err := s.Append(t.Context(), "other-1", 0, record(mint, "Other", 1)); err != nil {
		t.Fatal(err)
	}
	if p := <-caught; p.IsZero() {
		t.Error("CaughtUp was given the place where the follower began, want that of the record")
	}
	cancel()
	<-done
}

// A follower renews a dead subscription that a proxy keeps open.
func TestDeadSubscriptionIsRenewed(t *testing.T) {
	t.Parallel()
	m, s := openBehindProxy(t, "")
	mint := newMint()
	if err := s.Append(t.Context(), "renew-1", 0, record(mint, "Kind", 1)); err != nil {
		t.Fatal(err)
	}
	s.SetSubscriptionLifetime(200 * time.Millisecond)
	m.inject(firstCalls(readMethod, 2, fault{noResponse: true}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := events.Revision(1)
	for e, err := range s.Follow(ctx, events.Position{}) {
		if err != nil || e.Revision != want {
			t.Fatalf("Follow yields entry %d and %v, want entry %d", e.Revision, err, want)
		}
		if want++; want > 20 {
			break
		}
		if err := s.Append(ctx, "renew-1", e.Revision, record(mint, "Kind", int(want))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.calls(readMethod)); n < 3 {
		t.Errorf("the subscription was taken up %d times, want three at least", n)
	}
}

// Each events.Filter becomes a filter of the server that excludes some streams or
// types, and a namespace excludes all other streams.
func TestServerFilters(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.config.Namespace = "acme."
	appendMixedRecords(t, d)
	s := d.open()
	if got := s.ServerFilter(events.Filter{}); strings.Join(got.Prefixes, " ") != "acme." {
		t.Errorf("a store in a namespace asks for %+v, want its own streams", got)
	}
	for name, filter := range filters() {
		if got := s.ServerFilter(filter); got == nil || got.Regex == "" && len(got.Prefixes) == 0 {
			t.Errorf("%s: the server is asked for %+v, want less than all", name, got)
		}
	}
}
