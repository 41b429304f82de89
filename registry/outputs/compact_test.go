package outputs

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Compact returns on a full disk, and so does a concurrent or later Close.
func TestCompactOnAFullDiskEnds(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	storage := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	}))
	s, err := Open("outputs", Config{FS: storage})
	if err != nil {
		t.Fatal(err)
	}
	ref := refs(1)
	mustKeep(t, s, ref(), random(1000, 1))
	full.Store(true)
	within(t, "Compact", func() { err = s.Compact(t.Context()) })
	wantErr(t, "Compact", err, ErrBroken)
	within(t, "Close", func() { _ = s.Close() })
}

// within fails the test if do does not return in time.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not end", what)
	}
}
