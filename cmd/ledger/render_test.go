package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

func FuzzVisibleTextControlsNothing(f *testing.F) {
	f.Add("a\x1b[31mb\x00\x7f\u009b1m\u202etxt\n\tc")
	f.Add("表\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range visible(text) {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
				t.Fatalf("visible(%q) holds %U", text, r)
			}
		}
		for _, width := range []int{1, 7, 60} {
			line := oneLine(text, width)
			if strings.ContainsAny(line, "\n\r") || ansi.StringWidth(line) > width {
				t.Fatalf("oneLine(%q, %d) = %q, which is wider or more than a line", text, width, line)
			}
		}
	})
}

func TestColumnsAlignWhateverTheCellsHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.SampledFrom([]string{"", "a", "表表", "é", "👩‍👩‍👧", "\x1b[31mred\x1b[0m", "long enough"})
		var out bytes.Buffer
		a := &app{out: bufio.NewWriter(&out), color: colorNever}
		table := table{head: []string{"A", ">B", "C"}}
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			table.add(cell.Draw(t, "a"), cell.Draw(t, "b"), "|")
		}
		a.write(table)
		_ = a.out.Flush()
		lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
		want := ansi.StringWidth(lines[0]) - 1
		for _, line := range lines[1:] {
			if got := ansi.StringWidth(strings.TrimSuffix(line, "|")); got != want {
				t.Fatalf("the last column of %q begins at %d, want %d", line, got, want)
			}
		}
	})
}

// On a terminal no line of a table is wider than it, whatever the cells hold; where
// there is none a table is as wide as it is.
func TestATableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.SampledFrom([]string{"", "a", strings.Repeat("表", 40), "é👩‍👩‍👧 and more", "\x1b[31mred and so on\x1b[0m", strings.Repeat("long ", 30)})
		width := rapid.IntRange(20, 200).Draw(t, "columns")
		var out bytes.Buffer
		a := &app{
			out: bufio.NewWriter(&out), color: colorNever, terminal: true,
			env: func(name string) (string, bool) { return fmt.Sprint(width), name == "COLUMNS" },
		}
		table := table{head: []string{"ID", "~TOOL", "?SPARE", "?>N", "~TEXT"}}
		rows := rapid.IntRange(1, 5).Draw(t, "rows")
		for range rows {
			table.add("ses_…B7116A", cell.Draw(t, "tool"), "spare", "1234", cell.Draw(t, "text"))
		}
		a.write(table)
		_ = a.out.Flush()
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

