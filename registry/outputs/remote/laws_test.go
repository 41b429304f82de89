package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"pgregory.net/rapid"
)

const chunkSize = 64 << 10 // of a store

// A stored blob is read back with equal bytes and metadata.
func TestWhatIsKeptReadsBack(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, s *outputs.Store, _ *vfs.MemFS) {
		ref := refs(1)
		var want []domain.Retained
		sizes := []int{0, 1, chunkSize, pageSize, pageSize + 1}
		if long {
			sizes = append(sizes, pageSize-1, 2*pageSize+777)
		}
		for i, size := range sizes {
			r, content := ref(), random(size, byte(i))
			want = append(want, mustKeep(t, p, r, content))
			if !bytes.Equal(readAll(t, p, r), content) {
				t.Errorf("an output of %d bytes reads back as another", size)
			}
			if !bytes.Equal(readAll(t, Local(s), r), content) {
				t.Errorf("an output of %d bytes is kept as another", size)
			}
			if got, err := p.Stat(t.Context(), r); err != nil || got != retainedOf(r, content) {
				t.Errorf("Stat = %+v, %v, want %+v", got, err, retainedOf(r, content))
			}
			if err := p.Verify(t.Context(), r); err != nil {
				t.Errorf("Verify = %v, want nil", err)
			}
		}
		var got []domain.Retained
		for r, err := range p.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("All yields %v, want %v", got, want)
		}
	})
}

// short draws sizes of a few chunks.
var short = rapid.IntRange(0, 3*chunkSize)

// A blob of any size is read back with equal bytes, by any sequence of Read, Seek and
// ReadAt.
func TestAnySizeReadBackInAnyWay(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, _ *outputs.Store, _ *vfs.MemFS) {
		ref := refs(1)
		sizes := rapid.OneOf(rapid.IntRange(0, 2*pageSize+9), short, short, short, short, short)
		if long {
			sizes = rapid.IntRange(0, 2*pageSize+9)
		}
		rapid.Check(t, func(t *rapid.T) {
			content := random(sizes.Draw(t, "size"), rapid.Byte().Draw(t, "seed"))
			r := ref()
			if _, err := p.Keep(context.Background(), r, "", iotest.HalfReader(bytes.NewReader(content))); err != nil {
				t.Fatal(err)
			}
			o, err := p.Open(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			for range 6 {
				off := rapid.Int64Range(0, int64(len(content))+10).Draw(t, "offset")
				n := rapid.IntRange(0, pageSize+100).Draw(t, "length")
				sameReadAt(t, o, content, off, n)
				sameSeek(t, o, content, off, n)
			}
			if err := p.Drop(context.Background(), r.Settlement()); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func sameReadAt(t *rapid.T, o Reader, content []byte, off int64, n int) {
	got, want := make([]byte, n), make([]byte, n)
	gn, gerr := o.ReadAt(got, off)
	wn, werr := bytes.NewReader(content).ReadAt(want, off)
	if n == 0 {
		werr = nil // bytes.Reader returns io.EOF beyond the end also for an empty p
	}
	if gn != wn || gerr != werr || !bytes.Equal(got[:gn], want[:wn]) {
		t.Fatalf("ReadAt(%d bytes, %d) = %d, %v, want %d, %v", n, off, gn, gerr, wn, werr)
	}
}

func sameSeek(t *rapid.T, o Reader, content []byte, off int64, n int) {
	whence := rapid.SampledFrom([]int{io.SeekStart, io.SeekEnd}).Draw(t, "whence")
	to := off
	if whence == io.SeekEnd {
		to = off - int64(len(content))
	}
	if at, err := o.Seek(to, whence); err != nil || at != off {
		t.Fatalf("Seek(%d, %d) = %d, %v, want %d", to, whence, at, err, off)
	}
	got, err := io.ReadAll(io.LimitReader(o, int64(n)))
	want := content[min(int(off), len(content)):]
	want = want[:min(n, len(want))]
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes from %d: %d bytes, %v, want %d", n, off, len(got), err, len(want))
	}
}

// A reader returns an error for an invalid offset or whence.
func TestOutputSaysWhatItCannot(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, _ *outputs.Store, _ *vfs.MemFS) {
		r := refs(1)()
		mustKeep(t, p, r, []byte("abc"))
		o, err := p.Open(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Seek(-1, io.SeekStart); err == nil {
			t.Error("Seek(-1, 0) = nil, want an error")
		}
		if _, err := o.Seek(0, 3); err == nil {
			t.Error("Seek(0, 3) = nil, want an error")
		}
		if _, err := o.ReadAt(nil, -1); err == nil {
			t.Error("ReadAt(-1) = nil, want an error")
		}
		_ = o.Close()
		_, err = o.ReadAt(make([]byte, 1), 0)
		wantErr(t, "ReadAt after Close", err, outputs.ErrClosed)
		_, err = o.Read(make([]byte, 1))
		wantErr(t, "Read after Close", err, outputs.ErrClosed)
	})
}

// Keep returns ErrExists for a stored ref, and the blob stays unchanged.
func TestKeptIsNeverReplaced(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, _ *outputs.Store, _ *vfs.MemFS) {
		r := refs(1)()
		mustKeep(t, p, r, []byte("first"))
		for _, again := range []string{"first", "second"} {
			in := strings.NewReader(again)
			_, err := p.Keep(t.Context(), r, "", in)
			wantErr(t, "second Keep", err, outputs.ErrExists)
			if errors.Is(err, outputs.ErrNotKept) || in.Len() != len(again) {
				t.Errorf("second Keep = %v with %d of %d bytes read, want it not to read", err, len(again)-in.Len(), len(again))
			}
		}
		if got := readAll(t, p, r); string(got) != "first" {
			t.Errorf("it reads %q, want %q", got, "first")
		}
	})
}

