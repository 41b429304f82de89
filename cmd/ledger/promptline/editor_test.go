package promptline

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Each key edits the line as the package comment says.
func TestKeysEditTheLine(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"hello\r":                                  "hello",
		"hello\n":                                  "hello",
		"\r":                                       "",
		"helo\x1b[Dl\r":                            "hello",
		"ello\x1b[Hh\x1b[F!\r":                     "hello!",
		"ello\x01h\x05!\r":                         "hello!",
		"ello\x1b[1~h\x1b[4~!\r":                   "hello!",
		"ello\x1bOHh\x1bOF!\r":                     "hello!",
		"helloo\x7f\r":                             "hello",
		"hheello\x01\x04\x1b[C\x1b[3~\r":           "hello",
		"hello world\x17\x17there\r":               "there",
		"hello\x15bye\r":                           "bye",
		"hello\x02\x02\x0b\x06!\r":                 "hel!",
		"one\rtwo\x1b[A\r":                         "one",
		"one\rtwo\x1b[A\x1b[B\r":                   "two",
		"one\rtwo\x10\x10\x0e\r":                   "two",
		"a\x1b[1;5Cb\x1b[38;5;1mc\x1bd\x00\x0ce\r": "abcde", // unknown keys do nothing
		"漢字\x7f\x1b[D和\r":                          "和漢",
		"a\x80b\xe4c\u0085\r":                      "a\ufffdb\ufffdc",
		"a\tb\r":                                   "a\tb",
		"\x1b[200~a\r\nb\nc\rd\x1b[31m\x03e\x1b[201~\r":                 "a\nb\nc\nde",
		"x\x1b[D\x1b[200~one\n\ntwo\x1b[201~\r":                         "one\n\ntwox",
		"\x1b" + strings.Repeat("[", 3) + "A\r":                         "[A",
		"\x1b[" + strings.Repeat("1", maxSequence-2) + "\r":             "",
		"\x1b[12\rrest\x1b[3\x1b[200~in a paste\n\x1b[201~ and after\r": "restin a paste\n and after",
	} {
		var e editor
		lines := e.feed([]byte(keys))
		if len(lines) == 0 || lines[len(lines)-1] != (entered{text: want}) {
			t.Errorf("keys %q end the lines %+v, want the last %q", keys, lines, want)
		}
		if !e.empty() {
			t.Errorf("keys %q leave the line %q", keys, string(e.line))
		}
	}
}

// Ctrl-d leaves an empty line, and deletes a rune in another.
func TestCtrlDLeavesAnEmptyLine(t *testing.T) {
	t.Parallel()
	var e editor
	if lines := e.feed([]byte("a\x01\x04\x04")); !slices.Equal(lines, []entered{{left: true}}) {
		t.Errorf("ctrl-d ends the lines %+v, want one that leaves", lines)
	}
}

// A line of MaxLine bytes is whole, and a longer one is refused and not cut.
func TestALineIsWholeOrRefused(t *testing.T) {
	t.Parallel()
	var e editor
	for _, size := range []int{MaxLine, MaxLine + 1, 5} {
		text := strings.Repeat("a", size)
		want := entered{text: text}
		if size > MaxLine {
			want = entered{refused: true}
		}
		var lines []entered
		for b := []byte(text + "\r"); len(b) > 0; b = b[min(len(b), 4096):] {
			lines = append(lines, e.feed(b[:min(len(b), 4096)])...)
		}
		if !slices.Equal(lines, []entered{want}) {
			t.Errorf("a line of %d bytes ends %d lines, want it whole or refused", size, len(lines))
		}
	}
}

// What is typed has the same effect however it is divided into reads. The window of the line
// fits its width, and has no character that controls a terminal.
func FuzzEditor(f *testing.F) {
	for _, seed := range []string{"hello\r", "\x1b[200~a\nb\x1b[201~\r", "漢字\x1b[D\xe4", "\x1b[1;5C\x1bOH\x04", "a\u0085\u202e\u2028\x7f\x17", "a\u0301\u200d👩\u200d👩"} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, typed []byte, step uint8) {
		var whole, parts editor
		lines := whole.feed(typed)
		var partLines []entered
		for b := typed; len(b) > 0; b = b[min(len(b), int(step)%7+1):] {
			partLines = append(partLines, parts.feed(b[:min(len(b), int(step)%7+1)])...)
		}
		if !slices.Equal(lines, partLines) || !slices.Equal(whole.line, parts.line) || whole.cursor != parts.cursor || whole.size != parts.size {
			t.Fatalf("in parts %+v, at %d of %q; whole %+v, at %d of %q", partLines, parts.cursor, string(parts.line), lines, whole.cursor, string(whole.line))
		}
		if whole.size != len(string(whole.line)) || !utf8.ValidString(string(whole.line)) {
			t.Fatalf("the line %q has the size %d", string(whole.line), whole.size)
		}
		for _, columns := range []int{1, 2, 10, 80} {
			before, after := whole.window(columns)
			if text := before + after; strings.ContainsFunc(text, unicode.IsControl) || columns > 1 && ansi.StringWidth(text) > columns {
				t.Fatalf("the window of %d columns of %q is %q", columns, string(whole.line), text)
			}
		}
	})
}
