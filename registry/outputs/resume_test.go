package outputs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
)

// notSync returns a filter of writes other than syncs. After a failed sync no store
// resumes.
func notSync(part string) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			return false
		}
		return strings.Contains(op.Path, part)
	}
}

// keepEventually repeats Keep until it succeeds, and checks that a failed Keep stored
// no byte.
func keepEventually(t *testing.T, s *Store, ref domain.Ref, content []byte) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := s.Keep(t.Context(), ref, "", bytes.NewReader(content))
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNotKept) || time.Now().After(deadline) {
			t.Fatalf("Keep in a store that is to go on: %v", err)
		}
		if _, err := s.Stat(t.Context(), ref); !errors.Is(err, ErrNotFound) {
			t.Fatalf("Stat of an output that was not kept: %v", err)
		}
	}
}

// A store resumes by itself after a full disk, any number of times: acknowledged blobs
// survive, also a power cut, and rejected ones can be stored again.
func TestStoreGoesOnAfterAFullDisk(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"", ".log", ".sst", "MANIFEST"} {
		t.Run("of "+part, func(t *testing.T) {
			t.Parallel()
			disk := vfs.NewCrashableMem()
			f := &fullDisk{left: 1 << 30, kind: notSync(part)}
			s, err := Open("outputs", Config{FS: errorfs.Wrap(disk, errorfs.InjectorFunc(f.inject)), memTable: smallMemTable})
			if err != nil {
				t.Fatal(err)
			}
			rng, next := rand.New(rand.NewPCG(5, uint64(len(part)))), refs(uint64(len(part)))
			kept, broke := map[domain.Ref]bool{}, 0
			for i := range repeats(2, 12) {
				f.set(rng.IntN(12))
				size := rng.IntN(groupChunks * chunkSize)
				if i%3 == 0 {
					size += loggedChunks * chunkSize
				}
				ref, content := next(), random(size, uint64(i))
				for range repeats(5, 8) { // until the disk is full
					_, err = s.Keep(t.Context(), ref, "", bytes.NewReader(content))
					if err != nil {
						break
					}
					kept[ref] = true
					ref = next()
				}
				if s.broken() != nil {
					broke++
				}
				f.set(1 << 30)
				keepEventually(t, s, ref, content)
				kept[ref] = true
				cut := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				survivor := openIn(t, cut)
				for ref := range kept {
					if err := errors.Join(s.Verify(t.Context(), ref), survivor.Verify(t.Context(), ref)); err != nil {
						t.Fatalf("round %d: Verify of what was kept: %v", i, err)
					}
				}
				if err := survivor.Close(); err != nil {
					t.Error(err)
				}
			}
			if part == ".log" && broke == 0 {
				t.Error("the store never broke")
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A slowReader calls meanwhile at its end, which breaks the store and lets it resume.
type slowReader struct {
	io.Reader
	meanwhile func()
}

func (s *slowReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF && s.meanwhile != nil {
		s.meanwhile()
		s.meanwhile = nil
	}
	return n, err
}

// A Keep fails if the store broke and resumed after its first chunks: they may be lost.
func TestOutputOfBeforeIsNotKept(t *testing.T) {
	t.Parallel()
	f := &fullDisk{left: 1 << 30, kind: notSync(".log")}
	s, err := Open("outputs", Config{FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(f.inject))})
	if err != nil {
		t.Fatal(err)
	}
	next := refs(3)
	ref, other, content := next(), next(), random(2*groupChunks*chunkSize, 1)
	r := &slowReader{bytes.NewReader(content), func() {
		f.set(0)
		for s.broken() == nil {
			_, _ = s.Keep(t.Context(), next(), "", bytes.NewReader(content)) // it fails, or the next does
		}
		f.set(1 << 30)
		keepEventually(t, s, other, content)
	}}
	if _, err := s.Keep(t.Context(), ref, "", r); !errors.Is(err, ErrNotKept) || !errors.Is(err, ErrBroken) {
		t.Errorf("Keep over a failure: %v, want that it is not kept", err)
	}
	keepEventually(t, s, ref, content)
	for _, ref := range []domain.Ref{ref, other} {
		if err := s.Verify(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A store does not resume after a failed sync, even if the disk was full before.
func TestStoreDoesNotGoOnAfterAFailedSync(t *testing.T) {
	t.Parallel()
	f := &fullDisk{left: 1 << 30, kind: func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSync }}
	s, err := Open("outputs", Config{FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(f.inject))})
	if err != nil {
		t.Fatal(err)
	}
	f.set(0)
	_, err = s.Keep(t.Context(), refs(1)(), "", strings.NewReader("x"))
	wantErr(t, "Keep with a sync that fails", err, ErrBroken)
	f.set(1 << 30)
	if !s.lost() {
		t.Error("the store may go on")
	}
	s.failStop.Pause(syscall.ENOSPC)
	s.goroutines.Wait()
	_, err = s.Keep(t.Context(), refs(2)(), "", strings.NewReader("x"))
	wantErr(t, "Keep afterwards", err, ErrBroken)
	if err := s.Close(); err != nil {
		t.Logf("Close: %v", err)
	}
}
