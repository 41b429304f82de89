package views

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A lineRange passes on exactly the lines of its range, however the text is split
// into writes.
func TestALineRangePassesOnTheRequestedLines(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\n")), 0, 40, -1).Draw(t, "text")
		skip, limit := rapid.IntRange(0, 5).Draw(t, "skip"), rapid.IntRange(0, 5).Draw(t, "limit")
		lines := strings.SplitAfter(text, "\n")
		wanted := lines[min(skip, len(lines)):]
		if limit > 0 {
			wanted = wanted[:min(limit, len(wanted))]
		}
		var out strings.Builder
		w := &lineRange{to: &out, skip: int64(skip), left: int64(limit), bounded: limit > 0}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			if _, err := w.Write([]byte(rest[:n])); errors.Is(err, errRangeWritten) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if got, want := out.String(), strings.Join(wanted, ""); got != want {
			t.Fatalf("lines %d+%d of %q = %q, want %q", skip+1, limit, text, got, want)
		}
	})
}
