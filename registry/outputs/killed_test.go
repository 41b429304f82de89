package outputs

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/embedded/files"
)

// killed returns the file system of a store whose process was killed, with the
// outputs that it had acknowledged.
func killed(t *testing.T) (*vfs.MemFS, map[domain.Ref][]byte) {
	t.Helper()
	storage := vfs.NewCrashableMem()
	s, err := Open("outputs", Config{FS: storage})
	if err != nil {
		t.Fatal(err)
	}
	ref, contents := refs(1), map[domain.Ref][]byte{}
	for i := range 40 {
		r, size := ref(), []int{0, 1000, 3000, chunkSize + 7, 5 * chunkSize, 20 * chunkSize}[max(0, i%12-6)]
		contents[r] = random(size, uint64(i))
		mustKeep(t, s, r, contents[r])
		if i == 10 {
			if err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	died := crash(storage)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return died, contents
}

// crash returns the file system as a process leaves it that is killed.
func crash(storage *vfs.MemFS) *vfs.MemFS {
	return storage.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// A bit that flipped in a log or a manifest of a store whose process was killed
// is reported, or every acknowledged output reads as it was kept.
func TestFlippedBitInAKilledStoreIsNoSilentLoss(t *testing.T) {
	t.Parallel()
	died, contents := killed(t)
	names, err := died.List("outputs")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return files.KindOf(name) != files.Log && files.KindOf(name) != files.Manifest
	})
	slices.Sort(names)
	rng, table := rand.New(rand.NewPCG(1, 2)), map[files.Kind][2]int{}
	for i := range repeats(8, 500) {
		name := names[i%len(names)]
		clone := crash(died)
		p, err := clone.UnsafeGetFileDataBuffer("outputs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		at, bit := rng.IntN(len(p)), rng.IntN(8)
		if i%4 == 0 { // where the headers of small records are
			at = rng.IntN(min(len(p), 64<<10))
		}
		p[at] ^= 1 << bit
		row := table[files.KindOf(name)]
		reported, lost := afterKill(t, clone, contents)
		switch {
		case reported:
			row[0]++
		case lost > 0:
			t.Errorf("%s, byte %d, bit %d: %d outputs of %d are lost, and nothing was said", name, at, bit, lost, len(contents))
		default:
			row[1]++
		}
		table[files.KindOf(name)] = row
	}
	for kind, row := range table {
		t.Logf("%-10s %4d reported, %4d without effect", kind, row[0], row[1])
	}
}

// afterKill opens a store, and says whether damage was reported and how many
// outputs are not there.
func afterKill(t *testing.T, storage vfs.FS, contents map[domain.Ref][]byte) (reported bool, lost int) {
	t.Helper()
	var said bytes.Buffer
	s, err := Open("outputs", Config{FS: storage, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		wantErr(t, "Open", err, ErrFiles)
		return true, 0
	}
	defer func() { _ = s.Close() }()
	for r, content := range contents {
		o, err := s.Open(t.Context(), r)
		if errors.Is(err, ErrNotFound) {
			lost++
			continue
		}
		var got []byte
		if err == nil {
			got, err = io.ReadAll(o)
			_ = o.Close()
		}
		if errors.Is(err, ErrDamaged) {
			return true, 0
		}
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%v reads %d wrong bytes, %v", r, len(got), err)
		}
	}
	return said.Len() > 0, lost
}
