package render

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
)

// Printable text and one-line text have no control characters, except line feeds and tabs in
// the first, and one-line text fits its width.
func FuzzVisibleTextControlsNothing(f *testing.F) {
	f.Add("a\x1b[31mb\x00\x7f\u009b1m\u202etxt\n\tc")
	f.Add("表\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Printable(text) {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
				t.Fatalf("visible(%q) holds %U", text, r)
			}
		}
		for _, width := range []int{1, 7, 60} {
			line := OneLine(text, width)
			if strings.ContainsAny(line, "\n\r") || ansi.StringWidth(line) > width {
				t.Fatalf("oneLine(%q, %d) = %q, which is wider or more than a line", text, width, line)
			}
		}
	})
}

// The last column begins at the same terminal column in every row, for wide, combining, empty
// and coloured texts before it.
func TestColumnsAlignWhateverTheCellsHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.SampledFrom([]string{"", "a", "表表", "é", "👩‍👩‍👧", "\x1b[31mred\x1b[0m", "long enough"})
		var out bytes.Buffer
		a := &Printer{Out: bufio.NewWriter(&out), Color: colorNever}
		table := Table{Head: []string{"A", ">B", "C"}}
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			table.Add(cell.Draw(t, "a"), cell.Draw(t, "b"), "|")
		}
		a.Table(table)
		_ = a.Out.Flush()
		lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
		want := ansi.StringWidth(lines[0]) - 1
		for _, line := range lines[1:] {
			if got := ansi.StringWidth(strings.TrimSuffix(line, "|")); got != want {
				t.Fatalf("the last column of %q begins at %d, want %d", line, got, want)
			}
		}
	})
}

// No line of a table is wider than the terminal, for any texts in its cells, and every ID is
// complete.
func TestATableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.SampledFrom([]string{"", "a", strings.Repeat("表", 40), "é👩‍👩‍👧 and more", "\x1b[31mred and so on\x1b[0m", strings.Repeat("long ", 30)})
		width := rapid.IntRange(20, 200).Draw(t, "columns")
		var out bytes.Buffer
		a := &Printer{
			Out: bufio.NewWriter(&out), Color: colorNever, Terminal: true,
			Env: func(name string) (string, bool) { return fmt.Sprint(width), name == "COLUMNS" },
		}
		table := Table{Head: []string{"ID", "~TOOL", "?SPARE", "?>N", "~TEXT"}}
		rows := rapid.IntRange(1, 5).Draw(t, "rows")
		for range rows {
			table.Add("ses_…B7116A", cell.Draw(t, "tool"), "spare", "1234", cell.Draw(t, "text"))
		}
		a.Table(table)
		_ = a.Out.Flush()
		for line := range strings.Lines(out.String()) {
			if got := ansi.StringWidth(strings.TrimSuffix(line, "\n")); got > width {
				t.Fatalf("%q is %d wide on a terminal of %d", line, got, width)
			}
		}
		if got := strings.Count(out.String(), "ses_…B7116A"); got != rows {
			t.Fatalf("%d of %d IDs are whole:\n%s", got, rows, out.String())
		}
	})
}

// A table that is too wide first shortens texts, then omits spare columns from the right, then
// texts except the first. On a terminal that is too narrow for the rest it becomes blocks.
func TestANarrowTableLeavesOutTheLeastFirst(t *testing.T) {
	t.Parallel()
	shown := func(columns int) string {
		var out bytes.Buffer
		a := &Printer{
			Out: bufio.NewWriter(&out), Color: colorNever, Terminal: columns > 0,
			Env: func(name string) (string, bool) { return fmt.Sprint(columns), name == "COLUMNS" },
		}
		table := Table{Head: []string{"ID", "?>TOOK", "~INPUT", "~TEXT"}}
		table.Add("call_1", "500ms", "cat /etc/passwd and more", "root:x:0:0:root and more")
		a.Table(table)
		_ = a.Out.Flush()
		return out.String()
	}
	for columns, want := range map[int]string{
		0:  "ID       TOOK  INPUT                     TEXT\ncall_1  500ms  cat /etc/passwd and more  root:x:0:0:root and more\n",
		50: "ID       TOOK  INPUT             TEXT\ncall_1  500ms  cat /etc/passwd…  root:x:0:0:root…\n",
		36: "ID      INPUT          TEXT\ncall_1  cat /etc/pas…  root:x:0:0:r…\n",
		30: "ID      INPUT\ncall_1  cat /etc/passwd and m…\n",
		20: "ID      INPUT\ncall_1  cat /etc/pa…\n",
		15: "ID\n  call_1\nTOOK\n  500ms\nINPUT\n  cat /etc/pas…\nTEXT\n  root:x:0:0:r…\n",
	} {
		if got := shown(columns); got != want {
			t.Errorf("on %d columns it is\n%s\nwant\n%s", columns, got, want)
		}
	}
}

// Bytes uses binary units. Ago is empty for a distance over a month.
func TestSizesAndAgesAreShort(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 256 << 20: "256 MiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	now := time.Date(2026, 9, 10, 12, 0, 0, 0, time.UTC)
	a := &Printer{Now: func() time.Time { return now }}
	for past, want := range map[time.Duration]string{
		0: "now", 12 * time.Second: "12 seconds ago", 3 * time.Minute: "3 minutes ago", 50 * time.Hour: "2 days ago", -time.Hour: "1 hour from now", 400 * 24 * time.Hour: "",
	} {
		if got := a.Ago(now.Add(-past)); got != want {
			t.Errorf("ago(%v) = %q, want %q", past, got, want)
		}
	}
}

// Every outcome of the domain has a symbol of one character and a colour.
func TestEachOutcomeHasALookOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, o := range domain.Outcomes() {
		if l, ok := looks[o.String()]; !ok || utf8.RuneCountInString(l.symbol) != 1 || l.paint == plain {
			t.Errorf("outcome %s is shown as %v", o, l)
		}
	}
}

// The flag --color overrides NO_COLOR, NO_COLOR overrides FORCE_COLOR, and both override the
// terminal and TERM.
func TestColoursObeyFlagAndEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		color    coloring
		env      map[string]string
		terminal bool
		want     bool
	}{
		{ColorAuto, nil, true, true},
		{ColorAuto, nil, false, false},
		{ColorAuto, map[string]string{"TERM": "dumb"}, true, false},
		{ColorAuto, map[string]string{"NO_COLOR": "1", "FORCE_COLOR": "1"}, true, false},
		{ColorAuto, map[string]string{"FORCE_COLOR": "1", "TERM": "dumb"}, false, true},
		{ColorAuto, map[string]string{"CLICOLOR_FORCE": "0"}, false, false},
		{colorAlways, map[string]string{"NO_COLOR": "1"}, false, true},
		{colorNever, map[string]string{"FORCE_COLOR": "1"}, true, false},
	} {
		a := &Printer{Color: c.color, Terminal: c.terminal, Env: func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }}
		if got := a.colored(); got != c.want {
			t.Errorf("colored with %s, %v, terminal %v = %v, want %v", c.color, c.env, c.terminal, got, c.want)
		}
	}
}
