package outputs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkKeep keeps outputs, and beside each writes the same bytes to a plain
// file and syncs it and its folder. "x-file" is how many times longer a Keep
// takes; both share the run, so that a slow disk slows both.
func BenchmarkKeep(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			dir, content, ref := b.TempDir(), random(size, 1), refs(1)
			s, err := Open(filepath.Join(dir, "outputs"), Config{Reserve: 1})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var keep, file time.Duration
			for n := 0; b.Loop(); n++ {
				begin := time.Now()
				if _, err := s.Keep(b.Context(), ref(), "", bytes.NewReader(content)); err != nil {
					b.Fatal(err)
				}
				between := time.Now()
				if err := plain(dir, n, content); err != nil {
					b.Fatal(err)
				}
				keep, file = keep+between.Sub(begin), file+time.Since(between)
			}
			b.ReportMetric(float64(keep.Nanoseconds())/float64(b.N), "ns/keep")
			b.ReportMetric(float64(keep)/float64(file), "x-file")
		})
	}
}

// plain writes a file as durably as Keep does, over one of ten.
func plain(dir string, n int, content []byte) error {
	f, err := os.Create(filepath.Join(dir, fmt.Sprint(n%10)))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
