package embedded

import (
	"fmt"
	"testing"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// BenchmarkOpenReader opens a store of 100,000 events for reading, after a clean
// close and after a kill, and for comparison reads all of it.
func BenchmarkOpenReader(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(b.Context(), dir, Config{})
	must(b, err)
	p := newRecordWriter(3)
	for i := range 1000 {
		stream := events.Stream(fmt.Sprintf("session-%d", i%100))
		must(b, s.Append(b.Context(), stream, events.Revision(i/100*100), p.records(100, 500)...))
	}
	must(b, s.Close())
	b.Run("closed", func(b *testing.B) { benchReader(b, dir) })
	s, err = Open(b.Context(), dir, Config{})
	must(b, err)
	for i := range 200 { // some megabytes in the log
		must(b, s.Append(b.Context(), "session-more", events.Revision(i*100), p.records(100, 500)...))
	}
	died := b.TempDir()
	for name, text := range contents(b, s.folder.FS, dir) {
		to := died + name[len(dir):]
		must(b, s.folder.FS.MkdirAll(s.folder.FS.PathDir(to), 0o700))
		must(b, writeFile(s.folder.FS, to, text))
	}
	must(b, s.Close())
	b.Run("killed", func(b *testing.B) { benchReader(b, died) })
	b.Run("read all", func(b *testing.B) {
		r, err := OpenReader(b.Context(), dir, Config{})
		must(b, err)
		for b.Loop() {
			for _, err := range r.Lend(b.Context(), events.Query{}) {
				must(b, err)
			}
		}
		must(b, r.Close())
	})
	b.Run("pin alone", func(b *testing.B) {
		for b.Loop() {
			p, err := pebblefiles.Pin(pebblefiles.Disk, dir+"/lock", dir+"/log")
			must(b, err)
			must(b, p.Close())
		}
	})
	b.Run("open to write", func(b *testing.B) {
		for b.Loop() {
			w, err := Open(b.Context(), dir, Config{})
			must(b, err)
			must(b, w.Close())
		}
	})
}

func benchReader(b *testing.B, dir string) {
	for b.Loop() {
		r, err := OpenReader(b.Context(), dir, Config{})
		must(b, err)
		must(b, r.Close())
	}
}
