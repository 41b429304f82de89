package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles/filestest"
)

// An attempt is an append whose outcome may be unknown.
type attempt struct {
	stream  events.Stream
	after   events.Revision
	records []events.Record
	acked   bool
}

// A progress is the model of a history: the number of appends that its writer has
// begun, and the number that the store has acknowledged. It is safe for concurrent
// use.
type progress struct {
	mu    sync.Mutex
	count progressCount
}

// A progressCount is one state of a progress.
type progressCount struct {
	settled      bool // the store has decided each append of the lives before
	begun, acked int  // in this life
}

func (p *progress) note(change func(*progressCount)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.count)
}

func (p *progress) copy() progressCount {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// cutAt returns a cutter that cuts the power once, before the operation with this
// number. The first operation has the number 1.
func cutAt[M any](storage *vfs.MemFS, rng *rand.Rand, left, percent int, model func() M) *filestest.PowerCutter[M] {
	due := func(errorfs.Op) bool { left--; return left == 0 }
	return filestest.NewPowerCutter(storage, rng, due, func() int { return percent }, model)
}

// The power of random histories is cut before a random operation of the file system,
// also during the opening. No acknowledged record is lost.
func TestAPowerCutTakesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(5, 200)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			storage := vfs.NewCrashableMem()
			var history []attempt
			p := newRecordWriter(byte(seed))
			round, survived := 0, "a new store"
			defer func() {
				if t.Failed() {
					t.Logf("in round %d, after %s", round, survived)
				}
			}()
			for round = range 3 {
				var cut filestest.Cut[progressCount]
				cut, history = liveAndDie(t, storage, rng, p, history)
				if t.Failed() {
					return
				}
				storage, survived = cut.FS, cut.String()
			}
		})
	}
}

// liveAndDie opens a store, checks it against the history, and appends until the
// power is cut. It returns the surviving files and the history so far.
func liveAndDie(t *testing.T, storage *vfs.MemFS, rng *rand.Rand, p recordWriter, history []attempt) (filestest.Cut[progressCount], []attempt) {
	var model progress
	percent := rng.IntN(101)
	cutter := cutAt(storage, rand.New(rand.NewPCG(rng.Uint64(), 2)), 1+rng.IntN(120), percent, model.copy)
	s, err := Open(t.Context(), "store", Config{FS: cutter.FS()})
	must(t, err)
	defer s.Close() // into the file system that is dead
	lengths := settle(t, s, history)
	model.note(func(c *progressCount) { c.settled = true })
	base := len(history)
	for i := 0; i < 40 && len(cutter.Cuts()) == 0; i++ {
		stream := events.Stream(fmt.Sprintf("s-%d", rng.IntN(3)))
		size := rng.IntN(200)
		if rng.IntN(10) == 0 {
			size = 100_000
		}
		a := attempt{stream: stream, after: lengths[stream], records: p.records(1+rng.IntN(4), size)}
		history = append(history, a)
		model.note(func(c *progressCount) { c.begun++ })
		must(t, s.Append(t.Context(), a.stream, a.after, a.records...))
		model.note(func(c *progressCount) { c.acked++ })
		lengths[stream] += events.Revision(len(a.records))
		if rng.IntN(8) == 0 {
			must(t, s.SaveCheckpoint(t.Context(), "head", []byte(s.Head().String())))
		}
		if rng.IntN(12) == 0 {
			must(t, s.db.Flush())
		}
	}
	if len(cutter.Cuts()) == 0 {
		cutter.CutNow()
	}
	cut := cutter.Cuts()[0]
	history = history[:base+cut.Model.begun]
	for i := range history {
		switch {
		case i >= base:
			history[i].acked = i < base+cut.Model.acked
		case cut.Model.settled:
			history[i].acked = true
		}
	}
	return cut, history
}

// settle checks that a store has all acknowledged appends in order, and all or no
// records of the last one, whose outcome is unknown. It then repeats the last one,
// which settles its outcome. It returns the lengths of the streams.
func settle(t *testing.T, s *Store, history []attempt) map[events.Stream]events.Revision {
	t.Helper()
	entries := all(t, s)
	found := map[domain.EventID]events.Entry{}
	for i, e := range entries {
		if seq, _ := e.Position.Parts(); seq != uint64(i+1) {
			t.Errorf("entry %d stands at %s", i+1, e.Position)
		}
		found[e.ID] = e
	}
	checkpointIsBehind(t, s)
	lengths := map[events.Stream]events.Revision{}
	want := 0
	for i, a := range history {
		there := 0
		for k, r := range a.records {
			e, ok := found[r.ID]
			if ok && (string(e.Data) != string(r.Data) || e.Revision != a.after+events.Revision(k+1) || e.Stream != a.stream) {
				t.Errorf("record %d of append %d is not what was appended", k+1, i+1)
			}
			if ok {
				there++
			}
		}
		if a.acked && there != len(a.records) || there != 0 && there != len(a.records) {
			t.Errorf("append %d of %d, acknowledged %t: %d of %d records are there", i+1, len(history), a.acked, there, len(a.records))
		}
		if !a.acked {
			if err := s.Append(t.Context(), a.stream, a.after, a.records...); err != nil {
				t.Errorf("repeat append %d, whose outcome was open: %v", i+1, err)
			}
		}
		lengths[a.stream] += events.Revision(len(a.records))
		want += len(a.records)
	}
	if n := len(all(t, s)); n != want {
		t.Errorf("the store holds %d records, want %d", n, want)
	}
	return lengths
}

