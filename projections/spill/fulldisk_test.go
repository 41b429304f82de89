//go:build linux

package spill_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/projections/spill"
)

// A full temporary disk is the error of the Store, which stays, and Close leaves nothing
// on the disk.
func TestAFullDiskIsTheErrorOfTheStore(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("mount a file system of 6 MiB: %v; only root may do it", err)
	}
	t.Cleanup(func() {
		// Pebble may have left the file of a failed flush open.
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", disk)
	store, err := spill.Open()
	if err != nil {
		t.Fatal(err)
	}
	type text struct{ S string }
	m := spill.NewMap(store, spill.Options[string, text]{Text: strings.Clone, Limit: 10})
	random := rand.NewChaCha8([32]byte{1})
	for i := range 32 << 10 {
		b := make([]byte, 1<<10) // of which compression makes no less
		_, _ = random.Read(b)
		m.Put(fmt.Sprint(i), &text{hex.EncodeToString(b)})
		if m.Trim(); store.Err() != nil {
			break
		}
	}
	first := store.Err()
	if !errors.Is(first, syscall.ENOSPC) || !strings.Contains(first.Error(), disk) {
		t.Errorf("Err on a full disk = %v, want that %s has no space", first, disk)
	}
	m.Put("after", &text{"x"})
	m.Trim()
	if again := store.Err(); again != first {
		t.Errorf("Err = %v later, want %v", again, first)
	}
	_ = store.Close() // repeats the error
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("Close leaves %v, %v", left, err)
	}
}
