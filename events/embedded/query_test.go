package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// The matcher of raw records accepts exactly the records that the filter accepts.
func FuzzMatch(f *testing.F) {
	f.Add("s-1", "Kind", "s", "s-", int64(0), int64(0), int64(0))
	f.Add("session", "Kind", "session", "sess", int64(1), int64(1000), int64(1001))
	f.Add("s-1-2", "", "s-1", "", int64(-1), int64(-1), int64(999))
	f.Add("session-1", "CallSettled", "sess", "x", int64(math.MaxInt64), int64(math.MinInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, stream, kind, category, prefix string, at, since, until int64) {
		if len(stream) > layout.MaxStream || len(kind) > layout.MaxKind {
			t.Skip("no store keeps such names")
		}
		e := events.Entry{Stream: events.Stream(stream), Record: events.Record{Kind: kind, Version: 1, Time: time.UnixMicro(at).UTC()}}
		value := seal(layout.Encode(e.Stream, 1, e.Record), 1)
		r, err := layout.ParseRecord(value, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, filter := range filters(kind, category, prefix, since, until) {
			if filter.Valid() != nil {
				continue
			}
			m := newMatcher(filter)
			if got, want := m.match(r), filter.Matches(e.Header()); got != want {
				t.Errorf("match(%q %q at %d) of %+v = %t, want %t", stream, kind, at, filter, got, want)
			}
		}
	})
}

// filters returns combinations of the given filter values. since and until are
// nanoseconds of Unix time; it also uses times outside of the range of a record.
func filters(kind, category, prefix string, since, until int64) []events.Filter {
	far := time.UnixMicro(math.MaxInt64).AddDate(1000, 0, 0)
	times := []time.Time{{}, time.Unix(0, since).UTC(), time.Unix(0, until).UTC(), time.UnixMicro(since).UTC(), far, time.UnixMicro(math.MinInt64).AddDate(-1000, 0, 0)}
	var all []events.Filter
	for i := range 8 {
		f := events.Filter{}
		if i&1 != 0 {
			f.Kinds = []string{"Other", kind}
		}
		if i&2 != 0 {
			f.Categories = []string{category, "other"}
		}
		if i&4 != 0 {
			f.Prefixes = []string{"other", prefix}
		}
		for _, f.Since = range times {
			for _, f.Until = range times {
				all = append(all, f)
			}
		}
	}
	return all
}

func TestEveryReadReportsDamage(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(100, 20)...))
	for name, value := range map[string][]byte{"missing": nil, "short": []byte("x"), "of other bytes": make([]byte, 200)} {
		must(t, s.db.Delete(layout.EntryKey(50), pebble.NoSync))
		if value != nil {
			must(t, s.db.Set(layout.EntryKey(50), value, pebble.NoSync))
		}
		for _, stream := range []events.Stream{"", "s-1"} {
			for _, kinds := range [][]string{nil, {"None"}} {
				for _, backward := range []bool{false, true} {
					q := events.Query{Filter: events.Filter{Kinds: kinds}, Stream: stream, Backward: backward}
					tellsDamage(t, name, s, q)
				}
			}
		}
	}
}

func tellsDamage(t *testing.T, name string, s *Store, q events.Query) {
	t.Helper()
	var failed [3]error
	var seen [3]int
	for _, err := range s.Scan(t.Context(), q) {
		failed[0], seen[0] = err, seen[0]+1
	}
	for _, err := range s.Lend(t.Context(), q) {
		failed[1], seen[1] = err, seen[1]+1
	}
	for _, err := range s.Headers(t.Context(), q) {
		failed[2], seen[2] = err, seen[2]+1
	}
	want := 50 // what is whole comes before it
	if q.Backward {
		want = 51
	}
	if len(q.Kinds) > 0 {
		want = 1
	}
	for i, of := range []string{"Scan", "Lend", "Headers"} {
		if !errors.Is(failed[i], events.ErrDamaged) || seen[i] != want {
			t.Errorf("%s: %s(%+v) yields %d times and last %v, want %d and ErrDamaged", name, of, q, seen[i], failed[i], want)
		}
	}
}

