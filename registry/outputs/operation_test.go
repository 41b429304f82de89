package outputs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
)

// fillStore stores blobs of each kind in a new store, and closes it.
func fillStore(t testing.TB, fs vfs.FS) map[domain.Ref][]byte {
	t.Helper()
	kept := map[domain.Ref][]byte{}
	ref := refs(1)
	s, err := Open("outputs", Config{FS: fs, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{10, 3*chunkSize + 1, (loggedChunks + 3) * chunkSize} {
		r, content := ref(), random(size, uint64(i))
		mustKeep(t, s, r, content)
		kept[r] = content
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, content := ref(), random(2000, 9)
	mustKeep(t, s, r, content)
	kept[r] = content
	gone := ref()
	mustKeep(t, s, gone, random(10, 10))
	if _, err := s.Prune(t.Context(), gone, "test", time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return kept
}

func runCheck(t testing.TB, fs vfs.FS) (CheckReport, []Corruption) {
	t.Helper()
	var found []Corruption
	c, err := Check(t.Context(), "outputs", fs, func(f Corruption) { found = append(found, f) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, found
}

// readTree returns the files of a folder and its subfolders.
func readTree(t testing.TB, fs vfs.FS, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			for name, text := range readTree(t, fs, path) {
				found[name] = text
			}
			continue
		}
		f, err := fs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if found[path], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return found
}

// copyTree returns a file system with these files, one of them changed.
func copyTree(t testing.TB, whole map[string][]byte, name string, changed []byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	for path, text := range whole {
		if path == name {
			text = changed
		}
		if err := fs.MkdirAll(fs.PathDir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.Clone(text)); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return fs
}

func TestACheckOfWholeOutputsFindsNothing(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	kept := fillStore(t, fs)
	c, found := runCheck(t, fs)
	if len(found) > 0 || c.Outputs != len(kept) || c.Pruned != 1 || !c.Opened || !c.Closed {
		t.Errorf("Check = %+v, found %+v; want %d outputs, 1 pruned", c, found, len(kept))
	}
	nothing, err := Check(t.Context(), "nowhere", fs, func(f Corruption) { t.Errorf("found %+v where there is nothing", f) }, nil)
	if err != nil || nothing != (CheckReport{}) {
		t.Errorf("Check of no folder = %+v, %v", nothing, err)
	}
	s, err := Open("outputs", Config{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = Check(t.Context(), "outputs", fs, func(Corruption) {}, nil)
	wantErr(t, "Check of an open store", err, ErrInUse)
}

// After any flipped bit, Check reports damage, or all blobs read as they were stored.
func TestAFlippedBitIsReportedOrHarmless(t *testing.T) {
	t.Parallel()
	flips := repeats(2, 20) // Pebble takes half a second over each that is in a chunk
	if text := os.Getenv("LEDGER_TEST_BIT_FLIPS"); text != "" {
		flips, _ = strconv.Atoi(text)
		flips /= 10
	}
	fs := vfs.NewMem()
	kept := fillStore(t, fs)
	whole := readTree(t, fs, "outputs")
	if _, found := runCheck(t, copyTree(t, whole, "", nil)); len(found) > 0 {
		t.Fatalf("found %+v in a copy, want nothing", found)
	}
	names := []string{}
	for name, text := range whole {
		if len(text) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rng := rand.New(rand.NewPCG(1, 2))
	reported := 0
	for range flips {
		name := names[rng.IntN(len(names))]
		at, bit := rng.IntN(len(whole[name])), rng.IntN(8)
		changed := bytes.Clone(whole[name])
		changed[at] ^= 1 << bit
		clone := copyTree(t, whole, name, changed)
		_, found := runCheck(t, clone)
		if len(found) > 0 {
			reported++
		}
		if right := allReadable(t, clone, kept); !right && len(found) == 0 {
			t.Errorf("%s, byte %d, bit %d: outputs cannot be read, and the check finds nothing", name, at, bit)
		}
	}
	t.Logf("%d flips in %d files, %d reported", flips, len(names), reported)
}

// allReadable reports whether all blobs can be read. It fails the test if one reads as
// different bytes.
func allReadable(t *testing.T, fs vfs.FS, kept map[domain.Ref][]byte) bool {
	s, err := Open("outputs", Config{FS: fs})
	if err != nil {
		return false
	}
	defer s.Close()
	right := true
	for r, want := range kept {
		o, err := s.Open(t.Context(), r)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("open %v = %v, want %v", r, err, ErrDamaged)
			}
			right = false
			continue
		}
		got, err := io.ReadAll(o)
		if err != nil {
			right = false
		}
		if !bytes.HasPrefix(want, got) || err == nil && len(got) != len(want) {
			t.Errorf("%v reads as something else", r)
		}
	}
	return right
}

func TestACheckNamesTheOutputThatIsDamaged(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	kept := fillStore(t, fs)
	whole := readTree(t, fs, "outputs")
	for name, text := range whole {
		if !strings.HasSuffix(name, ".sst") || len(text) < (loggedChunks+3)*chunkSize/2 {
			continue
		}
		changed := bytes.Clone(text)
		changed[len(changed)/2] ^= 1
		_, found := runCheck(t, copyTree(t, whole, name, changed))
		if len(found) != 2 || found[0].File != fs.PathBase(name) || found[0].Offset == 0 ||
			kept[found[1].Ref] == nil || !strings.Contains(found[1].Detail, found[0].File) {
			t.Errorf("found %+v, want the block of %s and the output in it", found, name)
		}
		return
	}
	t.Fatal("no table is large enough")
}

// folderBytes returns the size of the WAL files and of the other files of a folder.
func folderBytes(t testing.TB, dir string) (logs, others int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
		case filepath.Ext(path) == ".log":
			logs += info.Size()
		default:
			others += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return logs, others
}

func TestPrunedSpaceIsGivenBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "outputs")
	s, err := Open(dir, Config{Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	ref, all := refs(1), []domain.Ref{}
	each := repeats(2<<20, 6<<20)
	for i := range 4 {
		r := ref()
		mustKeep(t, s, r, random(each, uint64(i)))
		all = append(all, r)
	}
	if logs, others := folderBytes(t, dir); logs+others < int64(4*each) {
		t.Fatalf("the folder has %d bytes, want the %d kept", logs+others, 4*each)
	}
	for _, r := range all[1:] {
		if _, err := s.Prune(t.Context(), r, "test", time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Compact(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	// Logs are kept to be used again: at most as many as there are memtables, and
	// one that is written.
	const mostLogs = 5 * (memTable + fillStep)
	if logs, others := folderBytes(t, dir); others > int64(each+each/4) || logs > mostLogs {
		t.Errorf("the folder has %d bytes and %d in logs, want little more than the %d that are left and at most %d in logs", others, logs, each, mostLogs)
	}
	s, err = Open(dir, Config{Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Verify(t.Context(), all[0]); err != nil {
		t.Error(err)
	}
	wantErr(t, "Verify of a pruned one", s.Verify(t.Context(), all[1]), ErrPruned)
}

func TestASnapshotHoldsWhatWasReferredTo(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openIn(t, fs)
	ref := refs(1)
	short, long := ref(), ref()
	mustKeep(t, s, short, random(100, 1))
	mustKeep(t, s, long, random((loggedChunks+2)*chunkSize, 2))
	pruned := make(chan error, 1)
	if err := fs.MkdirAll("copy", 0o755); err != nil {
		t.Fatal(err)
	}
	err := s.Snapshot(t.Context(), "copy/outputs", func() error {
		go func() { // waits for the snapshot
			_, err := s.Prune(context.WithoutCancel(t.Context()), long, "test", time.Unix(1, 0))
			pruned <- err
		}()
		for range 100 {
			runtime.Gosched()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-pruned; err != nil {
		t.Fatal(err)
	}
	again, err := Open("copy/outputs", Config{FS: fs, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, r := range []domain.Ref{short, long} {
		if err := again.Verify(t.Context(), r); err != nil {
			t.Errorf("in the snapshot: %v", err)
		}
	}
	wantErr(t, "Verify in the store", s.Verify(t.Context(), long), ErrPruned)
	reason := errors.New("enough")
	wantErr(t, "Snapshot", s.Snapshot(t.Context(), "copy/other", func() error { return reason }), reason)
}

// A failed snapshot does not stop the store.
func TestASnapshotThatFailsHarmsNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	mem := vfs.NewMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.Contains(op.Path, "copy/") && op.Kind == errorfs.OpCreate {
			return broken
		}
		return nil
	}))
	s := openIn(t, fs)
	ref := refs(1)
	mustKeep(t, s, ref(), random(100, 1))
	wantErr(t, "Snapshot", s.Snapshot(t.Context(), "copy/outputs", func() error { return nil }), broken)
	mustKeep(t, s, ref(), random((loggedChunks+2)*chunkSize, 2))
}
