package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

// harness returns a Harness over the folder dir of a file system. It cannot cut
// power.
func harness(dir string, cfg Config) eventstest.Harness {
	return eventstest.Harness{
		Open:  func(ctx context.Context) (events.Store, error) { return Open(ctx, dir, cfg) },
		Close: func(s events.Store) error { return s.(io.Closer).Close() },
	}
}

// memory returns a Harness over memory, whose power can be cut.
func memory() eventstest.Harness {
	storage := vfs.NewCrashableMem()
	return eventstest.Harness{
		Open:  func(ctx context.Context) (events.Store, error) { return Open(ctx, "store", Config{FS: storage}) },
		Close: func(s events.Store) error { return s.(io.Closer).Close() },
		CutPower: func(s events.Store) error {
			dead := storage
			storage = dead.CrashClone(vfs.CrashCloneCfg{})
			return s.(io.Closer).Close() // into the file system that is dead
		},
	}
}

func TestLawsInMemory(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(*testing.T) eventstest.Harness { return memory() })
}

func TestLawsOnDisk(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(t *testing.T) eventstest.Harness { return harness(t.TempDir(), Config{}) })
}

func TestSameHistoryAsASlice(t *testing.T) {
	t.Parallel()
	eventstest.TestSame(t, uint64(repeats(5, 25)), memory, eventstest.SliceHarness)
}

