package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/storefile"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// newWideStore returns the folder of a store with a history of calls, and records of half a
// megabyte each, so that an export of it has several checkpoints.
func newWideStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "wide")
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := projectionstest.Append(t.Context(), store, projectionstest.History(1, 200)); err != nil {
		t.Fatal(err)
	}
	mint := newMint(time.Now)
	for n := range repeats(24, 160) {
		r := events.Record{ID: mint.Event(), Kind: "Wide", Version: 1, Time: time.UnixMicro(int64(n)).UTC(), Data: fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, n, strings.Repeat("x", 1<<19))}
		if err := store.Append(t.Context(), "wide-1", events.Revision(n), r); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Exports that are killed at any moment are continued by the next one, and the file has the
// bytes of one written at once. So is an import, and the stores are equal.
func TestAnExportAndAnImportThatAreKilledGoOn(t *testing.T) {
	t.Parallel()
	from := newWideStore(t)
	export := func(to string, args ...string) []string {
		return append([]string{"export"}, append(args, "--store", from, "--to", to, "-o", "json")...)
	}
	// killed runs a command that is killed a few times, and then to its end. The first run, to
	// another place, says how long it takes. It ends early if a kill came after the file made had
	// its name.
	killed := func(took time.Duration, made string, args []string) {
		t.Helper()
		for range repeats(1, 8) {
			if !killLedger(t, nil, time.Duration(rand.Int64N(int64(took))), args...) {
				return
			}
			if _, err := os.Stat(made); err == nil {
				_ = os.Remove(made + ".partial.progress") // the next export would remove it
				return
			}
		}
		if got := ledgerWithEnv(t, nil, args...); got.exit != 0 {
			t.Fatalf("ledger %v = %d %s", args, got.exit, got.err)
		}
	}
	dir := t.TempDir()
	for name, args := range map[string][]string{"store.jsonl.zst": {"store", "--raw"}, "calls.parquet": {"calls"}} {
		whole, part := filepath.Join(dir, "whole."+name), filepath.Join(dir, "part."+name)
		began := time.Now()
		if got := ledgerWithEnv(t, nil, export(whole, args...)...); got.exit != 0 {
			t.Fatalf("export %s = %d %s", name, got.exit, got.err)
		}
		killed(time.Since(began), part, export(part, args...))
		want, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(part); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, %v, want the %d of one written at once", name, len(got), err, len(want))
		}
		if left, err := filepath.Glob(part + ".*"); err != nil || len(left) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
	}
	to := filepath.Join(dir, "to")
	args := []string{"import", "jsonl", filepath.Join(dir, "part.store.jsonl.zst"), "--store", to, "-o", "json"}
	began := time.Now()
	if got := ledgerWithEnv(t, nil, "import", "jsonl", args[2], "--store", filepath.Join(dir, "other")); got.exit != 0 {
		t.Fatalf("import = %d %s", got.exit, got.err)
	}
	killed(time.Since(began), filepath.Join(dir, "none"), args)
	row := decodeJSON[storefile.Imported](t, ledgerWithEnv(t, nil, args...).out)
	if copied := copyStore(t, nil, from, to); copied.Copied != 0 || copied.Digest != row.Digest || row.Appended != 0 {
		t.Errorf("after the import the copy of the store = %+v, and the import again %+v", copied, row)
	}
}
