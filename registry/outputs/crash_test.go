package outputs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles/filestest"
)

// An expectation is the model's state of one blob.
type expectation struct {
	content             []byte
	kept, dropped, gone bool // acknowledged by Keep, Drop, Prune
	doubt               bool // a Drop or a Prune was begun
	recorded            bool // the settlement is on record
}

// A model records the acknowledged operations of a caller.
type model struct {
	mu       sync.Mutex
	expected map[domain.Ref]expectation
}

func (d *model) note(r domain.Ref, change func(*expectation)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.expected[r]
	change(&f)
	d.expected[r] = f
}

func (d *model) copy() map[domain.Ref]expectation {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := make(map[domain.Ref]expectation, len(d.expected))
	for r, f := range d.expected {
		c[r] = f
	}
	return c
}

// smallMemTable is a memtable size with which a store flushes after a few blobs.
const smallMemTable = 2 << 20

// runRandom performs n random operations on a store and records them in the model. One
// in four blobs is longer than the part that goes through the WAL, and twelve blobs
// together are longer than a small memtable.
func runRandom(ctx context.Context, s *Store, d *model, rng *rand.Rand, n int) {
	ref := refs(rng.Uint64())
	for i := range n {
		r, size := ref(), rng.IntN(groupChunks*chunkSize)
		if i%4 == 0 {
			size += loggedChunks * chunkSize
		}
		content := random(size, rng.Uint64())
		d.note(r, func(f *expectation) { f.content = content })
		if _, err := s.Keep(ctx, r, "", bytes.NewReader(content)); err != nil {
			continue
		}
		d.note(r, func(f *expectation) { f.kept = true })
		switch rng.IntN(5) {
		case 0:
			d.note(r, func(f *expectation) { f.doubt = true })
			if s.Drop(ctx, r.Settlement()) == nil {
				d.note(r, func(f *expectation) { f.dropped = true })
			}
		case 1:
			d.note(r, func(f *expectation) { f.recorded, f.doubt = true, true })
			if _, err := s.Prune(ctx, r, "age", time.UnixMilli(1)); err == nil {
				d.note(r, func(f *expectation) { f.gone = true })
			}
		case 2, 3:
			d.note(r, func(f *expectation) { f.recorded = true })
			_ = s.Confirm(ctx, r.Settlement()) // not synced, so it may be lost
		}
	}
}

// checkModel compares a reopened store with the model, before a sweep.
func checkModel(ctx context.Context, s *Store, expected map[domain.Ref]expectation) error {
	waiting := map[domain.EventID]bool{}
	for id, err := range s.Unconfirmed(ctx) {
		if err != nil {
			return err
		}
		waiting[id] = true
	}
	for r, f := range expected {
		got, err := s.Stat(ctx, r)
		switch {
		case f.dropped && !errors.Is(err, ErrNotFound):
			return fmt.Errorf("dropped %v: Stat = %v", r, err)
		case f.gone && !errors.Is(err, ErrPruned):
			return fmt.Errorf("pruned %v: Stat = %v", r, err)
		case err != nil && f.kept && !f.doubt:
			return fmt.Errorf("acknowledged %v: Stat = %w", r, err)
		case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrPruned):
			return fmt.Errorf("%v: Stat = %w", r, err)
		case err != nil:
			continue
		}
		if err := s.Verify(ctx, r); err != nil {
			return err
		}
		if want := retainedOf(r, f.content); got.SHA256 != want.SHA256 || got.Bytes != want.Bytes {
			return fmt.Errorf("%v: %+v, want %+v", r, got, want)
		}
		if !f.kept && !waiting[r.Settlement()] {
			return fmt.Errorf("%v was not acknowledged and is confirmed", r)
		}
	}
	return nil
}

// sweepAll sweeps and checks that exactly the recorded blobs remain.
func sweepAll(ctx context.Context, s *Store, expected map[domain.Ref]expectation, left func() (blobCount int, files []string)) error {
	recorded := map[domain.EventID]bool{}
	for r, f := range expected {
		recorded[r.Settlement()] = f.recorded
	}
	_, err := s.Sweep(ctx, func(_ context.Context, id domain.EventID) (bool, error) { return recorded[id], nil })
	if err != nil {
		return err
	}
	stay := 0
	for got, err := range s.All(ctx) {
		if err != nil {
			return err
		}
		if stay++; !recorded[got.Ref.Settlement()] {
			return fmt.Errorf("%v stays and is not recorded", got.Ref)
		}
	}
	for r, f := range expected {
		if _, err := s.Stat(ctx, r); f.recorded && f.kept && !f.doubt && err != nil {
			return fmt.Errorf("recorded %v was swept: %w", r, err)
		}
	}
	for id, err := range s.Unconfirmed(ctx) {
		return fmt.Errorf("%v, %v is unconfirmed after a sweep", id, err)
	}
	if n, names := left(); n != stay || len(names) != 0 {
		return fmt.Errorf("%d bodies and files %v, want %d and none", n, names, stay)
	}
	again, err := s.Sweep(ctx, func(context.Context, domain.EventID) (bool, error) { return false, nil })
	if err != nil || again != (Swept{}) {
		return fmt.Errorf("second Sweep = %+v, %w, want nothing", again, err)
	}
	return nil
}

