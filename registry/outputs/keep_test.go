package outputs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/domain"
	"pgregory.net/rapid"
)

func retainedOf(ref domain.Ref, content []byte) domain.Retained {
	sum := sha256.Sum256(content)
	return domain.Retained{
		Ref: ref, Bytes: int64(len(content)), Lines: int64(1 + bytes.Count(content, []byte("\n"))),
		MIME: "text/plain", SHA256: hex.EncodeToString(sum[:]),
	}
}

func TestWhatIsKeptReadsBack(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	ref := refs(1)
	sizes := []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, groupChunks * chunkSize, groupChunks*chunkSize + 1, loggedChunks * chunkSize, loggedChunks*chunkSize + 1, 7*chunkSize - 1, 8 * chunkSize}
	for i, size := range sizes {
		r, content := ref(), random(size, uint64(i))
		if got, want := mustKeep(t, s, r, content), retainedOf(r, content); got != want {
			t.Errorf("Keep of %d bytes = %+v, want %+v", size, got, want)
		}
		if !bytes.Equal(readAll(t, s, r), content) {
			t.Errorf("an output of %d bytes reads back as another", size)
		}
		if got, err := s.Stat(t.Context(), r); err != nil || got != retainedOf(r, content) {
			t.Errorf("Stat = %+v, %v, want %+v", got, err, retainedOf(r, content))
		}
		if err := s.Verify(t.Context(), r); err != nil {
			t.Errorf("Verify = %v, want nil", err)
		}
	}
	if left := incomingFiles(t, s); len(left) != 0 {
		t.Errorf("files left of bodies = %v, want none", left)
	}
}