func checkpointIsBehind(t *testing.T, s *Store) {
	t.Helper()
	data, err := s.LoadCheckpoint(t.Context(), "head")
	must(t, err)
	if data == nil {
		return
	}
	at, err := events.ParsePosition(string(data))
	must(t, err)
	if at.Compare(s.Head()) > 0 {
		t.Errorf("the checkpoint is at %s, ahead of the records, which end at %s", at, s.Head())
	}
}

// The power is cut before each operation of opening a store with records, with names
// and bytes lost at random. No record is lost.
func TestAPowerCutWhileOpeningTakesNothing(t *testing.T) {
	t.Parallel()
	storage := vfs.NewCrashableMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(5, 100)...))
	must(t, s.Close())
	for seed := range uint64(repeats(1, 10)) {
		rng := rand.New(rand.NewPCG(seed, 3))
		for left := 1; ; left++ {
			none := func() struct{} { return struct{}{} }
			cutter := cutAt(storage.CrashClone(vfs.CrashCloneCfg{}), rng, left, 50, none)
			must(t, open(t, cutter.FS()).Close())
			if len(cutter.Cuts()) == 0 {
				break
			}
			cutter.Check(t, fmt.Sprintf("seed %d, cut before operation %d of opening", seed, left), func(c filestest.Cut[struct{}]) {
				after, err := Open(t.Context(), "store", Config{FS: c.FS})
				if err != nil {
					t.Error(err)
					return
				}
				if n := len(all(t, after)); n != 5 {
					t.Errorf("the store holds %d records, want 5", n)
				}
				must(t, after.Close())
			})
			if t.Failed() {
				return
			}
		}
	}
}

// An unsyncedLogFS ignores each sync of a log. After a SIGKILL the records of a log
// are in the memory of the system and not on the disk. Its locks exclude no other
// process, because a killed process has no lock.
type unsyncedLogFS struct{ vfs.FS }

func (unsyncedLogFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func TestRecordsSeenAfterAKillSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	storage := vfs.NewCrashableMem()
	first, err := Open(t.Context(), "store", Config{FS: unsyncedLogFS{filestest.NewLyingSyncFS(storage, nil, 1)}})
	must(t, err)
	records := newRecordWriter(1).records(3, 50)
	must(t, first.Append(t.Context(), "s-1", 0, records...))
	first.failStop.Fail(errors.New("killed")) // nothing more is written, also by Close

	second := open(t, storage)
	seen := len(all(t, second))
	if seen != 3 {
		t.Fatalf("%d records are there after the process was killed, want 3", seen)
	}
	third := open(t, storage.CrashClone(vfs.CrashCloneCfg{}))
	if n := len(all(t, third)); n != seen {
		t.Errorf("%d records are there after a power cut, and %d had been seen", n, seen)
	}
	must(t, first.db.Close())
}

// A fullDisk fails every write while it is full.
type fullDisk struct {
	mu   sync.Mutex
	left int // writes until the disk is full; negative: it never is
	full bool
	only func(errorfs.Op) bool
}

func (f *fullDisk) String() string { return "shortage" }

func (f *fullDisk) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpReuseForWrite, errorfs.OpFileSyncTo:
	default:
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.only != nil && !f.only(op) {
		return nil
	}
	if f.left == 0 {
		f.full = true
	}
	f.left--
	if f.full {
		return syscall.ENOSPC
	}
	return nil
}

func (f *fullDisk) set(left int, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.full = left, full
}

// The disk is full after each number of writes: in the log, at its rotation, in a
// flush, in the manifest. No acknowledged record is lost.
func TestAFullDiskStopsTheStoreAndLosesNothing(t *testing.T) {
	t.Parallel()
	everywhere := func(errorfs.Op) bool { return true }
	named := func(part string) func(errorfs.Op) bool {
		return func(op errorfs.Op) bool { return strings.Contains(op.Path, part) }
	}
	for _, kind := range []struct {
		name string
		only func(errorfs.Op) bool
		most int // the largest number of writes, a square
	}{{"anywhere", everywhere, 225}, {"log", named(".log"), 100}, {"table", named(".sst"), 10}, {"manifest", named("MANIFEST"), 5}} {
		for i := 0; i*i <= kind.most; i += repeats(3, 1) {
			t.Run(fmt.Sprintf("%s after %d writes", kind.name, i*i), func(t *testing.T) {
				t.Parallel()
				fillUp(t, kind.only, i*i)
			})
		}
	}
}