func open(t testing.TB, storage vfs.FS) *Store {
	t.Helper()
	s, err := Open(t.Context(), "store", Config{FS: storage})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, events.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// A recordWriter makes records, each with its own ID.
type recordWriter struct{ *domain.Mint }

func newRecordWriter(seed byte) recordWriter {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return recordWriter{domain.NewMint(func() time.Time { return at }, rand.NewChaCha8([32]byte{seed}))}
}

func (p recordWriter) records(n, size int) []events.Record {
	records, text := make([]events.Record, n), strings.Repeat("x", size)
	for i := range records {
		id := p.Event()
		records[i] = events.Record{
			ID: id, Kind: "CallSettled", Version: 1, Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
			Data: fmt.Appendf(nil, `{"id":"%s","text":"%s"}`, id, text),
		}
	}
	return records
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func all(t testing.TB, s *Store) []events.Entry {
	t.Helper()
	var entries []events.Entry
	for e, err := range s.ReadAll(t.Context(), events.Position{}) {
		must(t, err)
		entries = append(entries, e)
	}
	return entries
}

func TestRecordsLargerThanAMemtableAreKeptAndOverTheLimitRefused(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s, err := Open(t.Context(), "store", Config{FS: storage, MaxRecord: 18 << 20})
	must(t, err)
	large := newRecordWriter(1).records(repeats(1, 2), 17<<20)
	must(t, s.Append(t.Context(), "s-1", 0, large...))
	end := uint64(len(large))
	huge := newRecordWriter(2).records(1, 18<<20)
	if err := s.Append(t.Context(), "s-1", events.Revision(end), huge...); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("Append(a record over the limit) = %v, want ErrTooLarge", err)
	}
	must(t, s.Close())
	s = open(t, storage)
	for i, e := range all(t, s) {
		if !bytes.Equal(e.Data, large[i].Data) {
			t.Errorf("record %d is not what was appended", i+1)
		}
	}
	if s.Head() != events.NewPosition(end, end) {
		t.Errorf("Head() = %s, want %d", s.Head(), end)
	}
}

func TestNamesThatTheLayoutCannotHoldAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	for _, stream := range []events.Stream{"a\x00b", events.Stream(strings.Repeat("s", layout.MaxStream+1))} {
		if err := s.Append(t.Context(), stream, 0, newRecordWriter(1).records(1, 1)...); !errors.Is(err, events.ErrBadRecord) {
			t.Errorf("Append(%.10q…) = %v, want ErrBadRecord", stream, err)
		}
	}
	r := newRecordWriter(1).records(1, 1)[0]
	r.Kind = strings.Repeat("k", layout.MaxKind+1)
	if err := s.Append(t.Context(), "s-1", 0, r); !errors.Is(err, events.ErrBadRecord) {
		t.Errorf("Append(a long kind) = %v, want ErrBadRecord", err)
	}
	r = newRecordWriter(1).records(1, 1)[0]
	r.Time = time.Date(400_000, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := s.Append(t.Context(), "s-1", 0, r); !errors.Is(err, events.ErrBadRecord) {
		t.Errorf("Append(a time beyond 64 bits) = %v, want ErrBadRecord", err)
	}
	if err := s.Append(t.Context(), "s-1", layout.MaxSequence, r); err == nil {
		t.Error("Append(after the last revision there can be) = nil, want an error")
	}
}

func TestStreamsWhoseNamesBeginAlikeAreApart(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	p := newRecordWriter(1)
	names := []events.Stream{"s", "s-", "s-1", "s-10", "s-1\x01", "s-\xff"}
	for i, name := range names {
		must(t, s.Append(t.Context(), name, 0, p.records(i+1, 10)...))
	}
	s.lengthCache = lengthCache{} // lengths are found in the index, as after opening
	for i, name := range names {
		n := 0
		for e, err := range s.Read(t.Context(), name, 0) {
			must(t, err)
			if n++; e.Stream != name {
				t.Errorf("Read(%q) yields an entry of %q", name, e.Stream)
			}
		}
		if n != i+1 {
			t.Errorf("Read(%q) yields %d entries, want %d", name, n, i+1)
		}
		must(t, s.Append(t.Context(), name, events.Revision(i+1), p.records(1, 10)...))
	}
}

func TestDamagedRecordsAreErrorsAndNeverAnswers(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(3, 20)...))
	sound, closer, err := s.db.Get(layout.EntryKey(2))
	must(t, err)
	sound = bytes.Clone(sound)
	must(t, closer.Close())
	for bit := 0; bit < len(sound)*8; bit += repeats(5, 1) {
		flipped := bytes.Clone(sound)
		flipped[bit/8] ^= 1 << (bit % 8)
		must(t, s.db.Set(layout.EntryKey(2), flipped, pebble.NoSync))
		wantDamage(t, fmt.Sprintf("bit %d flipped", bit), s, "position 2")
	}
	for length := 0; length < len(sound); length += repeats(3, 1) {
		must(t, s.db.Set(layout.EntryKey(2), sound[:length], pebble.NoSync))
		wantDamage(t, fmt.Sprintf("cut to %d bytes", length), s, "position 2")
	}
	must(t, s.db.Delete(layout.EntryKey(2), pebble.NoSync))
	wantDamage(t, "deleted", s, "position 2")
	other, closer, err := s.db.Get(layout.EntryKey(3))
	must(t, err)
	must(t, s.db.Set(layout.EntryKey(2), bytes.Clone(other), pebble.NoSync))
	must(t, closer.Close())
	wantDamage(t, "replaced by another", s, "position 2")
	must(t, s.db.Set(layout.EntryKey(2), sound, pebble.NoSync))
	must(t, s.db.Delete(layout.IndexKey("s-1", 2), pebble.NoSync))
	n := 0
	for _, err = range s.Read(t.Context(), "s-1", 0) {
		n++
	}
	if !errors.Is(err, events.ErrDamaged) || n != 1 {
		t.Errorf("Read of a stream whose index has a hole yields %d times and %v, want ErrDamaged", n, err)
	}
}

func wantDamage(t *testing.T, name string, s *Store, place string) {
	t.Helper()
	for loop, seq := range map[string]func(func(events.Entry, error) bool){
		"ReadAll": s.ReadAll(t.Context(), events.NewPosition(1, 1)),
		"Read":    s.Read(t.Context(), "s-1", 1),
	} {
		n := 0
		for e, err := range seq {
			if n++; n > 1 || !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), place) {
				t.Fatalf("%s: %s yields %v and %v, want ErrDamaged that names %s", name, loop, e, err, place)
			}
		}
		if n == 0 {
			t.Fatalf("%s: %s ends without an error, want ErrDamaged", name, loop)
		}
	}
}