func TestAnySizeReadBackInAnyWay(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	ref := refs(1)
	rapid.Check(t, func(t *rapid.T) {
		content := random(rapid.IntRange(0, 6*chunkSize).Draw(t, "size"), rapid.Uint64().Draw(t, "seed"))
		r := ref()
		if _, err := s.Keep(context.Background(), r, "", iotest.HalfReader(bytes.NewReader(content))); err != nil {
			t.Fatal(err)
		}
		o, err := s.Open(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		for range 8 {
			off := rapid.Int64Range(0, int64(len(content))+10).Draw(t, "offset")
			n := rapid.IntRange(0, 3*chunkSize).Draw(t, "length")
			sameReadAt(t, o, content, off, n)
			sameSeek(t, o, content, off, n)
		}
		if err := s.Drop(context.Background(), r.Settlement()); err != nil {
			t.Fatal(err)
		}
	})
}

func sameReadAt(t *rapid.T, o *BlobReader, content []byte, off int64, n int) {
	got, want := make([]byte, n), make([]byte, n)
	gn, gerr := o.ReadAt(got, off)
	wn, werr := bytes.NewReader(content).ReadAt(want, off)
	if n == 0 {
		werr = nil // bytes.Reader returns io.EOF beyond the end even for 0 bytes
	}
	if gn != wn || gerr != werr || !bytes.Equal(got[:gn], want[:wn]) {
		t.Fatalf("ReadAt(%d bytes, %d) = %d, %v, want %d, %v", n, off, gn, gerr, wn, werr)
	}
}

func sameSeek(t *rapid.T, o *BlobReader, content []byte, off int64, n int) {
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

func TestSeekBeforeTheBeginningIsRefused(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	r := refs(1)()
	mustKeep(t, s, r, []byte("abc"))
	o, err := s.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
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
	wantErr(t, "ReadAt after Close", err, ErrClosed)
	_, err = o.Read(make([]byte, 1))
	wantErr(t, "Read after Close", err, ErrClosed)
}

// A memoryGauge samples the memory in use while it is read or written.
type memoryGauge struct {
	left   int64
	next   *rand.ChaCha8
	peak   uint64 // bytes of the heap
	system uint64 // bytes that the process has from the system
	seen   int64
}

func (g *memoryGauge) sample() {
	if g.seen++; g.seen%64 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		g.peak = max(g.peak, m.HeapAlloc)
		g.system = max(g.system, m.Sys-m.HeapReleased)
	}
}

func (g *memoryGauge) Read(p []byte) (int, error) {
	if g.left == 0 {
		return 0, io.EOF
	}
	g.sample()
	p = p[:min(int64(len(p)), g.left)]
	g.left -= int64(len(p))
	return g.next.Read(p)
}

func (g *memoryGauge) Write(p []byte) (int, error) {
	g.sample()
	return len(p), nil
}

// It is not parallel: the memory of other tests would count.
func TestMemoryDoesNotDependOnSize(t *testing.T) {
	const bound, mostGrowth = 96 << 20, 64 << 20
	size := int64(repeats(100<<20, 256<<20)) // more than the bound
	s, err := Open(t.TempDir(), Config{Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	in := &memoryGauge{left: size, next: rand.NewChaCha8([32]byte{})}
	r := refs(1)()
	got, err := s.Keep(t.Context(), r, "application/octet-stream", in)
	if err != nil || got.Bytes != size {
		t.Fatalf("Keep = %d bytes, %v, want %d", got.Bytes, err, size)
	}
	o, err := s.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	out, sum := &memoryGauge{}, sha256.New()
	if n, err := io.Copy(io.MultiWriter(out, sum), o); err != nil || n != size {
		t.Fatalf("read %d bytes, %v, want %d", n, err, size)
	}
	if hex.EncodeToString(sum.Sum(nil)) != got.SHA256 {
		t.Error("what is read has another digest than what was kept")
	}
	if in.peak == 0 || out.peak == 0 || max(in.peak, out.peak) > bound {
		t.Errorf("heap in use = %d MiB in, %d MiB out, want under %d and sampled", in.peak>>20, out.peak>>20, bound>>20)
	}
	if grown := int64(in.system) - int64(before.Sys-before.HeapReleased); grown > mostGrowth {
		t.Errorf("keeping %d MiB took %d MiB of memory more, want at most %d", size>>20, grown>>20, mostGrowth>>20)
	}
}

func TestOneOfManyKeeps(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	ref := refs(1)
	for _, size := range []int{10, 6 * chunkSize} {
		r := ref()
		var wins atomic.Int32
		var won atomic.Uint64
		var group sync.WaitGroup
		for i := range uint64(8) {
			group.Go(func() {
				_, err := s.Keep(t.Context(), r, "", bytes.NewReader(random(size, i)))
				switch {
				case err == nil:
					wins.Add(1)
					won.Store(i)
				case !errors.Is(err, ErrExists):
					t.Errorf("Keep = %v, want nil or %v", err, ErrExists)
				}
			})
		}
		group.Wait()
		if wins.Load() != 1 {
			t.Fatalf("%d of 8 Keeps of one ref succeeded, want 1", wins.Load())
		}
		if !bytes.Equal(readAll(t, s, r), random(size, won.Load())) {
			t.Error("what is kept is not the winner's")
		}
	}
	if got := blobCount(t, s); got != 2 {
		t.Errorf("bodies = %d, want those of the 2 winners", got)
	}
}

func TestManyKeepAtOnce(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	mint := refs(1)
	all := map[domain.Ref][]byte{}
	var group sync.WaitGroup
	for i := range uint64(32) {
		r, content := mint(), random(int(i%7)*repeats(50_000, 200_000)+int(i%16/15)*(loggedChunks+1)*chunkSize, i)
		all[r] = content
		group.Go(func() {
			if _, err := s.Keep(t.Context(), r, "text/plain", bytes.NewReader(content)); err != nil {
				t.Errorf("Keep = %v, want nil", err)
			}
		})
	}
	group.Wait()
	n := 0
	for got, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if want := retainedOf(got.Ref, all[got.Ref]); got != want {
			t.Errorf("All yields %+v, want %+v", got, want)
		}
		if !bytes.Equal(readAll(t, s, got.Ref), all[got.Ref]) {
			t.Errorf("%v reads back as another", got.Ref)
		}
		n++
	}
	if n != len(all) {
		t.Errorf("All yields %d, want %d", n, len(all))
	}
}

// No read returns a blob in the database whose sync has not returned: a power cut may
// still lose it.
func TestAnOutputThatIsNotAcknowledgedIsNotSeen(t *testing.T) {
	t.Parallel()
	syncing, goOn := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	s := openIn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
		if sync && strings.HasSuffix(op.Path, ".log") && armed.Swap(false) {
			close(syncing)
			<-goOn
		}
		return nil
	})))
	ref := refs(1)
	first, second := ref(), ref()
	mustKeep(t, s, first, []byte("acknowledged"))
	armed.Store(true)
	kept := make(chan error, 1)
	go func() {
		_, err := s.Keep(t.Context(), second, "text/plain", strings.NewReader("not acknowledged"))
		kept <- err
	}()
	<-syncing
	if err := s.read(func(db *pebble.DB) error {
		_, closer, err := db.Get(headerKey(second))
		if err == nil {
			err = closer.Close()
		}
		return err
	}); err != nil {
		t.Errorf("the output is not in the database while its sync waits: %v", err)
	}
	for r, err := range s.All(t.Context()) {
		if err != nil || r.Ref != first {
			t.Errorf("All yields %v, %v; want %v alone", r.Ref, err, first)
		}
	}
	for id, err := range s.Unconfirmed(t.Context()) {
		if err != nil || id != first.Settlement() {
			t.Errorf("Unconfirmed yields %v, %v; want %v alone", id, err, first.Settlement())
		}
	}
	if _, err := s.Stat(t.Context(), second); !errors.Is(err, ErrNotFound) {
		t.Errorf("Stat = %v, want %v", err, ErrNotFound)
	}
	if _, err := s.Open(t.Context(), second); !errors.Is(err, ErrNotFound) {
		t.Errorf("Open = %v, want %v", err, ErrNotFound)
	}
	close(goOn)
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, s, second); string(got) != "not acknowledged" {
		t.Errorf("read %q after Keep returned", got)
	}
}