func checkReopened(t *testing.T, s *Store, expected map[domain.Ref]expectation) {
	t.Helper()
	if err := checkModel(t.Context(), s, expected); err != nil {
		t.Fatal(err)
	}
	err := sweepAll(t.Context(), s, expected, func() (int, []string) { return blobCount(t, s), incomingFiles(t, s) })
	if err != nil {
		t.Fatal(err)
	}
	mustKeep(t, s, refs(9999)(), random(5*chunkSize, 1))
}

// newPowerCutter returns a cutter that cuts the power before one write in oneIn, and
// before one in ten to the file of a blob, so that some cut an sstable.
func newPowerCutter(mem *vfs.MemFS, d *model, rng *rand.Rand, oneIn int) *filestest.PowerCutter[map[domain.Ref]expectation] {
	due := func(op errorfs.Op) bool {
		if strings.HasSuffix(op.Path, incomingSuffix) {
			return rng.IntN(10) == 0
		}
		return rng.IntN(oneIn) == 0
	}
	return filestest.NewPowerCutter(mem, rng, due, func() int { return rng.IntN(3) * 50 }, d.copy)
}

// runRandomWithCuts runs a random history, drawn from steps, on a new store on disk and
// closes the store. It returns the cutter with the power cuts, drawn from cuts. disk is
// mem or a file system over it.
func runRandomWithCuts(t *testing.T, mem *vfs.MemFS, disk vfs.FS, steps, cuts rand.Source) *filestest.PowerCutter[map[domain.Ref]expectation] {
	t.Helper()
	d := &model{expected: map[domain.Ref]expectation{}}
	cutter := newPowerCutter(mem, d, rand.New(cuts), repeats(40, 20))
	s, err := Open("outputs", Config{FS: cutter.Wrap(disk), memTable: smallMemTable})
	if err != nil {
		t.Fatal(err)
	}
	runRandom(t.Context(), s, d, rand.New(steps), repeats(16, 32))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return cutter
}

// After a power cut at any write, the store has every acknowledged blob.
func TestPowerCutKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	total, half := 0, 0
	// The scheduler decides about the crash points: run more histories until one has
	// cut an sstable.
	for seed := uint64(0); seed < uint64(repeats(1, 4)) || half == 0 && seed < 20; seed++ {
		mem := vfs.NewCrashableMem()
		cutter := runRandomWithCuts(t, mem, mem, rand.NewPCG(seed, 1), rand.NewPCG(seed, 2))
		cutter.Check(t, fmt.Sprintf("seed %d", seed), func(m filestest.Cut[map[domain.Ref]expectation]) {
			again, err := Open("outputs", Config{FS: m.FS})
			if err != nil {
				t.Fatal(err)
			}
			if len(incomingFiles(t, again)) > 0 {
				half++
			}
			checkReopened(t, again, m.Model)
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			total++
		})
	}
	if want := repeats(4, 30); total < want || half == 0 {
		t.Errorf("%d cuts, %d of them in the middle of a table, want %d and some", total, half, want)
	}
}

