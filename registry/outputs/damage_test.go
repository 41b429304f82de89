package outputs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
)

func TestDamagedChunkIsNeverRead(t *testing.T) {
	t.Parallel()
	content := random(3*chunkSize+10, 1)
	flipped := func(db *pebble.DB, from, to []byte, change func([]byte) []byte) error {
		value, closer, err := db.Get(from)
		if err != nil {
			return err
		}
		value = change(bytes.Clone(value))
		return errors.Join(closer.Close(), db.Set(to, value, pebble.Sync))
	}
	same := func(p []byte) []byte { return p }
	damage := map[string]func(*pebble.DB, uint64) error{
		"flipped bit": func(db *pebble.DB, blob uint64) error {
			return flipped(db, chunkKey(blob, 1), chunkKey(blob, 1), func(p []byte) []byte { p[777] ^= 1; return p })
		},
		"flipped checksum": func(db *pebble.DB, blob uint64) error {
			return flipped(db, chunkKey(blob, 1), chunkKey(blob, 1), func(p []byte) []byte { p[0] ^= 1; return p })
		},
		"another's place": func(db *pebble.DB, blob uint64) error {
			return flipped(db, chunkKey(blob, 2), chunkKey(blob, 1), same)
		},
		"too short": func(db *pebble.DB, blob uint64) error {
			return flipped(db, chunkKey(blob, 1), chunkKey(blob, 1), func(p []byte) []byte { return p[:100] })
		},
		"empty": func(db *pebble.DB, blob uint64) error { return db.Set(chunkKey(blob, 1), nil, pebble.Sync) },
		"missing": func(db *pebble.DB, blob uint64) error {
			return db.Delete(chunkKey(blob, 1), pebble.Sync)
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openIn(t, vfs.NewMem())
			r := refs(1)()
			mustKeep(t, s, r, content)
			if err := s.write(func(db *pebble.DB) error { return do(db, 1) }); err != nil {
				t.Fatal(err)
			}
			o, err := s.Open(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			got, err := io.ReadAll(o)
			wantErr(t, "read", err, ErrDamaged)
			if want := fmt.Sprintf("read %v: at byte %d: ", r, chunkSize); !strings.Contains(err.Error(), want) {
				t.Errorf("read = %q, want it to say %q", err, want)
			}
			if !bytes.Equal(got, content[:chunkSize]) {
				t.Errorf("%d bytes were read before the damage, want the first %d", len(got), chunkSize)
			}
			n, err := o.ReadAt(make([]byte, 20), chunkSize-10)
			wantErr(t, "ReadAt", err, ErrDamaged)
			if n != 10 {
				t.Errorf("ReadAt = %d bytes, want the 10 before the damage", n)
			}
			wantErr(t, "Verify", s.Verify(t.Context(), r), ErrDamaged)
		})
	}
}

func TestDamagedHeadIsNeverBelieved(t *testing.T) {
	t.Parallel()
	r := refs(1)()
	h := blobHeader{retained: retainedOf(r, []byte("content")), state: unconfirmed, blob: 1, chunk: chunkSize}
	whole := h.encode()
	if got, err := decodeHeader(r, whole); err != nil || got != h {
		t.Fatalf("decodeHead = %+v, %v, want %+v", got, err, h)
	}
	for bit := range len(whole) * 8 {
		p := bytes.Clone(whole)
		p[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeHeader(r, p); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
			t.Errorf("decodeHead with bit %d flipped = %v, want an error", bit, err)
		}
	}
	for n := range len(whole) {
		if _, err := decodeHeader(r, whole[:n]); err == nil {
			t.Errorf("decodeHead of %d bytes = nil, want an error", n)
		}
	}
	if _, err := decodeHeader(refs(2)(), whole); !errors.Is(err, ErrDamaged) {
		t.Errorf("decodeHead of another's = %v, want %v", err, ErrDamaged)
	}
}

// Verify detects a header with a valid checksum and a wrong digest.
func TestVerifyComparesTheDigest(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	r := refs(1)()
	mustKeep(t, s, r, []byte("content"))
	lies := map[string]domain.Retained{"digest": retainedOf(r, []byte("CONTENT")), "lines": retainedOf(r, []byte("content"))}
	lie := lies["lines"]
	lie.Lines++
	lies["lines"] = lie
	for name, lie := range lies {
		h := blobHeader{retained: lie, state: unconfirmed, blob: 1, chunk: chunkSize}
		if err := s.write(func(db *pebble.DB) error { return db.Set(headerKey(r), h.encode(), pebble.Sync) }); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Verify of another "+name, s.Verify(t.Context(), r), ErrDamaged)
	}
}

func TestFlippedBitOnDiskIsNeverAWrongAnswer(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	ref := refs(1)
	contents := map[domain.Ref][]byte{}
	for range 2 { // the second opening flushes the WAL of the first
		s, err := Open("outputs", Config{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1000, 2 * chunkSize, 5 * chunkSize} {
			r := ref()
			// Flushed blocks are not compressed, and Pebble searches half a second for the
			// flipped bit of a chunk; so few flips are in chunks.
			contents[r] = bytes.Repeat(random(500, uint64(size)), size/500+1)[:size]
			mustKeep(t, s, r, contents[r])
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	found := 0
	for i := range repeats(3, 12) {
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		flip(t, clone, rng, i%3 != 0)
		s, err := Open("outputs", Config{FS: clone})
		if err != nil {
			found++
			continue
		}
		if wrong := wrongReads(t, s, contents, &found); wrong != nil {
			t.Error(wrong)
		}
		_ = s.Close()
	}
	if found == 0 {
		t.Error("no flipped bit was found")
	}
}

// flip flips a random bit of an sstable: of any, or of the smallest, which has headers.
func flip(t *testing.T, fs *vfs.MemFS, rng *rand.Rand, smallest bool) {
	t.Helper()
	names, err := fs.List("outputs")
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			tables = append(tables, fs.PathJoin("outputs", name))
		}
	}
	p, err := fs.UnsafeGetFileDataBuffer(tables[rng.IntN(len(tables))])
	for _, name := range tables {
		if q, failed := fs.UnsafeGetFileDataBuffer(name); smallest && failed == nil && len(q) < len(p) {
			p = q
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	p[rng.IntN(len(p))] ^= 1 << rng.IntN(8)
}

// wrongReads reads all blobs and returns an error if one is neither right nor reported
// as damaged.
func wrongReads(t *testing.T, s *Store, contents map[domain.Ref][]byte, found *int) error {
	for r, content := range contents {
		o, err := s.Open(t.Context(), r)
		if err == nil {
			var got []byte
			got, err = io.ReadAll(o)
			if !bytes.HasPrefix(content, got) || err == nil && len(got) != len(content) {
				return fmt.Errorf("%v reads %d wrong bytes of %d", r, len(got), len(content))
			}
			_ = o.Close()
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return fmt.Errorf("%v: %w, want %v", r, err, ErrDamaged)
		}
		if err != nil {
			*found++
		}
		if err != nil && !strings.Contains(err.Error(), r.String()) || err != nil && strings.Contains(err.Error(), ".sst") {
			return fmt.Errorf("%v: %q, want it to name the output and no file", r, err)
		}
	}
	return nil
}