// An index entry that leads to another record is an ErrDamaged.
func TestReadRefusesARecordThatTheIndexDoesNotMean(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(3, 10)...))
	must(t, s.Append(t.Context(), "s-2", 0, newRecordWriter(2).records(3, 10)...))
	for name, place := range map[string]uint64{"the same revision of another stream": 5, "another revision of the stream": 3} {
		must(t, s.db.Set(layout.IndexKey("s-1", 2), binary.BigEndian.AppendUint64(nil, place), nil))
		for direction, entries := range map[string]iter.Seq2[events.Entry, error]{
			"forward":  s.Read(t.Context(), "s-1", 1),
			"backward": s.Scan(t.Context(), events.Query{Stream: "s-1", Backward: true}),
		} {
			var last error
			for e, err := range entries {
				if last = err; err == nil && e.Revision <= 2 {
					t.Errorf("%s, %s: Read yields %s %d at position %s", name, direction, e.Stream, e.Revision, e.Position)
				}
			}
			if !errors.Is(last, events.ErrDamaged) {
				t.Errorf("%s, %s: Read ends with %v, want %v", name, direction, last, events.ErrDamaged)
			}
		}
	}
}

func TestBitsFlippedInTheFilesAreErrors(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(50, 1000)...))
	must(t, s.db.Flush())
	must(t, s.Close())
	names, err := storage.List("store/log")
	must(t, err)
	flipped := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			content, err := storage.UnsafeGetFileDataBuffer("store/log/" + name)
			must(t, err)
			content[len(content)/10] ^= 4
			flipped++
		}
	}
	if flipped == 0 {
		t.Fatal("there is no table to flip a bit in")
	}
	s = open(t, storage)
	for _, err = range s.ReadAll(t.Context(), events.Position{}) {
	}
	if !errors.Is(err, events.ErrDamaged) {
		t.Errorf("ReadAll of a damaged table ends with %v, want ErrDamaged", err)
	}
}

func TestRepeatingADamagedRecordIsNotASuccess(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	records := newRecordWriter(1).records(2, 20)
	must(t, s.Append(t.Context(), "s-1", 0, records...))
	must(t, s.db.Set(layout.EntryKey(1), []byte("x"), pebble.NoSync))
	if err := s.Append(t.Context(), "s-1", 0, records...); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("Append(what is damaged) = %v, want ErrDamaged", err)
	}
}

// A gate holds every sync of a log while its mutex is locked.
type gate struct {
	mu      sync.Mutex
	waiting chan struct{} // gets a value when a sync waits
	syncs   atomic.Int64
}

func (g *gate) MaybeError(op errorfs.Op) error {
	if (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".log") {
		g.syncs.Add(1)
		select {
		case g.waiting <- struct{}{}:
		default:
		}
		g.mu.Lock()
		defer g.mu.Unlock()
	}
	return nil
}

func (g *gate) String() string { return "gate" }

// gated returns a store whose syncs a test can hold.
func gated(t *testing.T) (*Store, *gate) {
	g := &gate{waiting: make(chan struct{}, 1)}
	s := open(t, errorfs.Wrap(vfs.NewMem(), g))
	g.syncs.Store(0)
	for len(g.waiting) > 0 {
		<-g.waiting
	}
	return s, g
}

func TestAppendsThatWaitShareOneSync(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	const writers = minSecondGroup // all but one do not take off beside it
	g.mu.Lock()
	var appending sync.WaitGroup
	ends := make([]error, writers)
	start := func(i int) {
		records := newRecordWriter(byte(i)).records(2, 100)
		appending.Go(func() { ends[i] = s.Append(t.Context(), events.Stream(fmt.Sprintf("s-%d", i)), 0, records...) })
	}
	start(0)
	<-g.waiting // the first has been taken, and its sync waits
	for i := 1; i < writers; i++ {
		start(i)
	}
	for waiting(s) < writers-1 {
		if t.Context().Err() != nil {
			t.Fatal("the appends do not reach the queue")
		}
	}
	g.mu.Unlock()
	appending.Wait()
	for i, err := range ends {
		if err != nil {
			t.Errorf("append %d = %v, want nil", i, err)
		}
	}
	if n := g.syncs.Load(); n != 2 {
		t.Errorf("%d appends, of which all but one waited for the first, took %d syncs, want 2", writers, n)
	}
}

