package outputs

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
	"github.com/settlement-ledger/ledger/events/pebblefiles/filestest"
)

// killed returns the disk of a store whose process was killed, and the acknowledged
// blobs.
func killed(t *testing.T) (*vfs.MemFS, map[domain.Ref][]byte) {
	t.Helper()
	storage := vfs.NewCrashableMem()
	s, err := Open("outputs", Config{FS: storage})
	if err != nil {
		t.Fatal(err)
	}
	ref, contents := refs(1), map[domain.Ref][]byte{}
	for i := range repeats(16, 40) {
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

// crash returns the disk after the process is killed.
func crash(storage *vfs.MemFS) *vfs.MemFS {
	return storage.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// After a kill and a flipped bit, the store reports damage or reads every acknowledged
// blob as it was stored. Half of the bits are flipped in WAL files, the others in all
// other kinds of files.
func TestFlippedBitInAKilledStoreIsNoSilentLoss(t *testing.T) {
	t.Parallel()
	died, contents := killed(t)
	names, err := died.List("outputs")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	whole, kinds := map[string][]byte{}, map[string][]string{} // names of files
	for _, name := range names {
		info, err := died.Stat("outputs/" + name)
		if err != nil || info.IsDir() || info.Size() == 0 {
			continue
		}
		p, err := died.UnsafeGetFileDataBuffer("outputs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		whole[name] = bytes.Clone(p)
		kind, _, _ := strings.Cut(filestest.Describe(name, p, 0), ",")
		kinds[kind] = append(kinds[kind], name)
	}
	order := slices.Sorted(maps.Keys(kinds))
	rng, table := rand.New(rand.NewPCG(1, 2)), map[string][2]int{} // by place: reported, without effect
	for i := range repeats(8, 500) {
		of := kinds[order[i/2%len(order)]]
		if i%2 == 0 {
			of = kinds[string(pebblefiles.Log)]
		}
		name := of[rng.IntN(len(of))]
		at, bit := rng.IntN(len(whole[name])), rng.IntN(8)
		if i%4 == 0 { // where the headers of small records are
			at = rng.IntN(min(len(whole[name]), 64<<10))
		}
		clone := crash(died)
		p, err := clone.UnsafeGetFileDataBuffer("outputs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		p[at] ^= 1 << bit
		place := filestest.Describe(name, whole[name], at) + " (" + name + ")"
		row := table[place]
		reported, lost := afterKill(t, clone, contents)
		switch {
		case reported:
			row[0]++
		case lost > 0:
			t.Errorf("%s, byte %d, bit %d (%s): %d outputs of %d are lost, and nothing was said", name, at, bit, place, lost, len(contents))
		default:
			row[1]++
		}
		table[place] = row
	}
	for _, place := range slices.Sorted(maps.Keys(table)) {
		t.Logf("%-60s %4d reported, %4d without effect", place, table[place][0], table[place][1])
	}
}

// afterKill opens a store and returns whether it reported damage, and the number of
// lost blobs.
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

// The store never reuses the number of a pruned blob, however often the process is
// killed after an orderly close.
func TestNumbersOfPrunedBodiesAreNotGivenOutAgain(t *testing.T) {
	t.Parallel()
	storage := vfs.NewCrashableMem()
	s, err := Open("outputs", Config{FS: storage})
	if err != nil {
		t.Fatal(err)
	}
	ref := refs(1)
	for range 3 {
		r := ref()
		mustKeep(t, s, r, []byte("content"))
		if err := s.Confirm(t.Context(), r.Settlement()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(t.Context(), r, "age", time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
	}
	want := s.nextBlob()
	if err := errors.Join(s.Compact(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s, err := Open("outputs", Config{FS: storage})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.nextBlob(); got != want {
			t.Errorf("the next body has number %d, want %d", got, want)
		}
		storage = crash(storage)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
