package outputs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
)

// refs returns a function that makes references in increasing order.
func refs(seed uint64) func() domain.Ref {
	mint := domain.NewMint(func() time.Time { return time.UnixMilli(1_800_000_000_000) }, rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}))
	return func() domain.Ref { return domain.NewRef(mint.Event(), domain.TextChannel) }
}

// random returns n bytes that no codec compresses, with line ends.
func random(n int, seed uint64) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(p)
	return p
}

func openIn(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open("outputs", Config{FS: fs})
	if err != nil {
		t.Fatalf("Open = %v, want nil", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	return s
}

func mustKeep(t testing.TB, s *Store, ref domain.Ref, content []byte) domain.Retained {
	t.Helper()
	r, err := s.Keep(t.Context(), ref, "text/plain", bytes.NewReader(content))
	if err != nil {
		t.Fatalf("Keep(%v, %d bytes) = %v, want nil", ref, len(content), err)
	}
	return r
}

func readAll(t testing.TB, s *Store, ref domain.Ref) []byte {
	t.Helper()
	o, err := s.Open(t.Context(), ref)
	if err != nil {
		t.Fatalf("Open(%v) = %v, want nil", ref, err)
	}
	defer o.Close()
	p, err := io.ReadAll(o)
	if err != nil {
		t.Fatalf("read %v: %v, want all of it", ref, err)
	}
	return p
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v, want %v", what, err, want)
	}
}

// blobCount returns the number of blobs with chunks in the database, with or without
// a header.
func blobCount(t testing.TB, s *Store) int {
	t.Helper()
	seen := map[string]bool{}
	err := s.read(func(db *pebble.DB) error {
		iter, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{chunkKind}, UpperBound: []byte{chunkKind + 1}})
		if err != nil {
			return err
		}
		defer iter.Close()
		for iter.First(); iter.Valid(); iter.Next() {
			seen[string(iter.Key()[:9])] = true
		}
		return iter.Error()
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(seen)
}

func incomingFiles(t testing.TB, s *Store) []string {
	t.Helper()
	names, err := s.fs.List(s.incoming())
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSecondOpenIsInUse(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]Config{"disk": {}, "memory": {FS: vfs.NewMem()}} {
		dir := t.TempDir()
		s, err := Open(dir, where)
		if err != nil {
			t.Fatalf("%s: Open = %v, want nil", name, err)
		}
		_, err = Open(dir, where)
		wantErr(t, name+": second Open", err, ErrInUse)
		if err := s.Close(); err != nil {
			t.Fatalf("%s: Close = %v, want nil", name, err)
		}
		s, err = Open(dir, where)
		if err != nil {
			t.Fatalf("%s: Open after Close = %v, want nil", name, err)
		}
		_ = s.Close()
	}
}

// A folder that is open cannot be opened a second time through another name.
func TestSecondOpenByAnotherNameIsInUse(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, link := filepath.Join(root, "outputs"), filepath.Join(root, "link")
	s, err := Open(dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := refs(1)()
	mustKeep(t, s, r, []byte("content"))
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	_, err = Open(link, Config{})
	wantErr(t, "Open through a symbolic link", err, ErrInUse)
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, Config{})
	wantErr(t, "Open without its lock file", err, ErrInUse)
	if got := readAll(t, s, r); string(got) != "content" {
		t.Errorf("read %q after a second Open", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(link, Config{})
	if err != nil {
		t.Fatalf("Open after Close = %v", err)
	}
	if got := readAll(t, s, r); string(got) != "content" {
		t.Errorf("read %q through the link", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStoreOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := openIn(t, fs)
	if err := s.write(func(db *pebble.DB) error { return db.Set(formatKey, []byte{2}, pebble.Sync) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open("outputs", Config{FS: fs})
	wantErr(t, "Open", err, ErrFormat)
}

// A store whose files a newer Pebble wrote does not open, and stays unchanged.
func TestOutputsOfANewerVersionAreRefused(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	if err := openIn(t, storage).Close(); err != nil {
		t.Fatal(err)
	}
	file, err := storage.Create("outputs/marker.format-version.000099.025", vfs.WriteCategoryUnspecified)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open("outputs", Config{FS: storage})
	wantErr(t, "Open of a newer version", err, ErrFormat)
	_, err = OpenReader(t.Context(), "outputs", Config{FS: storage})
	wantErr(t, "OpenReader of a newer version", err, ErrFormat)
}

func TestClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	s := openIn(t, vfs.NewMem())
	ref := refs(1)()
	mustKeep(t, s, ref, []byte("kept"))
	o, err := s.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close = %v, want nil", err)
	}
	_, err = o.Read(make([]byte, 1))
	wantErr(t, "Read", err, ErrClosed)
	_, err = s.Stat(t.Context(), ref)
	wantErr(t, "Stat", err, ErrClosed)
	_, err = s.Keep(t.Context(), refs(2)(), "", bytes.NewReader(nil))
	wantErr(t, "Keep", err, ErrClosed)
	wantErr(t, "Confirm", s.Confirm(t.Context(), ref.Settlement()), ErrClosed)
	for _, err := range s.All(t.Context()) {
		wantErr(t, "All", err, ErrClosed)
	}
}