func fillUp(t *testing.T, only func(errorfs.Op) bool, left int) {
	storage, disk := vfs.NewMem(), &fullDisk{left: -1, only: func(op errorfs.Op) bool {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileClose:
			return false // after which no store goes on
		}
		return only(op)
	}}
	s := open(t, errorfs.Wrap(storage, disk))
	p := newRecordWriter(1)
	var history []attempt
	lengths := events.Revision(0)
	disk.set(left, false)
	var failed error
	for i := 0; failed == nil && i < 400; i++ {
		a := attempt{stream: "s-1", after: lengths, records: p.records(2, 200_000)}
		history = append(history, a)
		failed = s.Append(t.Context(), a.stream, a.after, a.records...)
		if failed == nil {
			history[i].acked = true
			lengths += 2
		}
	}
	if !errors.Is(failed, ErrPaused) || !errors.Is(failed, syscall.ENOSPC) {
		t.Fatalf("Append on a full disk = %v, want an error that says so", failed)
	}
	acked := len(history)
	if !history[acked-1].acked {
		acked--
	}
	if n := len(all(t, s)); n != 2*acked {
		t.Errorf("ReadAll after the failure yields %d records, want the %d acknowledged", n, 2*acked)
	}
	if err := s.Append(t.Context(), "s-2", 0, p.records(1, 1)...); !errors.Is(err, ErrPaused) {
		t.Errorf("Append after a failure = %v, want the failure", err)
	}
	if err := s.Append(t.Context(), "s-1", history[0].after, history[0].records...); !errors.Is(err, ErrPaused) {
		t.Errorf("repeated Append after a failure = %v, want the failure", err)
	}
	if err := s.SaveCheckpoint(t.Context(), "calls", nil); !errors.Is(err, ErrPaused) {
		t.Errorf("SaveCheckpoint after a failure = %v, want the failure", err)
	}
	disk.set(-1, false)
	if left%2 == 0 { // and at once, it may go on or not
		last := &history[len(history)-1]
		appendUntilResumed(t, s, *last)
		last.acked = true
	}
	must(t, s.Close())
	settle(t, open(t, storage), history)
}

func TestAFullDiskWhileOpeningIsAnErrorAndHarmless(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(5, 100)...))
	must(t, s.Close())
	for left := range 40 {
		disk := &fullDisk{left: left}
		s, err := Open(t.Context(), "store", Config{FS: errorfs.Wrap(storage, disk)})
		if err == nil {
			if disk.full {
				_ = s.Close()
				continue
			}
			must(t, s.Close())
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "store") {
			t.Errorf("Open on a full disk = %v, want an error that says so and names the folder", err)
		}
	}
	if n := len(all(t, open(t, storage))); n != 5 {
		t.Errorf("the store holds %d records, want 5", n)
	}
}

// A store whose tables Pebble merges at once opens on a full disk, although Pebble
// waits for the merge.
func TestAFullDiskWhileTablesAreMergedDoesNotHoldUpOpening(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(5, 100)...))
	options := s.options(nil)
	must(t, s.Close())
	options.DisableAutomaticCompactions = true
	db, err := pebble.Open(s.folder.PathOf(storedir.LogName), options)
	must(t, err)
	for range 8 {
		must(t, db.Set(layout.CheckpointKey("calls"), []byte("x"), pebble.Sync))
		must(t, db.Flush())
	}
	must(t, db.Close())
	disk := &fullDisk{only: func(op errorfs.Op) bool { return strings.Contains(op.Path, ".sst") }}
	if _, err := Open(t.Context(), "store", Config{FS: errorfs.Wrap(storage, disk)}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Open on a full disk = %v, want an error that says so", err)
	}
	if n := len(all(t, open(t, storage))); n != 5 {
		t.Errorf("the store holds %d records, want 5", n)
	}
}

func TestAFailedSyncIsNeverASuccess(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	storage := vfs.NewCrashableMem()
	toggle := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
			return broken
		}
		return nil
	})}
	s := open(t, errorfs.Wrap(storage, toggle))
	records := newRecordWriter(1).records(1, 10)
	toggle.On()
	for range 3 {
		if err := s.Append(t.Context(), "s-1", 0, records...); !errors.Is(err, broken) {
			t.Fatalf("Append whose sync fails = %v, want that failure", err)
		}
		toggle.Off() // what failed once stays failed
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e := range s.ReadAll(ctx, events.Position{}) {
		t.Errorf("ReadAll yields %v, which was not acknowledged", e)
	}
	must(t, s.Close())
	settle(t, open(t, storage.CrashClone(vfs.CrashCloneCfg{})), []attempt{{stream: "s-1", records: records}})
}
