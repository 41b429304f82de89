package filestest

import (
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A Cut is one power cut: the files that survive it, and the state of a test's model of
// the store at that time.
type Cut[M any] struct {
	FS    *vfs.MemFS
	Model M
}

// A PowerCutter cuts the power of a store before chosen operations of its file system. The
// store continues; the cutter keeps a copy of the files that would survive. It is safe for
// concurrent use.
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

// NewPowerCutter returns a cutter over a crashable file system. Before each operation that
// changes a file it calls due, which decides whether the power is cut there, and then model
// for a copy of the acknowledged operations. It calls model before it copies the files,
// because a later acknowledgement only adds durable data. The number that kept returns is
// the share, in percent, of the unsynced data that survives. The functions are called with
// the lock of the cutter held.
func NewPowerCutter[M any](fs *vfs.MemFS, rng *rand.Rand, due func(errorfs.Op) bool, kept func() int, model func() M) *PowerCutter[M] {
	c := &PowerCutter[M]{fs: fs, model: model, due: due, kept: kept}
	c.mu.rng = rng
	return c
}

// FS returns the file system to open the store on.
func (c *PowerCutter[M]) FS() *errorfs.FS { return errorfs.Wrap(c.fs, errorfs.InjectorFunc(c.inject)) }

// inject cuts the power before an operation if it is due. It returns nil.
func (c *PowerCutter[M]) inject(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.due(op) {
		return nil
	}
	model := c.model()
	c.mu.cuts = append(c.mu.cuts, Cut[M]{c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.kept(), RNG: c.mu.rng}), model})
	return nil
}

// Cuts returns the power cuts so far, in order.
func (c *PowerCutter[M]) Cuts() []Cut[M] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.cuts
}
