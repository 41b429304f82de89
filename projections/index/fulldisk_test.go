//go:build linux

package index

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A full disk fails a fill with its error. The index is as before, no other file is left,
// and the fill succeeds once there is space.
func TestAFullDiskFailsTheFillOnly(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mount a file system of 2 MiB: %v; only root may do it", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	history := projectionstest.History(45, 3000)
	l, store := newLedger(t, history[:100])
	whole, _ := newLedger(t, history)
	x := New(filepath.Join(disk, "index"))
	noError(t, x.CatchUp(t.Context(), l, nil))
	x.batch = 50
	noError(t, projectionstest.Append(t.Context(), store, history[100:]))
	filler := filepath.Join(disk, "filler")
	noError(t, os.WriteFile(filler, make([]byte, 1200<<10), 0o600))
	for name, fill := range map[string]func() error{
		"CatchUp": func() error { return x.CatchUp(t.Context(), l, nil) },
		"Rebuild": func() error { return x.Rebuild(t.Context(), l, nil) },
	} {
		err := fill()
		if err == nil || errors.Is(err, ErrDamagedIndex) || !strings.Contains(err.Error(), "full") && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s on a full disk = %v, want that the disk is full", name, err)
		}
		s, err := x.Status(t.Context(), l)
		if err != nil || s.State != Behind {
			t.Errorf("Status after %s = %s %q, %v, want behind", name, s.State, s.Reason, err)
		}
		found, err := filepath.Glob(filepath.Join(x.dir, filePrefix+"*"+fileSuffix))
		if err != nil || len(found) != 1 {
			t.Errorf("after %s the folder has %v, want one database", name, found)
		}
	}
	noError(t, os.Remove(filler))
	noError(t, syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	noError(t, x.CatchUp(t.Context(), l, nil))
	same(t, "with space again", dump(t, x), dump(t, newIndex(t, whole)))
}
