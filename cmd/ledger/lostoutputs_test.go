package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// copyFolder copies the files below from to the new folder to.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	err := os.CopyFS(to, os.DirFS(from))
	// An open store removes obsolete files, which may happen between listing and copying one.
	for attempt := 0; errors.Is(err, fs.ErrNotExist) && attempt < 100; attempt++ {
		noError(t, os.RemoveAll(to))
		err = os.CopyFS(to, os.DirFS(from))
	}
	noError(t, err)
}

// noError ends the test if err is not nil.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A store whose output folder is missing, empty or replaced does not open, fails its
// check and cannot be backed up. An earlier backup stays intact and can be restored.
func TestAStoreThatLostItsOutputsIsRefused(t *testing.T) {
	t.Parallel()
	whole := newSeededStore(t)
	if got := ledger(t, whole, "session", "ls"); got.exit != 0 {
		t.Fatalf("session ls: exit %d, %s", got.exit, got.err)
	}
	for name, lose := range map[string]func(t *testing.T, dir string){
		"lost":    func(*testing.T, string) {},
		"emptied": func(t *testing.T, dir string) { noError(t, os.Mkdir(dir, 0o700)) },
		"replaced": func(t *testing.T, dir string) {
			kept, err := outputs.Open(dir, outputs.Config{})
			noError(t, err)
			noError(t, kept.Close())
		},
	} {
		store, backup := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "backup")
		copyFolder(t, whole, store)
		if got := ledger(t, store, "store", "backup", backup); got.exit != 0 {
			t.Fatalf("%s: backup: exit %d, %s", name, got.exit, got.err)
		}
		dir := filepath.Join(store, "outputs")
		noError(t, os.RemoveAll(dir))
		lose(t, dir)
		if got := ledger(t, store, "session", "ls"); got.exit != fault.ExitFailed || !strings.Contains(string(got.err), "lacks 1 output") {
			t.Errorf("%s: session ls: exit %d, %s; want it refused", name, got.exit, got.err)
		}
		if got := ledger(t, store, "store", "check"); got.exit != fault.ExitUnverified || !strings.Contains(string(got.out), "missing") {
			t.Errorf("%s: check: exit %d, %s; want the output that is missing", name, got.exit, got.out)
		}
		if got := ledger(t, store, "store", "backup", backup); got.exit == 0 {
			t.Errorf("%s: backup succeeds", name)
		}
		again := filepath.Join(t.TempDir(), "again")
		if got := ledger(t, again, "store", "restore", backup); got.exit != 0 {
			t.Errorf("%s: restore of the earlier backup: exit %d, %s", name, got.exit, got.err)
		}
	}
}
