package outputs

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// filesOf returns the content of each file in a folder.
func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A read-only store changes no file, and a later writer does not change its view.
func TestReaderKeepsItsMomentBesideAWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	closing := func(s *Store) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w, next := open(), refs(1)
	kept := map[domain.Ref][]byte{}
	for i, n := range []int{0, 10, 300_000, 3 << 20} {
		ref := next()
		kept[ref] = random(n, uint64(i))
		mustKeep(t, w, ref, kept[ref])
	}
	if _, err := OpenReader(t.Context(), dir, Config{}); !errors.Is(err, ErrInUse) {
		t.Errorf("OpenReader beside a writer = %v, want %v", err, ErrInUse)
	}
	closing(w)
	before := filesOf(t, dir)
	r, err := OpenReader(t.Context(), dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(r)
	if after := filesOf(t, dir); !maps.Equal(after, before) {
		t.Errorf("a reader changed the files: %d there, %d before", len(after), len(before))
	}
	if _, err := r.Keep(t.Context(), next(), "text/plain", bytes.NewReader(nil)); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Keep of a reader = %v, want %v", err, ErrReadOnly)
	}
	w = open()
	for ref := range kept {
		if err := w.Drop(t.Context(), ref.Settlement()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	closing(w)
	for ref, want := range kept {
		if got := readAll(t, r, ref); !bytes.Equal(got, want) {
			t.Errorf("%v reads as %d bytes beside a writer, want %d", ref, len(got), len(want))
		}
	}
}

// A missing folder and one without a database are empty stores.
func TestReaderOfNoOutputsFindsNone(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		r, err := OpenReader(t.Context(), dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Stat(t.Context(), refs(1)()); !errors.Is(err, ErrNotFound) {
			t.Errorf("Stat = %v, want %v", err, ErrNotFound)
		}
		if _, err := r.Keep(t.Context(), refs(1)(), "text/plain", bytes.NewReader(nil)); !errors.Is(err, ErrReadOnly) {
			t.Errorf("Keep of an empty reader = %v, want %v", err, ErrReadOnly)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if found, _ := os.ReadDir(dir); len(found) > 0 {
			t.Errorf("a reader made %v", found)
		}
	}
}