func TestKeptIsNeverReplaced(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	r := refs(1)()
	mustKeep(t, s, r, []byte("first"))
	_, err := s.Keep(t.Context(), r, "", iotest.ErrReader(errors.New("was read")))
	wantErr(t, "second Keep", err, ErrExists)
	if errors.Is(err, ErrNotKept) || strings.Contains(err.Error(), "was read") {
		t.Errorf("second Keep = %v, want it not to read", err)
	}
	if got := readAll(t, s, r); string(got) != "first" {
		t.Errorf("it reads %q, want %q", got, "first")
	}
}

func TestFailingReaderKeepsNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("pipe burst")
	for name, end := range map[string]error{"an error": broken, "cut short": io.ErrUnexpectedEOF} {
		for _, size := range []int{0, 100, chunkSize, 5 * chunkSize, 9*chunkSize + 1} {
			t.Run(fmt.Sprint(name, " after ", size), func(t *testing.T) {
				t.Parallel()
				s := openIn(t, vfs.NewMem())
				r := refs(1)()
				in := io.MultiReader(bytes.NewReader(random(size, 1)), iotest.ErrReader(end))
				_, err := s.Keep(t.Context(), r, "", in)
				wantErr(t, "Keep", err, ErrNotKept)
				wantErr(t, "Keep", err, end)
				wantNothing(t, s, r)
				mustKeep(t, s, r, []byte("again"))
			})
		}
	}
}

func wantNothing(t *testing.T, s *Store, r domain.Ref) {
	t.Helper()
	_, err := s.Stat(t.Context(), r)
	wantErr(t, "Stat", err, ErrNotFound)
	_, err = s.Open(t.Context(), r)
	wantErr(t, "Open", err, ErrNotFound)
	if n, left := blobCount(t, s), incomingFiles(t, s); n != 0 || len(left) != 0 {
		t.Errorf("%d bodies and files %v stay, want none", n, left)
	}
}

func TestReaderThatGivesNothingIsBroken(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	r := refs(1)()
	_, err := s.Keep(t.Context(), r, "", stuckReader{})
	wantErr(t, "Keep", err, io.ErrNoProgress)
	wantNothing(t, s, r)
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

func TestInterruptedKeepKeepsNothing(t *testing.T) {
	t.Parallel()
	for _, after := range []int{1, 3 * chunkSize, 20 * chunkSize} {
		s := openIn(t, vfs.NewMem())
		r := refs(1)()
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := s.Keep(ctx, r, "", &cancelReader{after, func() { cancel(domain.ByUser) }})
		wantErr(t, "Keep", err, ErrNotKept)
		wantErr(t, "Keep", err, domain.ErrInterrupted)
		wantNothing(t, s, r)
	}
}

func TestKeepRefusesWhatNamesNothing(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	for _, r := range []domain.Ref{{}, domain.NewRef(refs(1)().Settlement(), 0), domain.NewRef(refs(1)().Settlement(), 9)} {
		_, err := s.Keep(t.Context(), r, "", bytes.NewReader(nil))
		wantErr(t, "Keep", err, domain.ErrBadRef)
	}
	_, err := s.Keep(t.Context(), refs(1)(), strings.Repeat("x", 1<<16), bytes.NewReader(nil))
	wantErr(t, "Keep", err, ErrNotKept)
}

// Scenario 64.
func TestFullDiskFailsTheKeepAndSaysSo(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openIn(t, fs)
	r := refs(1)()
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000})
	_, err := s.Keep(t.Context(), r, "", bytes.NewReader(random(100, 1)))
	wantErr(t, "Keep", err, ErrNotKept)
	wantErr(t, "Keep", err, syscall.ENOSPC)
	if want := "keep " + r.String() + ": output not kept: no space left on device: 1000 bytes are free"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Keep = %q, want it to begin %q", err, want)
	}
	wantNothing(t, s, r)
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40})
	mustKeep(t, s, r, random(100, 1))
}
