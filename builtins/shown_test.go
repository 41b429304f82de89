package builtins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
)

func TestQuestionShowsWhatIsWritten(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("line of a long file\n", 100_000)
	for _, c := range []struct {
		tool, before string
		in           input
		kind, want   string
	}{
		{"edit", "a\nb\nc\n", input{"path": "a", "oldString": "b", "newString": "x"}, domain.PreviewDiff, "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"edit", big + "end\n", input{"path": "a", "oldString": "end", "newString": "END"}, domain.PreviewDiff, "@@ -99998,4 +99998,4 @@\n line of a long file\n line of a long file\n line of a long file\n-end\n+END\n"},
		{"edit", "a", input{"path": "a", "oldString": "b", "newString": "x"}, domain.PreviewContent, "The edit changes nothing: Could not find oldString"},
		{"edit", "a", input{"path": "none", "oldString": "b", "newString": "x"}, domain.PreviewContent, "The edit changes nothing"},
		{"write", "a\nb\n", input{"path": "a", "content": "a\nc\n"}, domain.PreviewDiff, "-b\n+c\n"},
		{"write", "a", input{"path": "new/file", "content": "rm -rf /\n"}, domain.PreviewContent, "rm -rf /\n"},
		{"write", "a\xff", input{"path": "a", "content": "text"}, domain.PreviewContent, "text"},
		{"write", "a", input{"path": "a", "content": "a"}, domain.PreviewContent, "The file keeps its content of 1 bytes."},
	} {
		b := newBench(t)
		b.put(t, "a", c.before)
		b.decide = refuse("edit")
		if _, err := b.run(t, c.tool, c.in); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("%s = %v, want the refusal", c.tool, err)
		}
		if len(b.shown) != 1 || b.shown[0].Kind != c.kind || !strings.Contains(b.shown[0].Text, c.want) {
			t.Errorf("%s of %.30q shows %.300v, want %s %q", c.tool, c.before, b.shown, c.kind, c.want)
		}
		if b.content(t, "a") != c.before {
			t.Errorf("%s changed the file", c.tool)
		}
	}
}

func TestQuestionSaysThatAFileHasOtherNames(t *testing.T) {
	t.Parallel()
	for tool, in := range map[string]input{"edit": {"path": "a", "oldString": "one", "newString": "two"}, "write": {"path": "a", "content": "two"}} {
		b := newBench(t)
		b.put(t, "a", "one")
		if err := os.Link(filepath.Join(b.dir, "a"), b.outside+"/b"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.run(t, tool, in); err != nil || !strings.HasPrefix(b.shown[0].Text, "The file has 2 names (hard links), and all of them change.\n") {
			t.Errorf("%s = %v, and shows %q", tool, err, b.shown[0].Text)
		}
		if data, err := os.ReadFile(b.outside + "/b"); err != nil || string(data) != "two" {
			t.Errorf("%s: the other name leads to %q, %v", tool, data, err)
		}
	}
}

// Scenario 148.
func TestWhatARuleDecidesIsReadForNoQuestion(t *testing.T) {
	t.Parallel()
	for _, effect := range []domain.Effect{domain.Deny, domain.Allow} {
		b := newBench(t)
		b.rules = domain.Rules{{Action: "edit", Resource: "*", Effect: effect}}
		b.put(t, "a", "one")
		if effect == domain.Deny {
			b.decide = refuse("edit")
		}
		for tool, in := range map[string]input{"edit": {"path": "a", "oldString": "one", "newString": "two"}, "write": {"path": "a", "content": "two"}} {
			_, _ = b.run(t, tool, in)
			if len(b.shown) != 0 {
				t.Errorf("%s shows %v though a rule decides: %v", tool, b.shown, effect)
			}
		}
	}
}

func TestReplacementThatGrowsBeyondTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	content := strings.Repeat("a", 1<<20)
	b.put(t, "a", content)
	b.fails(t, "edit", input{"path": "a", "oldString": "a", "newString": strings.Repeat("b", 1<<20), "replaceAll": true}, fmt.Sprintf("The file would grow to %d bytes by 1048576 replacements", 1<<40))
	if b.content(t, "a") != content {
		t.Error("the file was changed")
	}
}

// apply applies a unified diff.
func apply(patch, before string) string {
	old := slices.Collect(strings.Lines(before))
	var out []string
	at, sign := 0, byte(0)
	for i, line := range slices.Collect(strings.Lines(patch)) {
		switch {
		case i < 2: // the names of the file
		case line[0] == '@':
			var from int
			_, _ = fmt.Sscanf(line, "@@ -%d", &from)
			for ; at < from-1; at++ {
				out = append(out, old[at])
			}
		case line[0] == '\\':
			if sign != '-' {
				out[len(out)-1] = strings.TrimSuffix(out[len(out)-1], "\n")
			}
			continue
		case line[0] == '+':
			out = append(out, line[1:])
		case line[0] == '-':
			at++
		default:
			out = append(out, line[1:])
			at++
		}
		sign = line[0]
	}
	return strings.Join(append(out, old[at:]...), "")
}

func TestDiffAppliesWhateverIsCutOff(t *testing.T) {
	t.Parallel()
	line := rapid.SampledFrom([]string{"a\n", "b\n", "@@ -1 +1 @@\n", "\n", "--- x\n", "é\n"})
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string {
			return strings.Join(rapid.SliceOfN(line, 0, 12).Draw(t, name), "") + rapid.SampledFrom([]string{"", "no end"}).Draw(t, name+" end")
		}
		before, after := text("head")+text("before")+text("tail"), ""
		if rapid.Bool().Draw(t, "same ends") {
			after = text("head") + text("after") + text("tail")
		} else {
			after = strings.Replace(before, "a\n", "b\na\n", 1)
		}
		d := diff("f", before, after)
		if got := apply(d.patch, before); got != after {
			t.Fatalf("the patch of %q to %q gives %q:\n%s", before, after, got, d.patch)
		}
		if countLines(after)-countLines(before) != d.additions-d.deletions {
			t.Fatalf("%d additions and %d deletions from %d to %d lines", d.additions, d.deletions, countLines(before), countLines(after))
		}
	})
}

func TestDiffOfLongTextsIsBounded(t *testing.T) {
	t.Parallel()
	before, after := strings.Repeat("x\n", 4<<20), strings.Repeat("y é\n", 2<<20)
	d := diff("f", before, after)
	if !d.truncated || len(d.patch) > 4*maxDiffSide || d.additions != 2<<20 || d.deletions != 4<<20 {
		t.Errorf("the diff has %d bytes, +%d -%d, truncated %v", len(d.patch), d.additions, d.deletions, d.truncated)
	}
	if d := diff("f", before, before+"z\n"); d.truncated || d.patch != "--- a/f\n+++ b/f\n@@ -4194302,3 +4194302,4 @@\n x\n x\n x\n+z\n" {
		t.Errorf("the diff of one line is %q", d.patch)
	}
}