// Keep stores no blob if its reader fails.
func TestFailingReaderKeepsNothing(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, s *outputs.Store, _ *vfs.MemFS) {
		ref := refs(1)
		for _, end := range []error{errors.New("pipe burst"), io.ErrUnexpectedEOF} {
			for _, size := range []int{0, 100, chunkSize, repeats(pageSize+1, 3*pageSize)} {
				r := ref()
				in := io.MultiReader(bytes.NewReader(random(size, 1)), iotest.ErrReader(end))
				_, err := p.Keep(t.Context(), r, "", in)
				wantErr(t, "Keep", err, outputs.ErrNotKept)
				wantErr(t, "Keep", err, end)
				checkNotKept(t, p, s, r)
			}
		}
		r := ref()
		_, err := p.Keep(t.Context(), r, "", stuckReader{})
		wantErr(t, "Keep of a reader that gives nothing", err, io.ErrNoProgress)
		checkNotKept(t, p, s, r)
	})
}

// checkNotKept fails the test unless a ref has no blob and can be stored. After an
// aborted request the node may still be storing for a moment.
func checkNotKept(t *testing.T, p fullStore, s *outputs.Store, ref domain.Ref) {
	t.Helper()
	wantNothing(t, s, ref)
	for {
		_, err := p.Keep(t.Context(), ref, mime, strings.NewReader("again"))
		if err == nil {
			break
		}
		wantErr(t, "Keep again", err, outputs.ErrExists)
		wantNothing(t, s, ref)
	}
	if got := readAll(t, p, ref); string(got) != "again" {
		t.Fatalf("it reads %q, want %q", got, "again")
	}
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

// A cancelReader cancels a context after so many bytes.
type cancelReader struct {
	left   int
	cancel func()
}

func (c *cancelReader) Read(p []byte) (int, error) {
	if c.left -= len(p); c.left <= 0 {
		c.cancel()
	}
	return len(p), nil
}

// Keep stores no blob if its context ends.
func TestInterruptedKeepKeepsNothing(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, s *outputs.Store, _ *vfs.MemFS) {
		ref := refs(1)
		for _, after := range []int{1, 3 * chunkSize, 2 * pageSize} {
			r := ref()
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err := p.Keep(ctx, r, "", &cancelReader{after, func() { cancel(domain.ByUser) }})
			wantErr(t, "Keep", err, outputs.ErrNotKept)
			wantErr(t, "Keep", err, domain.ErrInterrupted)
			checkNotKept(t, p, s, r)
		}
	})
}