// After a power cut on a disk that ignores syncs of WALs, blobs may be missing and the
// store may report damage. It never returns other content than a caller kept.
func TestPowerCutOnALyingDiskChangesNoBlob(t *testing.T) {
	t.Parallel()
	whole, missing := 0, 0
	for seed := uint64(0); seed < uint64(repeats(1, 20)) || whole == 0 && seed < 20; seed++ {
		mem := vfs.NewCrashableMem()
		disk := filestest.NewLyingSyncFS(mem, rand.New(rand.NewPCG(seed, 6)), 3)
		cutter := runRandomWithCuts(t, mem, disk, rand.NewPCG(seed, 4), rand.NewPCG(seed, 5))
		cutter.Check(t, fmt.Sprintf("seed %d", seed), func(m filestest.Cut[map[domain.Ref]expectation]) {
			again, err := Open("outputs", Config{FS: m.FS})
			if err != nil {
				if !errors.Is(err, ErrFiles) {
					t.Errorf("Open = %v, want nil or an ErrFiles", err)
				}
				return
			}
			for r, f := range m.Model {
				switch found, err := isWhole(t.Context(), again, r, f.content); {
				case err != nil:
					t.Error(err)
				case found:
					whole++
				case f.kept && !f.doubt:
					missing++
				}
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("%d blobs whole, %d acknowledged ones not", whole, missing)
	if whole == 0 {
		t.Error("no blob survived a power cut")
	}
}

// isWhole reports whether a store has a blob with this content. It returns false if
// the store reports the blob as missing, pruned or damaged, and an error if the
// content differs.
func isWhole(ctx context.Context, s *Store, r domain.Ref, content []byte) (bool, error) {
	got, err := s.Stat(ctx, r)
	if err == nil {
		err = s.Verify(ctx, r)
	}
	for _, lost := range []error{ErrNotFound, ErrPruned, ErrDamaged} {
		if errors.Is(err, lost) {
			return false, nil
		}
	}
	if want := retainedOf(r, content); err == nil && (got.SHA256 != want.SHA256 || got.Bytes != want.Bytes) {
		err = fmt.Errorf("%+v, want %+v", got, want)
	}
	if err != nil {
		return false, fmt.Errorf("%v: %w", r, err)
	}
	return true, nil
}

// A fullDisk injects ENOSPC from one write on, until set allows more writes.
type fullDisk struct {
	mu   sync.Mutex
	left int
	once bool
	kind func(errorfs.Op) bool
}

func (f *fullDisk) inject(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpRemove || !f.kind(op) {
		return nil
	}
	if f.left--; f.left >= 0 || f.once && f.left < -1 {
		return nil
	}
	return syscall.ENOSPC
}

func (f *fullDisk) set(left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = left
}

// Scenario 64.
func TestFailedWriteLosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	any := func(errorfs.Op) bool { return true }
	rng := rand.New(rand.NewPCG(7, 7))
	for _, once := range []bool{false, true} {
		for range repeats(1, 16) {
			at := rng.IntN(repeats(150, 300))
			t.Run(fmt.Sprintf("once %v, at %d", once, at), func(t *testing.T) {
				failAt(t, &fullDisk{left: 1 << 30, once: once, kind: any}, at)
			})
		}
	}
}

func TestFailedWriteOfAnyFileIsContained(t *testing.T) {
	t.Parallel()
	for part, writes := range map[string][]int{
		".log": {40, 0, 1, 3}, ".sst": {0, 40, 1, 3}, "MANIFEST": {0, 40, 1, 3}, ".body": {3, 40, 1, 0},
	} {
		kind := func(op errorfs.Op) bool { return bytes.Contains([]byte(op.Path), []byte(part)) }
		for _, at := range writes[:repeats(1, 4)] {
			t.Run(fmt.Sprintf("%s, at %d", part, at), func(t *testing.T) {
				failAt(t, &fullDisk{left: 1 << 30, kind: kind}, at)
			})
		}
	}
}

// failAt opens a store whose disk fails at one write, and compares it with the model
// before and after reopening.
func failAt(t *testing.T, f *fullDisk, at int) {
	mem, d := vfs.NewMem(), &model{expected: map[domain.Ref]expectation{}}
	s, err := Open("outputs", Config{FS: errorfs.Wrap(mem, errorfs.InjectorFunc(f.inject)), memTable: smallMemTable})
	if err != nil {
		t.Fatal(err)
	}
	f.set(at)
	runRandom(t.Context(), s, d, rand.New(rand.NewPCG(uint64(at), 3)), repeats(12, 24))
	expected := d.copy()
	for r, expectation := range expected {
		_, err := s.Stat(t.Context(), r)
		switch {
		case !expectation.kept && !errors.Is(err, ErrNotFound):
			t.Errorf("not kept, and Stat = %v", err)
		case expectation.kept && !expectation.doubt:
			if err := s.Verify(t.Context(), r); err != nil {
				t.Errorf("kept, and Verify = %v", err)
			}
		}
	}
	_, err = s.Keep(t.Context(), refs(77)(), "", bytes.NewReader([]byte("more")))
	if broken := s.broken() != nil; !f.once && errors.Is(err, ErrBroken) != broken { // after a single failure the store resumes
		t.Errorf("Keep = %v of a store that is broken: %v", err, broken)
	}
	f.set(1 << 30)
	if err := s.Close(); err != nil {
		t.Logf("Close = %v", err)
	}
	checkReopened(t, openIn(t, mem), expected)
}

// longVariable is the environment variable that selects the long form of the tests.
const longVariable = "LEDGER_TEST_LONG"

// repeats returns short, or long in the long form of the tests.
func repeats(short, long int) int {
	if os.Getenv(longVariable) != "" {
		return long
	}
	return short
}
