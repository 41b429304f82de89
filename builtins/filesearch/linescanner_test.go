package filesearch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// scan returns a LineScanner that searched a text for an expression.
func scan(t testing.TB, expression, text string) *LineScanner {
	t.Helper()
	lines := NewLineScanner(mustCompile(t, expression), 10, 1<<20)
	if err := lines.Scan(t.Context(), strings.NewReader(text), "a"); err != nil {
		t.Fatalf("Scan for %s = %v", expression, err)
	}
	return lines
}

// An endingContext is a context whose Err returns context.Canceled after a number of
// calls.
type endingContext struct {
	context.Context
	looks *atomic.Int32 // calls left
}

// Err counts the call.
func (e endingContext) Err() error {
	if e.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestSearchOfALongLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"a{0,900}b", "[^b]*c|a"} {
		for _, looks := range []int32{0, 2} {
			ctx := endingContext{t.Context(), new(atomic.Int32)}
			ctx.looks.Store(looks)
			lines := NewLineScanner(mustCompile(t, pattern), 10, 1<<20)
			if err := lines.Scan(ctx, strings.NewReader(strings.Repeat("a", 1<<20)), "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("a search for %s whose context ends at look %d = %v, want its cause", pattern, looks, err)
			}
		}
	}
}

func TestMatchInALongLineIsFoundOnce(t *testing.T) {
	t.Parallel()
	window := maxWindow
	starts, length := []int{100, window - overlap - 3, window - 3, window}, 2*window
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		starts, length = []int{0, 100, window - overlap - 3, window - overlap, window - 3, window, window + 1, 2*window - overlap - 3, 3 * window}, 4*window
	}
	for _, at := range starts {
		text := "first\n" + strings.Repeat("x", at) + "needle" + strings.Repeat("y", length-at) + "\r\nlast needle"
		out := scan(t, "needle", text)
		if out.Total != 2 || fmt.Sprint(out.Matches[0].Submatches) != fmt.Sprintf("[[%d %d]]", at, at+6) || out.Matches[0].Line != 2 || out.Matches[1].Line != 3 {
			t.Errorf("a needle at %d is found as %d matches, %v", at, out.Total, out.Matches[0].Submatches)
		}
		for pattern, want := range map[string]int{"^x*needle": 1, "needle$": 1, "^y": 0, "x$": 0, "y$": 1, "^needle": 0} {
			if pattern == "^x*needle" && at > window-overlap || pattern == "^needle" && at == 0 {
				continue
			}
			if out := scan(t, pattern, text); out.Total != want {
				t.Errorf("%s with a needle at %d matches %d lines, want %d", pattern, at, out.Total, want)
			}
		}
	}
}

func TestMatchesOverTheLimitsAreCountedOnly(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("needle\n", 100)
	for _, c := range []struct{ limit, maxBytes, want int }{{100, 1 << 20, 100}, {7, 1 << 20, 7}, {100, 3 * 200, 3}, {100, 0, 0}} {
		lines := NewLineScanner(mustCompile(t, "needle"), c.limit, c.maxBytes)
		if err := lines.Scan(t.Context(), strings.NewReader(text), "a"); err != nil || lines.Total != 100 || len(lines.Matches) != c.want {
			t.Errorf("a scan with the limits %d and %d returns %d of %d matches, %v, want %d of 100", c.limit, c.maxBytes, len(lines.Matches), lines.Total, err, c.want)
		}
	}
}

func TestBinaryFileHasNoMatches(t *testing.T) {
	t.Parallel()
	if lines := scan(t, "needle", "needle\n\x00needle"); lines.Total != 0 {
		t.Errorf("a binary file has %d matches", lines.Total)
	}
	if lines := scan(t, "needle", "needle\n"+strings.Repeat(" ", sampleSize)+"\x00needle"); lines.Total != 2 {
		t.Errorf("a file with a late NUL has %d matches, want 2", lines.Total)
	}
}

// endlessLines is a reader of empty lines without an end.
type endlessLines struct{}

// Read returns line ends.
func (endlessLines) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestFileOverTheLimitIsAnError(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEDGER_TEST_LONG") == "" {
		t.Skip("LEDGER_TEST_LONG is not set: a search of 64 MiB takes seconds with the race detector")
	}
	lines := NewLineScanner(mustCompile(t, "a"), 10, 1<<20)
	long := strings.Repeat("b", 1<<20-1) + "\n"
	var parts []io.Reader
	for range maxFile >> 20 {
		parts = append(parts, strings.NewReader(long))
	}
	if err := lines.Scan(t.Context(), io.MultiReader(append(parts, endlessLines{})...), "a"); !errors.Is(err, workspace.ErrTooLarge) {
		t.Errorf("a scan of an endless file = %v, want %v", err, workspace.ErrTooLarge)
	}
}
