package builtins

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestSearchOverTheLimitsSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
	b.fails(t, "grep", input{"pattern": strings.Repeat("a", 5000)}, "the expression has 5000 bytes")
	braces := strings.Repeat("{a,b}", 30)
	b.fails(t, "glob", input{"pattern": braces}, "its braces stand for over 256 patterns")
	b.fails(t, "grep", input{"pattern": "x", "include": braces}, "its braces stand for over 256 patterns")
	b.put(t, ".gitignore", strings.Repeat("*a*a*a*b\n", 100_000))
	b.fails(t, "glob", input{"pattern": "*"}, "files of exclusions may have")
}

// peak returns by how many bytes the heap grows at most while f runs. Other
// tests of the package must not run meanwhile.
func peak(f func()) uint64 {
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done, highest := make(chan struct{}), make(chan uint64)
	go func() {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		var now runtime.MemStats
		for most := before.HeapInuse; ; {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
			select {
			case <-ticker.C:
			case <-done:
				highest <- most - before.HeapInuse
				return
			}
		}
	}()
	f()
	close(done)
	return <-highest
}

func TestMatchOnEachLineOfFiveMegabytesHoldsLittleMemory(t *testing.T) {
	lines := 5 << 19
	if raceEnabled {
		lines = 5 << 10 // each match allocates tens of KiB there
	}
	b := newBench(t, withoutProgram)
	b.put(t, "a", strings.Repeat("a\n", lines))
	used := peak(func() {
		out, _ := must[grepResult](t, b, "grep", input{"pattern": "."})
		if out.Total != lines || len(out.Matches) == 0 {
			t.Errorf("grep finds %d matches and returns %d, want %d and some", out.Total, len(out.Matches), lines)
		}
	})
	if used > 256<<20 {
		t.Errorf("the heap grows by %d bytes", used)
	}
}
