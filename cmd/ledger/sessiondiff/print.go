package sessiondiff

import (
	"fmt"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/comparison"
)

// The limits of the difference of two texts on a page.
const (
	maxDiffInput = 256 << 10 // bytes of both texts that are compared by line
	maxDiffLines = 60        // lines of the difference that are printed
	maxSides     = 20        // lines of a text that only one session has
)

// print prints the summary and the differences for a person.
func (d *differ) print(out *render.Printer, s comparison.Summary, n int) error {
	t := render.Table{Head: []string{"", "SESSION", "~AGENT", "?~MODEL", ">STEPS", ">PROMPTS", ">CALLS", "?>OPEN", "?>TOKENS IN", "?>OUT", "?>TOOK", "?>CALLS RAN"}}
	for _, row := range []struct {
		name    string
		session calls.Session
		side    comparison.Side
	}{{"a", d.a, s.A}, {"b", d.b, s.B}} {
		c := row.side
		t.Add(row.name, render.ShortID(row.session.ID), render.OneLine(string(row.session.Agent), 20), render.OneLine(row.session.Model, 30), fmt.Sprint(c.Steps), fmt.Sprint(c.Prompts), fmt.Sprint(c.Calls),
			fmt.Sprint(c.Open), fmt.Sprint(c.Tokens.Input+c.Tokens.CacheRead+c.Tokens.CacheWrite), fmt.Sprint(c.Tokens.Output), render.Duration(c.Last.Sub(c.First)), render.Duration(c.Ran.Round(time.Millisecond)))
	}
	out.Table(t)
	out.Line("")
	if d.a.ID == d.b.ID {
		out.Line("a and b are the same session.")
	}
	for _, side := range []struct {
		name string
		comparison.Side
	}{{"a", s.A}, {"b", s.B}} {
		if side.Running() {
			out.Line("%s has %s without an end, so it may be running; it is compared as it is now.", side.name, render.Count(side.Open, "call"))
		}
		for _, kind := range side.Unknown {
			out.Line("%s has events that this program does not know: %s", side.name, render.Printable(kind))
		}
	}
	if s.NoOffers {
		out.Line("Offers are not compared: an import does not record them.")
	}
	out.Line("shared     the first %s of %d and %d", render.Count(s.Shared, "step"), s.A.Steps, s.B.Steps)
	if n == 0 {
		out.Line("%s", out.Styled(render.Green, "✓ same"))
	} else {
		out.Line("different  %s", countsText(s, d.ignored))
	}
	if left := s.Differences() - n; left > 0 {
		out.Line("ignored    %s", render.Count(left, "difference"))
	}
	for x, err := range d.differences() {
		if err != nil {
			return err
		}
		printDifference(out, x)
	}
	return nil
}

// countsText returns the number of differences of each class that counts.
func countsText(s comparison.Summary, ignored []comparison.Class) string {
	var parts []string
	for _, c := range comparison.Classes() {
		n := s.Found[c]
		for _, skip := range ignored {
			if skip == c {
				n = 0
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", c, n))
		}
	}
	return strings.Join(parts, ", ")
}

// marks are the sign and the colour of a change.
var marks = map[comparison.Change]string{comparison.Removed: "-", comparison.Added: "+", comparison.Changed: "~"}

// printDifference prints one difference: a line that says what differs and where, and the
// content of both sides.
func printDifference(out *render.Printer, x comparison.Difference) {
	at := "a step " + stepText(x.A) + ", b step " + stepText(x.B)
	switch {
	case x.A == nil:
		at = "b step " + stepText(x.B)
	case x.B == nil:
		at = "a step " + stepText(x.A)
	}
	title := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s", marks[x.Change], x.Class, x.Change, render.OneLine(x.Tool, 60), render.OneLine(x.Path, 200))), " ")
	out.Line("\n%s  %s", out.Styled(render.Bold, title), out.Styled(render.Dim, at))
	switch x.Change {
	case comparison.Removed:
		printSide(out, "-", x.Before)
	case comparison.Added:
		printSide(out, "+", x.After)
	default:
		printTexts(out, x.Before, x.After)
	}
}

// stepText returns the number of a step, and the call.
func stepText(w *comparison.Where) string {
	if w == nil {
		return ""
	}
	text := fmt.Sprint(w.Step)
	if w.Call != "" {
		text += " " + render.ShortCallID(w.Call)
	}
	return text
}

// printSide prints the first lines of a text behind a mark.
func printSide(out *render.Printer, mark, text string) {
	if text == "" {
		out.Line("  %s (empty)", mark)
		return
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if i == maxSides {
			out.Line("  %s … %s more", mark, render.Count(len(lines)-i, "line"))
			return
		}
		out.Line("  %s", styled(out, mark, mark+" "+clipped(line)))
	}
}

// ended returns a text whose last line has a line feed.
func ended(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// clipped returns a line without characters that control a terminal, and shortened.
func clipped(line string) string {
	const most = 2000
	if len(line) > most {
		return render.Printable(strings.ToValidUTF8(line[:most], "")) + fmt.Sprintf(" … %d bytes more", len(line)-most)
	}
	return render.Printable(line)
}

// styled colours a line by its mark.
func styled(out *render.Printer, mark, line string) string {
	switch mark {
	case "-":
		return out.Styled(render.Red, line)
	case "+":
		return out.Styled(render.Green, line)
	}
	return line
}

// printTexts prints the difference of two texts: both if they are short, and otherwise the
// lines that differ.
func printTexts(out *render.Printer, before, after string) {
	if !strings.Contains(strings.TrimSuffix(before, "\n"), "\n") && !strings.Contains(strings.TrimSuffix(after, "\n"), "\n") {
		printSide(out, "-", before)
		printSide(out, "+", after)
		return
	}
	if len(before)+len(after) > maxDiffInput {
		out.Line("  %s and %s differ; they are too large to compare by line here: -o json has both", render.Bytes(int64(len(before))), render.Bytes(int64(len(after))))
		return
	}
	n := 0
	for line := range strings.Lines(udiff.Unified("a", "b", ended(before), ended(after))) {
		if n++; n <= 2 { // the names of the texts
			continue
		}
		if n > maxDiffLines+2 {
			out.Line("  … more lines differ: -o json has both texts")
			return
		}
		line = strings.TrimSuffix(line, "\n")
		out.Line("  %s", styled(out, line[:min(1, len(line))], clipped(line)))
	}
}
