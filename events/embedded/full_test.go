package embedded

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/events"
)

// A Compact on a full disk ends with an error, and a Close after it returns.
func TestCompactOnAFullDiskEnds(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	storage := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	}))
	s, err := Open(t.Context(), "store", Config{FS: storage})
	must(t, err)
	for i := range 3 {
		must(t, s.Append(t.Context(), "s-1", events.Revision(i), newRecordWriter(byte(i)).records(1, 100)...))
		must(t, s.SaveCheckpoint(t.Context(), "calls", []byte("{}")))
		must(t, s.db.Flush())
	}
	full.Store(true)
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(s.Compact(t.Context()), s.Close()) }()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrPaused) {
			t.Errorf("Compact and Close on a full disk = %v, want %v", err, ErrPaused)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Compact and Close on a full disk do not end")
	}
}
