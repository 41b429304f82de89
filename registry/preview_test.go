package registry

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// A preview has the head and the tail of the text around the marker, as the examples
// show.
// Scenario 65.
func TestPreviewVectors(t *testing.T) {
	t.Parallel()
	const marker = "... output truncated; full content saved to /m/tool_1 ..."
	ten := "l0\nl1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9"
	for name, c := range map[string]struct {
		text         string
		lines, bytes int
		want         string
	}{
		"head and tail":                         {ten, 8, 10000, "l0\nl1\n\nM\n\nl8\nl9"},
		"the odd line goes to the head":         {ten, 9, 10000, "l0\nl1\nl2\n\nM\n\nl8\nl9"},
		"no lines but the marker's":             {ten, 4, 10000, "M"},
		"a line end at the end makes a line":    {ten + "\n", 10, 10000, "l0\nl1\nl2\n\nM\n\nl8\nl9\n"},
		"bytes split in two":                    {strings.Repeat("a", 100) + strings.Repeat("b", 100), 2000, 100, strings.Repeat("a", 20) + "\n\nM\n\n" + strings.Repeat("b", 19)},
		"no code point is split":                {strings.Repeat("é", 100), 2000, 100, strings.Repeat("é", 10) + "\n\nM\n\n" + strings.Repeat("é", 9)},
		"a budget of one byte goes to the head": {strings.Repeat("x", 300), 2000, 62, "x\n\nM"},
		"the marker itself is cut":              {strings.Repeat("x", 300), 2000, 20, "... output truncated"},
		// By the same rule:
		"one line, which is the head's":          {ten, 5, 10000, "l0\n\nM"},
		"bytes of the sampled lines":             {ten, 8, 70, "l0\nl1\n\nM\n\n8\nl9"},
		"a budget of nothing is the marker":      {strings.Repeat("x", 300), 2000, 61, "M"},
		"a code point larger than its half goes": {strings.Repeat("😀", 50), 2000, 67, "\n\nM"},
	} {
		want := strings.ReplaceAll(c.want, "M", marker)
		if got := preview(c.text, marker, c.lines, c.bytes); got != want {
			t.Errorf("%s: preview in %d lines and %d bytes = %q, want %q", name, c.lines, c.bytes, got, want)
		}
	}
}

// A preview is within its limits and has its complete marker.
func TestPreviewKeepsItsLimitsAndItsMarkerWhole(t *testing.T) {
	t.Parallel()
	marker := "... output truncated (1234567 lines, 1234567890 bytes); full output at output://evt_01ARZ3NDEKTSV4RRFFQ69G5FAV/structured ..."
	rapid.Check(t, func(r *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "é", "😀", "\n", "\n\n", "word "}), 0, 400).Draw(r, "text"), "")
		l := Limits{Lines: rapid.IntRange(minLines, 40).Draw(r, "lines"), Bytes: rapid.IntRange(minBytes, 600).Draw(r, "bytes")}
		got := preview(text, marker, l.Lines, l.Bytes)
		if len(got) > l.Bytes || countLines(got) > l.Lines || !utf8.ValidString(got) || strings.Count(got, marker) != 1 {
			r.Fatalf("preview in %d lines and %d bytes has %d and %d: %q", l.Lines, l.Bytes, countLines(got), len(got), got)
		}
		first, last, _ := strings.Cut(got, "\n\n"+marker)
		if !strings.HasPrefix(text, first[:min(len(first), 1)]) || !strings.HasSuffix(text, strings.TrimPrefix(last, "\n\n")) {
			r.Fatalf("preview %q is not of the text", got)
		}
	})
}

// Registry returns ErrBadLimits for limits at which a preview could not hold its
// reference.
func TestLimitsTooSmallForAReferenceAreRefused(t *testing.T) {
	t.Parallel()
	for _, l := range []Limits{{7, 256, 0}, {8, 255, 0}, {8, 256, -1}, {0, 51200, 1}} {
		if _, err := (&Layers{}).Registry(Config{Limits: l}); err == nil || !strings.Contains(err.Error(), ErrBadLimits.Error()) {
			t.Errorf("Registry(%+v) = %v, want ErrBadLimits", l, err)
		}
	}
	if got, err := (Limits{}).checked(); got != DefaultLimits || err != nil {
		t.Errorf("limits of zero = %+v, %v, want the default", got, err)
	}
	if got, err := (Limits{8, 256, 0}).checked(); got != (Limits{8, 256, 0}) || err != nil {
		t.Errorf("the least limits = %+v, %v, want them", got, err)
	}
}
