package embedded

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// await waits until the condition is true, and fails the test if that takes too long.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for !so() {
		if t.Context().Err() != nil {
			t.Fatal(what)
		}
		runtime.Gosched()
	}
}

// start appends without waiting for the result, which it sends on the channel.
func start(t *testing.T, s *Store, stream events.Stream, after events.Revision, records ...events.Record) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- s.Append(t.Context(), stream, after, records...) }()
	return answer
}

// inFlight returns the number of groups in flight.
func inFlight(s *Store) int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.mu.inFlight
}

// While the sync of one group is held, the next group is written, and the one after
// it waits.
func TestAGroupIsWrittenWhileAnotherSyncs(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	g.mu.Lock()
	p := newRecordWriter(1)
	answers := []<-chan error{start(t, s, "s-first", 0, p.records(1, 10)...)}
	<-g.waiting
	for i := range minSecondGroup {
		answers = append(answers, start(t, s, events.Stream(fmt.Sprint("s-", i)), 0, p.records(1, 10)...))
	}
	await(t, "the second group does not take off", func() bool {
		_, closer, err := s.db.Get(layout.EntryKey(minSecondGroup + 1))
		if err == nil {
			must(t, closer.Close())
		}
		return err == nil
	})
	for i := range 2 * minSecondGroup {
		answers = append(answers, start(t, s, events.Stream(fmt.Sprint("t-", i)), 0, p.records(1, 10)...))
	}
	await(t, "the third group does not wait", func() bool { return waiting(s) == 2*minSecondGroup })
	if n := len(all(t, s)); n != 0 {
		t.Errorf("readers see %d records of groups in flight, want none", n)
	}
	for i, answer := range answers {
		if len(answer) != 0 {
			t.Errorf("append %d is answered before its sync", i)
		}
	}
	g.mu.Unlock()
	for _, answer := range answers {
		must(t, <-answer)
	}
	if n := len(all(t, s)); n != len(answers) {
		t.Errorf("the store holds %d records, want %d", n, len(answers))
	}
}

// Several appends to one stream, each after the previous one, are in one group while
// a sync is held. The last one follows a record that is still in flight.
func TestAppendsToOneStreamShareASync(t *testing.T) {
	t.Parallel()
	s, g := gated(t)
	g.mu.Lock()
	p := newRecordWriter(1)
	answers := []<-chan error{start(t, s, "s-1", 0, p.records(2, 10)...)}
	<-g.waiting
	for i := range 10 {
		answers = append(answers, start(t, s, "s-1", events.Revision(2+2*i), p.records(2, 10)...))
		await(t, "the append does not reach the queue", func() bool { return waiting(s) == i+1 })
	}
	g.mu.Unlock()
	for i, answer := range answers {
		if err := <-answer; err != nil {
			t.Errorf("append %d to the stream = %v, want nil", i, err)
		}
	}
	if n := g.syncs.Load(); n != 2 {
		t.Errorf("%d appends to one stream took %d syncs, want 2", len(answers), n)
	}
}

// Place returns the position of the last record, also for a repeated append that
// later records follow.
func TestPlaceReturnsTheLastPosition(t *testing.T) {
	t.Parallel()
	s, p := open(t, vfs.NewMem()), newRecordWriter(1)
	var all [4][]events.Record
	for i := range all {
		all[i] = p.records(3, 10)
	}
	for range 2 { // the second time they are there
		for i, records := range all {
			stream, after := events.Stream(fmt.Sprint("s-", i%2)), events.Revision(i/2*3)
			at, err := s.Place(t.Context(), stream, after, records...)
			if want := events.NewPosition(uint64(3*i+3), uint64(3*i+3)); err != nil || at != want {
				t.Errorf("Place(%s, %d) = %v, %v, want %v", stream, after, at, err, want)
			}
		}
	}
	if at, err := s.Place(t.Context(), "s-0", 1, p.records(1, 10)...); !errors.Is(err, events.ErrConflict) || !at.IsZero() {
		t.Errorf("Place where the stream has another length = %v, %v, want ErrConflict", at, err)
	}
}

