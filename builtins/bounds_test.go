package builtins

import (
	"bytes"
	"context"
	endian "encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// allocated returns how many bytes f allocates in all, which is more than it
// holds at any moment. Other tests of the package must not run meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// claiming returns the beginning of a PNG that claims a size, of 16 bits a
// channel or of 8.
func claiming(width, height int, depth byte) string {
	var b bytes.Buffer
	header := append(endian.BigEndian.AppendUint32(endian.BigEndian.AppendUint32([]byte("IHDR"), uint32(width)), uint32(height)), depth, 6, 0, 0, 0)
	b.WriteString("\x89PNG\r\n\x1a\n")
	_ = endian.Write(&b, endian.BigEndian, uint32(13))
	b.Write(header)
	_ = endian.Write(&b, endian.BigEndian, crc32.ChecksumIEEE(header))
	return b.String() + "\x00\x00\x00\x00IDAT"
}

func TestImageThatIsHugeWhenDecodedIsRefused(t *testing.T) {
	b := newBench(t)
	b.put(t, "deep", claiming(10_200, 10_200, 16))
	b.put(t, "flat", claiming(10_200, 10_200, 8))
	// A canvas of one pixel, and a lossless frame of 16,384 by 16,384.
	b.put(t, "frame", "RIFF\x30\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00VP8L\x10\x00\x00\x00\x2f\xff\xff\xff\x0f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, name := range []string{"deep", "flat", "frame"} {
		if used := allocated(func() { b.fails(t, "read", input{"path": name}, "exceeding configured limits") }); used > 64<<20 {
			t.Errorf("refusing %s allocates %d bytes", name, used)
		}
	}
}

func TestHighImageIsScaledInLittleMemory(t *testing.T) {
	width, height := 2100, 12_000
	if raceEnabled {
		width, height = width/2, height/2
	}
	var encoded bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&encoded, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.put(t, "a", encoded.String())
	used := allocated(func() {
		out, _ := must[readResult](t, b, "read", input{"path": "a"})
		config, _, err := image.DecodeConfig(bytes.NewReader(out.Data))
		if err != nil || config.Height != 2000 || config.Width != 350 {
			t.Errorf("the image is %+v, %v", config, err)
		}
	})
	if used > uint64(700<<20/(2100*12_000)*width*height) {
		t.Errorf("scaling allocates %d bytes", used)
	}
}

// An endingContext is a context whose Err returns context.Canceled after a number of
// calls.
type endingContext struct {
	context.Context
	looks *atomic.Int32 // calls left
}

func (e endingContext) Err() error {
	if e.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A search checks its context after a bounded number of steps, for every expression
// and line. The number of steps is the number of instructions of the expression times
// the bytes that each match can skip.
func TestStepsBetweenTwoLooksAtTheContextAreBounded(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"a", "a{0,900}b", "(a{0,30}){0,30}b", "a*a*a*a*b", "[^b]*c|a", "(?:[a-z]{0,900}c|a)", strings.Repeat("[a-z]{0,1000}", 9)} {
		e, err := compileExpression(pattern)
		if err != nil {
			t.Fatalf("compile(%.40q) = %v", pattern, err)
		}
		size := e.windowSize() + overlap
		if steps := size * e.size * e.maxSubmatches(size); steps > 2*max(maxSteps, (minWindow+overlap)*maxInstruction) {
			t.Errorf("a search for %.40q makes %d steps between two looks", pattern, steps)
		}
	}
}

func TestSearchOfALongLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
	b.put(t, "a", strings.Repeat("a", 1<<20))
	for _, pattern := range []string{"a{0,900}b", "[^b]*c|a"} {
		e, err := compileExpression(pattern)
		if err != nil {
			t.Fatal(err)
		}
		ctx := endingContext{t.Context(), new(atomic.Int32)}
		ctx.looks.Store(3)
		s := scanner{expression: e, limit: 10, out: &grepResult{}, bytesLeft: 1 << 20}
		if err := s.searchFile(ctx, strings.NewReader(strings.Repeat("a", 1<<20)), "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("a search for %s whose context ends on the way = %v, want its cause", pattern, err)
		}
	}
	b.fails(t, "grep", input{"pattern": strings.Repeat("[a-z]{0,1000}", 30)}, "the expression is too large")
	b.fails(t, "grep", input{"pattern": strings.Repeat("a", 5000)}, "the expression has 5000 bytes")
}

func TestMatchInALongLineIsFoundOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
	window := maxWindow
	starts, length := []int{100, window - overlap - 3, window - 3, window}, 2*window
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		starts, length = []int{0, 100, window - overlap - 3, window - overlap, window - 3, window, window + 1, 2*window - overlap - 3, 3 * window}, 4*window
	}
	for _, at := range starts {
		line := strings.Repeat("x", at) + "needle" + strings.Repeat("y", length-at)
		b.put(t, "a", "first\n"+line+"\r\nlast needle")
		out, _ := must[grepResult](t, b, "grep", input{"pattern": "needle"})
		if out.Total != 2 || fmt.Sprint(out.Matches[0].Submatches) != fmt.Sprintf("[[%d %d]]", at, at+6) || out.Matches[0].Line != 2 || out.Matches[1].Line != 3 {
			t.Errorf("a needle at %d is found as %d matches, %v", at, out.Total, out.Matches[0].Submatches)
		}
		for pattern, want := range map[string]int{"^x*needle": 1, "needle$": 1, "^y": 0, "x$": 0, "y$": 1, "^needle": 0} {
			if pattern == "^x*needle" && at > window-overlap || pattern == "^needle" && at == 0 {
				continue
			}
			if out, _ := must[grepResult](t, b, "grep", input{"pattern": pattern}); out.Total != want {
				t.Errorf("%s with a needle at %d matches %d lines, want %d", pattern, at, out.Total, want)
			}
		}
	}
}

func TestPatternWithManyAlternativesIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
	b.put(t, strings.Repeat("a", 40), "x")
	nested := "a"
	for range 300 {
		nested = "{" + nested + ",b}"
	}
	for _, pattern := range []string{strings.Repeat("{a,b}", 30), strings.Repeat("{a,{b,c}}", 20), nested, strings.Repeat("{,a}", 40) + "b", strings.Repeat("{a,b}{c", 10) + strings.Repeat("}", 10)} {
		b.fails(t, "glob", input{"pattern": pattern}, "its braces stand for over 256 patterns")
		b.fails(t, "grep", input{"pattern": "x", "include": pattern}, "its braces stand for over 256 patterns")
	}
	b.fails(t, "glob", input{"pattern": strings.Repeat("*", 5000)}, "it has 5000 bytes")
	for pattern, want := range map[string]int{"a": 1, "{a,b}": 2, "{a,b}{c,d}": 4, "{a,{b,c}}x": 3, `\{a,b\}`: 1, "a,b": 1, "{a{1,2},b}{3,4}": 6, "{}": 1} {
		if got := countAlternatives(pattern); got != want {
			t.Errorf("alternatives(%q) = %d, want %d", pattern, got, want)
		}
	}
	for _, pattern := range []string{"**/**/**/**/**/**/b", strings.Repeat("*a", 30) + "b", "*.{go,md,txt,{c,h}}"} {
		if got := b.found(t, "glob", input{"pattern": pattern}); got != "No files found" {
			t.Errorf("glob %s = %q", pattern, got)
		}
	}
}

func TestDeepTreeIsSearchedToALimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
	b.put(t, strings.Repeat("d/", 300)+"deep.txt", "needle")
	b.put(t, strings.Repeat("d/", 200)+"near.txt", "needle")
	out, _ := must[globResult](t, b, "glob", input{"pattern": "*.txt"})
	if out.Total != 1 || len(out.Unread) != 1 {
		t.Errorf("glob finds %d files and leaves %d directories unread, want 1 and 1", out.Total, len(out.Unread))
	}
}

func TestHugeFileOfExclusionsIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
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
