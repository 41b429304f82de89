package outputs

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A new or recycled WAL file is filled ahead of the next records, and reads as the
// written records.
func TestALogIsFilledAhead(t *testing.T) {
	mem := vfs.NewMem()
	g := newFilledWALs(mem)
	write := func(f vfs.File, err error, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if err == nil {
				_, err = f.Write([]byte(part))
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(name, begin string, size int) {
		t.Helper()
		f, err := mem.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil || len(b) != size || !strings.HasPrefix(string(b), begin) || strings.Trim(string(b[len(begin):]), "\x00") != "" {
			t.Errorf("%s has %d bytes, %v, want %d, of which the first are those that were written and the rest zero", name, len(b), err, size)
		}
	}
	f, err := g.Create("1.log", vfs.WriteCategoryUnspecified)
	write(f, err, "one", "two")
	holds("1.log", "onetwo", fillStep)
	long := strings.Repeat("x", fillStep)
	f, err = g.ReuseForWrite("1.log", "2.log", vfs.WriteCategoryUnspecified)
	write(f, err, long)
	holds("2.log", long, fillStep)
	f, err = g.ReuseForWrite("2.log", "3.log", vfs.WriteCategoryUnspecified)
	write(f, err, long, "y")
	holds("3.log", long+"y", 2*fillStep)
}

// A WAL file that cannot be filled grows with each write.
func TestALogThatCannotBeFilledGrows(t *testing.T) {
	mem := vfs.NewMem()
	g := newFilledWALs(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWriteAt {
			return errFull
		}
		return nil
	})))
	f, err := g.Create("1.log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := f.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
	}
	info, err := mem.Stat("1.log")
	if err = errors.Join(err, f.Close()); err != nil || info.Size() != 8 {
		t.Errorf("the log has %d bytes, %v, want 8", info.Size(), err)
	}
}

// Compactions move sstables of chunks without rewriting them.
func TestChunksAreNotWrittenAgain(t *testing.T) {
	s, err := Open("store", Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ref, content := refs(1), random(chunkSize, 1)
	for range 12 {
		for range 8 {
			mustKeep(t, s, ref(), content)
		}
		if err := s.write(func(db *pebble.DB) error { return db.Flush() }); err != nil {
			t.Fatal(err)
		}
	}
	compacted := uint64(0)
	m := s.handle.db.Metrics()
	for _, level := range m.Levels {
		compacted += level.TableBytesCompacted
	}
	if compacted > chunkSize {
		t.Errorf("compactions wrote %d bytes of %d, want those of heads only", compacted, 96*chunkSize)
	}
}