func TestManyWritersTakeFewerSyncsThanAppends(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	const writers, appends = 64, 20
	var appending sync.WaitGroup
	for w := range writers {
		p := newRecordWriter(byte(w))
		appending.Go(func() {
			for i := range appends {
				if err := s.Append(t.Context(), events.Stream(fmt.Sprintf("s-%d", w)), events.Revision(i), p.records(1, 100)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	appending.Wait()
	if n := g.syncs.Load(); n == 0 || n > writers*appends/2 {
		t.Errorf("%d appends of %d writers took %d syncs, want far fewer", writers*appends, writers, n)
	}
	if n := len(all(t, s)); n != writers*appends {
		t.Errorf("the store holds %d records, want %d", n, writers*appends)
	}
}

func TestNothingIsSeenBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 10)...))
	<-g.waiting
	g.mu.Lock()
	appended := make(chan error, 1)
	go func() { appended <- s.Append(t.Context(), "s-1", 1, newRecordWriter(2).records(3, 10)...) }()
	<-g.waiting
	if n := len(all(t, s)); n != 1 {
		t.Errorf("ReadAll yields %d records while a sync waits, want 1", n)
	}
	for e, err := range s.Read(t.Context(), "s-1", 1) {
		t.Errorf("Read yields %v and %v while a sync waits, want nothing", e, err)
	}
	if s.Head() != events.NewPosition(1, 1) {
		t.Errorf("Head() = %s while a sync waits, want 1", s.Head())
	}
	g.mu.Unlock()
	must(t, <-appended)
	if n := len(all(t, s)); n != 4 {
		t.Errorf("ReadAll yields %d records after the sync, want 4", n)
	}
}

func TestAnAppendThatGaveUpInTheQueueAddsNothing(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	stop := errors.New("stop")
	g.mu.Lock()
	taken, cancelTaken := context.WithCancelCause(t.Context())
	first := newRecordWriter(1).records(1, 10)
	ends := make(chan error, 1)
	go func() { ends <- s.Append(taken, "s-1", 0, first...) }()
	<-g.waiting
	queued, cancelQueued := context.WithCancelCause(t.Context())
	cancelled := make(chan error, 1)
	go func() { cancelled <- s.Append(queued, "s-2", 0, newRecordWriter(2).records(1, 10)...) }()
	for waiting(s) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the append does not reach the queue")
		}
	}
	cancelQueued(stop)
	if err := <-cancelled; err != stop {
		t.Errorf("Append cancelled in the queue = %v, want the cause", err)
	}
	cancelTaken(stop)
	if err := <-ends; err != stop {
		t.Errorf("Append cancelled while its sync waits = %v, want the cause", err)
	}
	g.mu.Unlock()
	// The one that was taken is open, and repeating it decides.
	must(t, s.Append(t.Context(), "s-1", 0, first...))
	if entries := all(t, s); len(entries) != 1 || entries[0].Stream != "s-1" {
		t.Errorf("the store holds %v, want the one record of s-1", entries)
	}
}

func TestClosingEndsAppendsInFlight(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	const writers = 16
	acknowledged := make([]int, writers)
	var appending, begun sync.WaitGroup
	begun.Add(writers)
	for w := range writers {
		p := newRecordWriter(byte(w))
		appending.Go(func() {
			for i := 0; ; i++ {
				err := s.Append(t.Context(), events.Stream(fmt.Sprintf("s-%d", w)), events.Revision(i), p.records(1, 100)...)
				if err != nil {
					if !errors.Is(err, events.ErrClosed) {
						t.Errorf("Append while the store closes = %v, want nil or ErrClosed", err)
					}
					return
				}
				if acknowledged[w]++; i == 0 {
					begun.Done()
				}
			}
		})
	}
	begun.Wait()
	must(t, s.Close())
	appending.Wait()
	s = open(t, storage)
	for w, want := range acknowledged {
		n := 0
		for _, err := range s.Read(t.Context(), events.Stream(fmt.Sprintf("s-%d", w)), 0) {
			must(t, err)
			n++
		}
		if n != want {
			t.Errorf("stream %d holds %d records, want the %d acknowledged", w, n, want)
		}
	}
}

