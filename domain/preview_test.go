package domain

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// A preview is within its limits and has the number of bytes left out.
func TestPreviewIsBoundedAndCountsTheBytesLeftOut(t *testing.T) {
	t.Parallel()
	line := "+ x\n"
	for _, row := range []struct {
		name, kind, whole string
		cut               bool
	}{
		{"empty", PreviewContent, "", false},
		{"at the limit", PreviewContent, strings.Repeat("x", MaxPreview), false},
		{"over the limit", PreviewContent, strings.Repeat("x", MaxPreview+1), true},
		{"many lines", PreviewDiff, strings.Repeat(line, MaxPreviewLines), false},
		{"too many lines", PreviewDiff, strings.Repeat(line, MaxPreviewLines+2), true},
		{"blank lines", PreviewContent, strings.Repeat("\n", MaxPreview), true},
		{"a long command", PreviewCommand, strings.Repeat("x\n", MaxPreview), false},
		{"runes at the cut", PreviewContent, "a" + strings.Repeat("日", MaxPreview/2), true},
		{"not UTF-8", PreviewContent, strings.Repeat("\xff", 100), false},
		{"not UTF-8 and long", PreviewContent, strings.Repeat("\x80", MaxPreview*2), true},
	} {
		s := NewPreview(row.kind, row.whole)
		if s.Bytes != int64(len(row.whole)) || len(s.SHA256) != 64 || s.Kind != row.kind {
			t.Errorf("%s: %d bytes, digest %q, kind %s", row.name, s.Bytes, s.SHA256, s.Kind)
		}
		if (s.Cut > 0) != row.cut {
			t.Errorf("%s: %d bytes are cut, want some: %v", row.name, s.Cut, row.cut)
		}
		if row.cut && !strings.Contains(s.Text, fmt.Sprintf("\n... %d bytes are not shown ...\n", s.Cut)) {
			t.Errorf("%s: the text does not say that %d bytes are cut", row.name, s.Cut)
		}
		if !utf8.ValidString(s.Text) || strings.Count(s.Text, "\n") > MaxPreviewLines+3 && row.kind != PreviewCommand {
			t.Errorf("%s: the text is not UTF-8, or has %d lines", row.name, strings.Count(s.Text, "\n"))
		}
	}
}

// A preview has the head and the tail of its text.
func TestPreviewKeepsHeadAndTailOfTheText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		unit := rapid.SampledFrom([]string{"x", "\n", "日本", "ab\n", strings.Repeat("y", 100) + "\n"}).Draw(rt, "unit")
		whole := strings.Repeat(unit, rapid.IntRange(1, 2*MaxPreview/len(unit)).Draw(rt, "times"))
		s := NewPreview(PreviewContent, whole)
		head, tail, cut := strings.Cut(s.Text, fmt.Sprintf("\n... %d bytes are not shown ...\n", s.Cut))
		if !strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail) {
			rt.Fatalf("the text is not the head and the tail of the whole")
		}
		if cut != (s.Cut > 0) || int64(len(head)+len(tail))+s.Cut != s.Bytes {
			rt.Fatalf("%d + %d bytes shown and %d cut of %d", len(head), len(tail), s.Cut, s.Bytes)
		}
		if len(head)+len(tail) > MaxPreview {
			rt.Fatalf("%d bytes shown", len(head)+len(tail))
		}
	})
}