// Calls for a missing blob return ErrNotFound. Keep returns ErrNotKept with the
// reason for an invalid ref, a media type that is too long, and a full disk.
func TestWhatIsNotThereSaysWhy(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, s *outputs.Store, fs *vfs.MemFS) {
		ref := refs(1)
		_, err := p.Open(t.Context(), ref())
		wantErr(t, "Open", err, outputs.ErrNotFound)
		_, err = p.Stat(t.Context(), ref())
		wantErr(t, "Stat", err, outputs.ErrNotFound)
		wantErr(t, "Verify", p.Verify(t.Context(), ref()), outputs.ErrNotFound)
		_, err = p.Prune(t.Context(), ref(), "x", time.Now())
		wantErr(t, "Prune", err, outputs.ErrNotFound)
		for _, r := range []domain.Ref{{}, domain.NewRef(ref().Settlement(), 0), domain.NewRef(ref().Settlement(), 9)} {
			_, err := p.Keep(t.Context(), r, "", strings.NewReader(""))
			wantErr(t, "Keep of no name", err, domain.ErrBadRef)
			wantErr(t, "Keep of no name", err, outputs.ErrNotKept)
		}
		_, err = p.Keep(t.Context(), ref(), strings.Repeat("x", 1<<16), strings.NewReader(""))
		wantErr(t, "Keep of a long media type", err, outputs.ErrNotKept)
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000})
		r := ref()
		_, err = p.Keep(t.Context(), r, "", bytes.NewReader(random(3*pageSize, 1)))
		wantErr(t, "Keep on a full disk", err, outputs.ErrNotKept)
		wantErr(t, "Keep on a full disk", err, syscall.ENOSPC)
		if !strings.Contains(err.Error(), "1000 bytes are free") {
			t.Errorf("Keep = %q, want it to say how much is free", err)
		}
		wantNothing(t, s, r)
	})
}

// Every call for a pruned blob returns a PrunedError with the metadata, the policy
// and the time.
func TestPrunedSaysSo(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, _ *outputs.Store, _ *vfs.MemFS) {
		r, content := refs(1)(), random(chunkSize+1, 1)
		retained := mustKeep(t, p, r, content)
		o, err := p.Open(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		at := time.Date(2026, 2, 1, 3, 4, 5, 678, time.UTC)
		const policy = "older than \"7 days\"\n&=é"
		if got, err := p.Prune(t.Context(), r, policy, at); err != nil || got != retained {
			t.Fatalf("Prune = %+v, %v, want %+v", got, err, retained)
		}
		want := outputs.PrunedError{Retained: retained, Policy: policy, At: at}
		_, err = p.Open(t.Context(), r)
		if got, ok := errors.AsType[*outputs.PrunedError](err); !ok || *got != want || !errors.Is(err, outputs.ErrPruned) {
			t.Errorf("Open = %v, want %+v", err, want)
		}
		if got, err := p.Stat(t.Context(), r); !errors.Is(err, outputs.ErrPruned) || got != retained {
			t.Errorf("Stat = %+v, %v, want %+v and that it was pruned", got, err, retained)
		}
		if got, err := p.Prune(t.Context(), r, policy, at); !errors.Is(err, outputs.ErrPruned) || got != retained {
			t.Errorf("second Prune = %+v, %v, want %+v and that it was pruned", got, err, retained)
		}
		_, err = o.Read(make([]byte, 1))
		wantErr(t, "Read of what was open", err, outputs.ErrPruned)
		_, err = p.Keep(t.Context(), r, "", strings.NewReader("x"))
		wantErr(t, "Keep", err, outputs.ErrExists)
	})
}