// What is left out of a table for want of room goes in order: spare columns from the
// right, then texts but the first; a terminal that is too narrow for the rest gets
// blocks.
func TestANarrowTableLeavesOutTheLeastFirst(t *testing.T) {
	t.Parallel()
	shown := func(columns int) string {
		var out bytes.Buffer
		a := &app{
			out: bufio.NewWriter(&out), color: colorNever, terminal: columns > 0,
			env: func(name string) (string, bool) { return fmt.Sprint(columns), name == "COLUMNS" },
		}
		table := table{head: []string{"ID", "?>TOOK", "~INPUT", "~TEXT"}}
		table.add("call_1", "500ms", "cat /etc/passwd and more", "root:x:0:0:root and more")
		a.write(table)
		_ = a.out.Flush()
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

func TestAShortenedIDMeansWhatTablesPrint(t *testing.T) {
	t.Parallel()
	const id = "ses_01HQWY5DF89BEGSP3JEKB7116A"
	for _, good := range []string{
		id, strings.ToLower(id), shortText(id), "ses_...B7116A", "B7116A", "b7116a", "01HQWY5D", "ses_01HQ", "ses_01HQ…16A", "…6A",
	} {
		if !shortens(good, id) {
			t.Errorf("shortens(%q, %q) = false, want true", good, id)
		}
	}
	for _, bad := range []string{"trn_…B7116A", "F89B", "ses_01HQX", id + "0", "ses_01HQWY5DF89BEGSP3JEKB7116A…B7116A"} {
		if shortens(bad, id) {
			t.Errorf("shortens(%q, %q) = true, want false", bad, id)
		}
	}
}

func TestAnIDMeansOneThingOrSaysWhichItCouldMean(t *testing.T) {
	t.Parallel()
	all := []candidate[int]{{1, []string{"ses_AAA1"}, "one"}, {2, []string{"ses_AAB2"}, "two"}, {3, []string{"ses_AAA12"}, "three"}}
	for id, want := range map[string]int{"ses_AAB": 2, "@last": 3, "ses_aaa1": 1, "12": 3, "AAB2": 2} {
		if got, err := pick("session", id, all); got != want || err != nil {
			t.Errorf("pick(%q) = %d, %v, want %d", id, got, err, want)
		}
	}
	_, err := pick("session", "AAA", all)
	if f := faultOf(err); f.exit != exitUsage || f.code != "ambiguous" || len(f.candidates) != 2 {
		t.Errorf("pick(AAA) = %v, exit %d, candidates %v; want two candidates", err, f.exit, f.candidates)
	}
	for _, id := range []string{"nothing", "trn_AAA1"} {
		if _, err := pick("session", id, all); faultOf(err).exit != exitNotFound {
			t.Errorf("pick(%q) = %v, want not found", id, err)
		}
	}
	if _, err := pick("session", "", all); faultOf(err).exit != exitUsage {
		t.Errorf(`pick("") = %v, want a usage error`, err)
	}
	if _, err := pick("session", "@last", all[:0]); faultOf(err).exit != exitNotFound {
		t.Errorf("pick(@last) of nothing = %v, want not found", err)
	}
}

func TestALineWindowPassesOnTheLinesAskedFor(t *testing.T) {
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
		w := &lineWindow{to: &out, skip: int64(skip), left: int64(limit), bounded: limit > 0}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			if _, err := w.Write([]byte(rest[:n])); errors.Is(err, errEnough) {
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

func TestSizesAndAgesAreShort(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 256 << 20: "256 MiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	now := time.Date(2026, 9, 10, 12, 0, 0, 0, time.UTC)
	a := &app{now: func() time.Time { return now }}
	for past, want := range map[time.Duration]string{
		0: "now", 12 * time.Second: "12 seconds ago", 3 * time.Minute: "3 minutes ago", 50 * time.Hour: "2 days ago", -time.Hour: "1 hour from now", 400 * 24 * time.Hour: "",
	} {
		if got := a.ago(now.Add(-past)); got != want {
			t.Errorf("ago(%v) = %q, want %q", past, got, want)
		}
	}
}

// A new outcome has a look, or this fails.
func TestEachOutcomeHasALookOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, o := range domain.Outcomes() {
		if l, ok := looks[o.String()]; !ok || utf8.RuneCountInString(l.symbol) != 1 || l.paint == plain {
			t.Errorf("outcome %s is shown as %v", o, l)
		}
	}
}

func TestColoursObeyFlagAndEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		color    coloring
		env      map[string]string
		terminal bool
		want     bool
	}{
		{colorAuto, nil, true, true},
		{colorAuto, nil, false, false},
		{colorAuto, map[string]string{"TERM": "dumb"}, true, false},
		{colorAuto, map[string]string{"NO_COLOR": "1", "FORCE_COLOR": "1"}, true, false},
		{colorAuto, map[string]string{"FORCE_COLOR": "1", "TERM": "dumb"}, false, true},
		{colorAuto, map[string]string{"CLICOLOR_FORCE": "0"}, false, false},
		{colorAlways, map[string]string{"NO_COLOR": "1"}, false, true},
		{colorNever, map[string]string{"FORCE_COLOR": "1"}, true, false},
	} {
		a := &app{color: c.color, terminal: c.terminal, env: func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }}
		if got := a.colored(); got != c.want {
			t.Errorf("colored with %s, %v, terminal %v = %v, want %v", c.color, c.env, c.terminal, got, c.want)
		}
	}
}

// The command is an app with a command line.
func Example() {
	var out bytes.Buffer
	a := &app{
		out: bufio.NewWriter(&out), err: &out, now: time.Now,
		env: func(string) (string, bool) { return "", false },
	}
	exit := a.run(context.Background(), []string{"--store", "nowhere", "session", "ls"})
	fmt.Print(out.String(), "exit ", exit)
	// Output:
	// error: no store at nowhere
	// hint: ledger run and ledger import make a store; --store or LEDGER_STORE names one
	// exit 4
}
