package embedded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// sessionText returns bytes that compress like records of sessions: the file that
// LEDGER_BENCH_TEXT names, or JSON with source code, paths and IDs.
func sessionText(b *testing.B, size int) []byte {
	if name := os.Getenv("LEDGER_BENCH_TEXT"); name != "" {
		text, err := os.ReadFile(name)
		must(b, err)
		return text[:min(size, len(text))]
	}
	words := strings.Fields("func return if err != nil { } := range string int error context the file was read from to and of test package import type struct for line output call tool")
	rng, text := rand.New(rand.NewPCG(1, 1)), &strings.Builder{}
	for text.Len() < size {
		fmt.Fprintf(text, `{"call":"%016x","tool":"read","path":"src/%s/%s.go","text":"`, rng.Uint64(), words[rng.IntN(20)], words[rng.IntN(20)])
		for range 40 {
			text.WriteString(words[rng.IntN(len(words))] + " ")
		}
		text.WriteString("\\n\"}")
	}
	return []byte(text.String()[:size])
}

// BenchmarkCompression writes and reads a table of records with each codec that
// Pebble has for hot tables, and reports the size of the table.
func BenchmarkCompression(b *testing.B) {
	const record = 700
	text := sessionText(b, 8<<20)
	for _, codec := range []*sstable.CompressionProfile{sstable.SnappyCompression, sstable.MinLZCompression} {
		storage := vfs.NewMem()
		write := func() uint64 {
			file, err := storage.Create("table", vfs.WriteCategoryUnspecified)
			must(b, err)
			w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), sstable.WriterOptions{BlockSize: 32 << 10, Compression: codec, TableFormat: sstable.TableFormatPebblev7})
			for i := 0; (i+1)*record < len(text); i++ {
				must(b, w.Set(layout.EntryKey(uint64(i+1)), text[i*record:(i+1)*record]))
			}
			must(b, w.Close())
			info, err := storage.Stat("table")
			must(b, err)
			return uint64(info.Size())
		}
		b.Run(codec.Name+"/write", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			size := uint64(0)
			for b.Loop() {
				size = write()
			}
			b.ReportMetric(float64(size)/float64(len(text)), "size/text")
		})
		b.Run(codec.Name+"/read", func(b *testing.B) {
			write()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				file, err := storage.Open("table")
				must(b, err)
				readable, err := objstorageprovider.NewFileReadable(file, storage, objstorageprovider.NewReadaheadConfig(), "table")
				must(b, err)
				r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
				must(b, err)
				it, err := r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
				must(b, err)
				for kv := it.First(); kv != nil; kv = it.Next() {
				}
				must(b, it.Close())
				must(b, r.Close())
			}
		})
	}
}