// A confirmed settlement is no longer unconfirmed, and a dropped one has no blobs.
func TestConfirmedAndDropped(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, _ *outputs.Store, _ *vfs.MemFS) {
		ref := refs(1)
		open := func() (ids []domain.EventID) {
			for id, err := range p.Unconfirmed(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			return ids
		}
		a, b := ref(), ref()
		mustKeep(t, p, a, []byte("a"))
		mustKeep(t, p, b, random(2*chunkSize, 1))
		if got, want := fmt.Sprint(open()), fmt.Sprint([]domain.EventID{a.Settlement(), b.Settlement()}); got != want {
			t.Errorf("Unconfirmed = %s, want %s", got, want)
		}
		if err := p.Confirm(t.Context(), a.Settlement()); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(open()), fmt.Sprint([]domain.EventID{b.Settlement()}); got != want {
			t.Errorf("Unconfirmed = %s, want %s", got, want)
		}
		o, err := p.Open(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		for range 2 {
			if err := p.Drop(t.Context(), b.Settlement()); err != nil {
				t.Fatal(err)
			}
		}
		_, err = o.Read(make([]byte, 1))
		wantErr(t, "Read of what was open", err, outputs.ErrNotFound)
		_, err = p.Stat(t.Context(), b)
		wantErr(t, "Stat", err, outputs.ErrNotFound)
		// A reader does not continue with another blob that was stored under its ref.
		mustKeep(t, p, b, random(2*chunkSize, 2))
		_, err = o.Read(make([]byte, 1))
		wantErr(t, "Read of what was open", err, outputs.ErrNotFound)
	})
}

// Of concurrent calls of Keep for one ref, one stores its blob, and the others return
// ErrExists.
func TestOneOfManyKeeps(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, _ *outputs.Store, _ *vfs.MemFS) {
		ref := refs(1)
		for _, size := range []int{10, 6 * chunkSize} {
			r := ref()
			var wins, winner atomic.Int32
			var group sync.WaitGroup
			for i := range 8 {
				group.Go(func() {
					_, err := p.Keep(t.Context(), r, mime, bytes.NewReader(random(size, byte(i))))
					switch {
					case err == nil:
						wins.Add(1)
						winner.Store(int32(i))
					case !errors.Is(err, outputs.ErrExists):
						t.Errorf("Keep = %v, want nil or %v", err, outputs.ErrExists)
					}
				})
			}
			group.Wait()
			if wins.Load() != 1 {
				t.Fatalf("%d of 8 Keeps of one ref succeeded, want 1", wins.Load())
			}
			if !bytes.Equal(readAll(t, p, r), random(size, byte(winner.Load()))) {
				t.Error("what is kept is not the winner's")
			}
		}
	})
}

// Calls to a closed store return ErrClosed, also through a client.
func TestClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, p fullStore, s *outputs.Store, _ *vfs.MemFS) {
		r := refs(1)()
		mustKeep(t, p, r, []byte("kept"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := p.Stat(t.Context(), r)
		wantErr(t, "Stat", err, outputs.ErrClosed)
		for _, err := range p.All(t.Context()) {
			wantErr(t, "All", err, outputs.ErrClosed)
		}
	})
}

// No read returns bytes of a damaged chunk.
func TestDamagedChunkIsNeverRead(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := storeIn(t, fs)
	content := random(5*chunkSize+10, 1)
	r := refs(1)()
	mustKeep(t, Local(s), r, content)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage(t, fs)
	s = storeIn(t, fs)
	for name, p := range map[string]BlobStore{"here": Local(s), "HTTP": clientOf(t, serve(t, Serve(s, ServerConfig{})), Config{})} {
		o, err := p.Open(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		got, err := io.ReadAll(o)
		wantErr(t, name+": read", err, outputs.ErrDamaged)
		if want := fmt.Sprintf("at byte %d: ", 2*chunkSize); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: read = %q, want it to say %q", name, err, want)
		}
		if !bytes.Equal(got, content[:2*chunkSize]) {
			t.Errorf("%s: %d bytes were read before the damage, want the first %d", name, len(got), 2*chunkSize)
		}
		n, err := o.ReadAt(make([]byte, 20), 2*chunkSize-10)
		wantErr(t, name+": ReadAt", err, outputs.ErrDamaged)
		if n != 10 {
			t.Errorf("%s: ReadAt = %d bytes, want the 10 before the damage", name, n)
		}
		wantErr(t, name+": Verify", p.Verify(t.Context(), r), outputs.ErrDamaged)
	}
}

// damage flips a bit in the third chunk of the first blob.
func damage(t *testing.T, fs *vfs.MemFS) {
	t.Helper()
	_ = fs.Remove(fs.PathJoin("outputs", "seal")) // as after a kill
	db, err := pebble.Open("outputs", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatValueSeparation})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte{'b', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2}
	value, closer, err := db.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	value = bytes.Clone(value)
	value[777] ^= 1
	if err := errors.Join(closer.Close(), db.Set(key, value, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}