func TestNoLoopPinsTheDatabase(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(300, 500)...))
	must(t, s.db.Flush())
	free := func() {
		if m := s.db.Metrics(); m.TableIters != 0 {
			t.Fatalf("%d table iterators are open in the body of a loop", m.TableIters)
		}
	}
	for _, q := range []events.Query{{}, {Backward: true}, {Stream: "s-1"}, {Stream: "s-1", Backward: true}} {
		for _, err := range s.Lend(t.Context(), q) {
			must(t, err)
			free()
		}
		for _, err := range s.Headers(t.Context(), q) {
			must(t, err)
			free()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range s.Follow(ctx, events.Position{}, events.Following{CaughtUp: func(events.Position) { free(); cancel() }}) {
		free()
	}
}

func TestAnEntryPinsNoMoreThanAPieceOfMemory(t *testing.T) {
	t.Parallel()
	h := newOwnedBatch()
	rng := rand.New(rand.NewPCG(5, 7))
	for range 10_000 {
		size := 1 + rng.IntN(2000)
		if rng.IntN(100) == 0 {
			size = ownedSlab * 2
		}
		room := h.alloc(size)
		if len(room) != size || cap(room) != size {
			t.Fatalf("alloc(%d) has %d bytes and room for %d", size, len(room), cap(room))
		}
		for i := range room {
			if room[i] != 0 {
				t.Fatal("room that something else lies in")
			}
			room[i] = 1
		}
		if cap(h.slab) > ownedSlab {
			t.Fatalf("a piece of %d bytes, want at most %d", cap(h.slab), ownedSlab)
		}
	}
}

func TestPartsOfAQueryWeighAboutTheSame(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	p, rng := newRecordWriter(1), rand.NewChaCha8([32]byte{3})
	n := repeats(1000, 2000)
	for i, size := range []int{4000, 200} { // the first half of the records has most of the bytes
		records := p.records(n, 0)
		for i := range records {
			records[i].Data = make([]byte, size)
			_, err := rng.Read(records[i].Data)
			must(t, err)
		}
		must(t, s.Append(t.Context(), events.Stream(fmt.Sprintf("s-%d", i)), 0, records...))
	}
	// The disk is weighed by its blocks, which are large beside parts this small.
	for _, where := range []string{"in memory", "on disk"} {
		for _, q := range []events.Query{{}, {Backward: true}} {
			parts, err := s.Split(t.Context(), q, 4)
			must(t, err)
			if len(parts) != 4 {
				t.Fatalf("%s: Split(4) = %d parts, want 4", where, len(parts))
			}
			for i, part := range parts {
				size := 0
				for h, err := range s.Headers(t.Context(), part) {
					must(t, err)
					size += h.Size
				}
				if fair := (4000 + 200) * n / 4; size < fair/3 || size > fair*5/3 {
					t.Errorf("%s: part %d of %+v has %d bytes, want about %d", where, i+1, q, size, fair)
				}
			}
		}
		must(t, s.db.Flush())
	}
}

func TestWatermarkBoundsRecentGroups(t *testing.T) {
	t.Parallel()
	m, end := newWatermark(7), uint64(7)
	rng := rand.New(rand.NewPCG(9, 7))
	for i := range repeats(2, 5) * recentGroups {
		values := make([][]byte, 1+rng.IntN(4))
		for k := range values {
			values[k] = seal(layout.Encode("s-1", 1, events.Record{Kind: "K", Version: 1, Data: make([]byte, rng.IntN(i%4*8000+10))}), end+uint64(k)+1)
		}
		before := end
		end += uint64(len(values))
		if m.advance(end, values); i%100 == 50 {
			end += 3
			m.advance(end, nil) // not published
			if m.groupAfter(end-1) != nil {
				t.Fatal("the mark holds what it was not given")
			}
			continue
		}
		for after := before; after < end; after++ {
			if p := m.groupAfter(after); p == nil || p.after != before || p.entry(after-before).Position != events.NewPosition(after+1, after+1) {
				t.Fatalf("holding(%d) does not give the last group, behind %d", after, before)
			}
		}
		if i%repeats(16, 1) > 0 {
			continue
		}
		kept := 0
		for n := range m.recent {
			if p := m.recent[n].Load(); p != nil {
				kept += p.bytes
			}
		}
		if kept > recentBytes || kept != m.keptBytes {
			t.Fatalf("%d bytes are kept and %d counted, want at most %d", kept, m.keptBytes, recentBytes)
		}
	}
	if m.groupAfter(end) != nil || m.groupAfter(7) != nil || m.groupAfter(0) != nil {
		t.Error("the mark holds what is not there yet, or long gone")
	}
}

func TestAFollowerThatFallsBehindMissesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	p := newRecordWriter(1)
	const groups = 60
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, appended := 0, 0
	grow := func(n int) {
		for range n {
			must(t, s.Append(ctx, "s-1", events.Revision(appended), p.records(2, 100_000)...))
			appended += 2
		}
	}
	live := events.Following{CaughtUp: func(events.Position) {
		if appended == groups*2 {
			cancel()
			return
		}
		grow(30) // more than the mark keeps
	}}
	for e, err := range s.Follow(ctx, events.Position{}, live) {
		if err != nil {
			break
		}
		if seen++; uint64(e.Revision) != uint64(seen) || !strings.HasPrefix(string(e.Data), `{"id":`) || len(e.Data) < 100_000 {
			t.Fatalf("entry %d is at revision %d with %d bytes", seen, e.Revision, len(e.Data))
		}
	}
	if seen != groups*2 {
		t.Errorf("the follower saw %d entries, want %d", seen, groups*2)
	}
}

// There are more followers than the committer notifies itself, and many that have
// given up.
func TestManyFollowersAreAllNotified(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	const followers, rounds = 50, 10
	var following, waiting, got sync.WaitGroup
	waiting.Add(followers)
	ends := make(chan error, followers)
	for range followers {
		following.Go(func() {
			ready := sync.OnceFunc(waiting.Done)
			for _, err := range s.Follow(t.Context(), events.Position{}, events.Following{CaughtUp: func(events.Position) { ready() }}) {
				if err != nil {
					ends <- err
					return
				}
				got.Done()
			}
		})
	}
	waiting.Wait()
	for range 3 * maxAbandoned {
		ctx, cancel := context.WithCancel(t.Context())
		for range s.Follow(ctx, s.Head(), events.Following{CaughtUp: func(events.Position) { cancel() }}) {
		}
	}
	p := newRecordWriter(1)
	for i := range rounds {
		got.Add(followers)
		must(t, s.Append(t.Context(), "s-1", events.Revision(i), p.records(1, 10)...))
		got.Wait() // or the test hangs, and says where
	}
	must(t, s.Close())
	following.Wait()
	for range followers {
		if err := <-ends; !errors.Is(err, events.ErrClosed) {
			t.Errorf("a follower of a store that closes ends with %v, want ErrClosed", err)
		}
	}
}

// seal appends the sum of an encoded record for a sequence.
func seal(value []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint32(value, layout.Sum(value, seq))
}