// A repeat and a conflict of an append whose sync is held are answered after the
// sync.
func TestNoAnswerDependsOnAGroupInFlight(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		s, g := gated(t)
		g.mu.Lock()
		records, others := newRecordWriter(1).records(2, 10), newRecordWriter(2).records(2, 10)
		first := start(t, s, "s-1", 0, records...)
		<-g.waiting
		again := start(t, s, "s-1", 0, records...)
		against := start(t, s, "s-1", 0, others...)
		await(t, "the appends do not reach the queue", func() bool { return waiting(s) == 2 })
		p := newRecordWriter(3)
		for i := range minSecondGroup { // with which they take off
			start(t, s, events.Stream(fmt.Sprint("t-", i)), 0, p.records(1, 10)...)
		}
		await(t, "the second group does not take off", func() bool { return inFlight(s) == maxInFlight })
		if len(again)+len(against) != 0 {
			t.Error("an append that hangs on one in flight is answered")
		}
		if fails {
			s.failStop.Fail(syscall.EIO)
		}
		g.mu.Unlock()
		if !fails {
			must(t, <-first)
			must(t, <-again)
			if err := <-against; !errors.Is(err, events.ErrConflict) {
				t.Errorf("Append(other records) = %v, want a conflict", err)
			}
			continue
		}
		for name, answer := range map[string]<-chan error{"first": first, "again": again, "against": against} {
			if err := <-answer; !errors.Is(err, syscall.EIO) {
				t.Errorf("%s of an append whose sync fails = %v, want the failure", name, err)
			}
		}
	}
}

// The failure of the first of two syncs fails the appends of both groups.
func TestAFailureFailsAllThatIsInFlight(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	g := &gate{waiting: make(chan struct{}, 1)}
	once := errorfs.InjectorFunc(func(op errorfs.Op) error {
		log := (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".log")
		if log && fail.CompareAndSwap(true, false) {
			return syscall.EIO
		}
		return nil
	})
	storage := vfs.NewCrashableMem()
	s := open(t, errorfs.Wrap(errorfs.Wrap(storage, once), g))
	for len(g.waiting) > 0 {
		<-g.waiting
	}
	g.mu.Lock()
	p := newRecordWriter(1)
	answers := []<-chan error{start(t, s, "s-first", 0, p.records(1, 10)...)}
	<-g.waiting
	for i := range 3 * minSecondGroup {
		answers = append(answers, start(t, s, events.Stream(fmt.Sprint("s-", i)), 0, p.records(1, 10)...))
	}
	await(t, "the second group does not take off", func() bool { return inFlight(s) == maxInFlight })
	fail.Store(true)
	g.mu.Unlock()
	for i, answer := range answers {
		if err := <-answer; !errors.Is(err, errStopped) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("append %d behind a sync that failed = %v, want the failure", i, err)
		}
	}
	if n := len(all(t, s)); n != 0 {
		t.Errorf("readers see %d records after a sync that failed, want none", n)
	}
	must(t, s.Close())
	if n := len(all(t, open(t, storage.CrashClone(vfs.CrashCloneCfg{})))); n != 0 {
		t.Errorf("%d records survive a sync that failed, want none", n)
	}
}

func TestStatsCountWrites(t *testing.T) {
	t.Parallel()
	s := open(t, vfs.NewMem())
	p := newRecordWriter(1)
	for i := range 2 * recentSamples {
		must(t, s.Append(t.Context(), "s-1", events.Revision(i*3), p.records(3, 10)...))
	}
	records := p.records(1, 10)
	must(t, s.Append(t.Context(), "s-2", 0, records...))
	must(t, s.Append(t.Context(), "s-2", 0, records...)) // adds nothing
	v := s.Stats()
	if v.Appends != 2*recentSamples+1 || v.Records != 6*recentSamples+1 || v.Groups != 2*recentSamples+1 || v.Waiting != 0 || v.QueuedBytes != 0 {
		t.Errorf("Stats() has %d appends, %d records, %d groups, %d waiting and %d bytes held, want %d, %d, %d, 0 and 0",
			v.Appends, v.Records, v.Groups, v.Waiting, v.QueuedBytes, 2*recentSamples+1, 6*recentSamples+1, 2*recentSamples+1)
	}
	if v.Head != s.Head() || v.Durable != s.Head() || v.Durability != Sync() || v.Failure != nil {
		t.Errorf("Stats() has head %s, durable %s, %s and failure %v, want %s twice, sync and none", v.Head, v.Durable, v.Durability, v.Failure, s.Head())
	}
	if len(v.Recent) != recentSamples || v.Recent[0].Records != 3 || v.Recent[recentSamples-1].Records != 1 || v.Recent[0].Took <= 0 || len(v.Syncs) != recentSamples {
		t.Errorf("Stats() has %d groups, from %v to %v, and %d syncs, want %d of each, the oldest first", len(v.Recent), v.Recent[0], v.Recent[len(v.Recent)-1], len(v.Syncs), recentSamples)
	}
	size := uint64(0)
	for _, e := range all(t, s) {
		size += uint64(layout.EncodedLen(e.Stream, e.Record) + layout.SumLen)
	}
	if v.Bytes != size {
		t.Errorf("Stats() has %d bytes, want %d", v.Bytes, size)
	}
}