func TestClosingTurnsAwayWhatIsInTheQueue(t *testing.T) {
	t.Parallel()
	storage, g := vfs.NewMem(), &gate{waiting: make(chan struct{}, 1)}
	s := open(t, errorfs.Wrap(storage, g))
	g.mu.Lock()
	for len(g.waiting) > 0 {
		<-g.waiting
	}
	taken, queued, closed := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { taken <- s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 10)...) }()
	<-g.waiting
	go func() { queued <- s.Append(t.Context(), "s-2", 0, newRecordWriter(2).records(1, 10)...) }()
	for waiting(s) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the append does not reach the queue")
		}
	}
	go func() { closed <- s.Close() }()
	<-s.closing
	g.mu.Unlock()
	must(t, <-taken)
	if err := <-queued; !errors.Is(err, events.ErrClosed) {
		t.Errorf("Append in the queue of a store that closes = %v, want ErrClosed", err)
	}
	must(t, <-closed)
	if entries := all(t, open(t, storage)); len(entries) != 1 || entries[0].Stream != "s-1" {
		t.Errorf("the store holds %v, want the one record of s-1", entries)
	}
}

// Close wakes each follower that waits at the end: up to notifyInline of them, which
// the committer notifies, and more, which the notifier notifies.
func TestClosingNotifiesEachFollower(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, notifyInline, notifyInline + 6} {
		synctest.Test(t, func(t *testing.T) {
			s, err := Open(t.Context(), "store", Config{FS: vfs.NewMem()})
			must(t, err)
			must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(1, 10)...))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, count)
			for range count {
				go func() {
					for _, err := range s.Follow(ctx, events.Position{}) {
						if err != nil {
							ended <- err
							return
						}
					}
				}()
			}
			synctest.Wait()
			must(t, s.Close())
			synctest.Wait()
			if len(ended) != count {
				t.Errorf("%d of %d followers ended with the store", len(ended), count)
			}
			cancel() // so that each ends
			for range count {
				if err := <-ended; !errors.Is(err, events.ErrClosed) && !errors.Is(err, context.Canceled) {
					t.Errorf("a follower of a closed store ends with %v, want %v", err, events.ErrClosed)
				}
			}
		})
	}
}

// If the notifier has ended, the committer notifies the followers that it gave to the
// notifier.
func TestAdvanceAfterTheNotifierEndedNotifiesAll(t *testing.T) {
	t.Parallel()
	m := newWatermark(0)
	_, at := m.load()
	channels := make([]chan struct{}, notifyInline+1)
	for i := range channels {
		channels[i] = make(chan struct{}, 1)
		at.subscribe(channels[i])
	}
	m.notifierGone.Store(true)
	m.advance(1, nil)
	for i, ch := range channels {
		if len(ch) == 0 {
			t.Errorf("follower %d of %d was not woken", i+1, len(channels))
		}
	}
}

func TestASlowLoopPinsNothing(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	p := newRecordWriter(1)
	must(t, s.Append(t.Context(), "s-1", 0, p.records(2000, 10)...))
	n := 0
	for _, err := range s.ReadAll(t.Context(), events.Position{}) {
		must(t, err)
		if m := s.db.Metrics(); m.TableIters != 0 || m.Snapshots.Count != 0 {
			t.Fatalf("%d table iterators and %d snapshots are open in the body of a loop", m.TableIters, m.Snapshots.Count)
		}
		if n++; n%500 == 0 {
			must(t, s.db.Flush())
		}
	}
	if n != 2000 {
		t.Errorf("ReadAll yields %d records, want 2000", n)
	}
}

// waiting returns the number of appends that wait for the committer.
func waiting(s *Store) int {
	appends, _ := s.queue.size()
	return appends
}

func TestLengthCacheStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	most := repeats(200, maxCachedStreams)
	h := lengthCache{maxStreams: most}
	h.add("0", 7)
	for i := range 5 * most {
		h.add(events.Stream(fmt.Sprint(i+1)), events.Revision(i))
		h.get("0")
	}
	if n := len(h.young) + len(h.old); n > 2*most {
		t.Errorf("%d lengths are remembered, want at most %d", n, 2*most)
	}
	if found := h.get("0"); found == nil || found.length != 7 {
		t.Error("a stream used all the time is forgotten")
	}
	h.maxStreams = maxCachedStreams
	bytes := 0
	for i := range 3 * maxCachedNameBytes / layout.MaxStream {
		h.add(events.Stream(fmt.Sprintf("%0*d", layout.MaxStream, i)), 1)
	}
	for name := range h.young {
		bytes += len(name)
	}
	for name := range h.old {
		bytes += len(name)
	}
	if bytes > 2*(maxCachedNameBytes+layout.MaxStream) {
		t.Errorf("names of %d bytes are remembered, want at most %d", bytes, 2*maxCachedNameBytes)
	}
}

func TestCheckpointsAreKeptApartFromRecords(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	if data, err := s.LoadCheckpoint(t.Context(), "calls"); data != nil || err != nil {
		t.Errorf("LoadCheckpoint before one is saved = %q, %v, want nil, nil", data, err)
	}
	given := []byte("one")
	must(t, s.SaveCheckpoint(t.Context(), "calls", given))
	given[0] = '!'
	must(t, s.SaveCheckpoint(t.Context(), "call", []byte("two")))
	must(t, s.SaveCheckpoint(t.Context(), "empty", nil))
	if n := len(all(t, s)); n != 0 {
		t.Errorf("ReadAll yields %d records, want none", n)
	}
	must(t, s.Close())
	s = open(t, storage)
	for name, want := range map[string]string{"calls": "one", "call": "two"} {
		if data, err := s.LoadCheckpoint(t.Context(), name); string(data) != want || err != nil {
			t.Errorf("LoadCheckpoint(%q) = %q, %v, want %q", name, data, err, want)
		}
	}
	if data, err := s.LoadCheckpoint(t.Context(), "empty"); data == nil || len(data) != 0 || err != nil {
		t.Errorf("LoadCheckpoint of an empty one = %v, %v, want empty and not nil", data, err)
	}
	if err := s.SaveCheckpoint(t.Context(), "", nil); err == nil {
		t.Error("SaveCheckpoint without a name = nil, want an error")
	}
	must(t, s.Close())
	if err := s.SaveCheckpoint(t.Context(), "calls", nil); !errors.Is(err, events.ErrClosed) {
		t.Errorf("SaveCheckpoint in a closed store = %v, want ErrClosed", err)
	}
	if _, err := s.LoadCheckpoint(t.Context(), "calls"); !errors.Is(err, events.ErrClosed) {
		t.Errorf("LoadCheckpoint in a closed store = %v, want ErrClosed", err)
	}
}

func TestTwoFollowingsAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	var ends []error
	for _, err := range s.Follow(t.Context(), events.Position{}, events.Following{}, events.Following{}) {
		ends = append(ends, err)
	}
	if !slices.Equal(ends, []error{errFollowings}) {
		t.Errorf("Follow with two Followings ends with %v, want %v", ends, errFollowings)
	}
}

func ExampleOpen() {
	ctx := context.Background()
	store, err := Open(ctx, "ledger", Config{FS: vfs.NewMem()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	mint := domain.NewMint(time.Now, rand.NewChaCha8([32]byte{}))
	session := events.SessionStream(mint.Session())
	record := events.Record{ID: mint.Event(), Kind: "SessionOpened", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte(`{"agent":"a"}`)}

	fmt.Println(store.Append(ctx, session, 0, record))
	fmt.Println(store.Append(ctx, session, 0, record)) // again: nothing changes
	for e, err := range store.ReadAll(ctx, events.Position{}) {
		fmt.Println(e.Position, e.Revision, e.Kind, string(e.Data), err)
	}
	// Output:
	// <nil>
	// <nil>
	// 1 1 SessionOpened {"agent":"a"} <nil>
}
