package filestest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A Cut is one power cut: the files that survive it, and the state of a test's model of
// the store at that time.
type Cut[M any] struct {
	FS     *vfs.MemFS
	Model  M
	number int    // the first cut of a cutter is 1
	at     string // the operation before which the power was cut
}

// String returns the number of the cut and the operation before which it was made.
func (c Cut[M]) String() string { return fmt.Sprintf("power cut %d, %s", c.number, c.at) }

// A PowerCutter cuts the power of a store before chosen operations of its file system.
// The store continues; the cutter keeps a copy of the files that would survive. It is
// safe for concurrent use.
type PowerCutter[M any] struct {
	fs    *vfs.MemFS
	model func() M
	due   func(errorfs.Op) bool
	kept  func() int
	mu    struct {
		sync.Mutex
		rng  *rand.Rand
		cuts []Cut[M]
	}
}

// NewPowerCutter returns a cutter over a crashable file system. Before each operation
// that changes a file it calls the function due, which decides whether the power is cut
// there. At a cut it calls the function model for a copy of the test's model: the
// operations that the test has begun, and those that the store has acknowledged. Then it
// calls the function kept, which returns the percentage of the unsynced data that
// survives. The cutter calls these functions with its lock held, so they must not call
// the cutter.
//
// The cutter calls model before it copies the files. If an operation is acknowledged in
// between, the copied files have it and the model lists it as begun, so a check accepts
// it. If an operation begins in between, neither the files nor the model have it,
// because a change to a file waits for the lock of the cutter.
func NewPowerCutter[M any](fs *vfs.MemFS, rng *rand.Rand, due func(errorfs.Op) bool, kept func() int, model func() M) *PowerCutter[M] {
	c := &PowerCutter[M]{fs: fs, model: model, due: due, kept: kept}
	c.mu.rng = rng
	return c
}

// FS returns the file system to open the store on.
func (c *PowerCutter[M]) FS() *errorfs.FS { return c.Wrap(c.fs) }

// Wrap returns the file system to open the store on, for a test that puts another file
// system, such as a [LyingSyncFS], over the crashable one: the power is cut before the
// operations of fs.
func (c *PowerCutter[M]) Wrap(fs vfs.FS) *errorfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(c.inject))
}

// inject cuts the power before an operation if it is due. It returns nil.
func (c *PowerCutter[M]) inject(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due(op) {
		c.cutLocked("before the " + describeOp(op.Kind) + " of " + op.Path)
	}
	return nil
}

// describeOp returns the name of an operation that changes a file.
func describeOp(kind errorfs.OpKind) string {
	switch kind {
	case errorfs.OpCreate, errorfs.OpMkdirAll, errorfs.OpLink, errorfs.OpReuseForWrite:
		return "creation"
	case errorfs.OpRemove, errorfs.OpRemoveAll:
		return "removal"
	case errorfs.OpRename:
		return "renaming"
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileFlush:
		return "sync"
	case errorfs.OpFileClose:
		return "closing"
	case errorfs.OpLock:
		return "locking"
	}
	return "write"
}

// CutNow cuts the power at once.
func (c *PowerCutter[M]) CutNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutLocked("between two operations")
}

// cutLocked cuts the power. The caller holds mu.
func (c *PowerCutter[M]) cutLocked(at string) {
	cut := Cut[M]{Model: c.model(), number: len(c.mu.cuts) + 1, at: at}
	cut.FS = c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.kept(), RNG: c.mu.rng})
	c.mu.cuts = append(c.mu.cuts, cut)
}

// Cuts returns the power cuts so far, in order.
func (c *PowerCutter[M]) Cuts() []Cut[M] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.cuts
}

// Check calls the function survives with each power cut so far, until the test fails. It
// logs the cut after which the test failed, with the name of the history.
func (c *PowerCutter[M]) Check(t testing.TB, history string, survives func(Cut[M])) {
	t.Helper()
	for _, cut := range c.Cuts() {
		if !report(t, history, cut, survives) {
			return
		}
	}
}

// report calls the function survives with a cut, and reports whether the test has not
// failed. It logs the cut of a failure, also if survives ends the test.
func report[M any](t testing.TB, history string, cut Cut[M], survives func(Cut[M])) bool {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v: the failures above are of this cut", history, cut)
		}
	}()
	survives(cut)
	return !t.Failed()
}
