package views

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// A shortened input is valid JSON of bounded size, and an input within inputLimit is
// unchanged.
func FuzzAShortenedInputIsJSON(f *testing.F) {
	f.Add(`{"a":"`+strings.Repeat("x", 5000)+`"}`, 1)
	f.Add(`[{"k":1e9},"\ud800",null]`, 900)
	f.Add("no JSON\xff", 3000)
	f.Fuzz(func(t *testing.T, text string, times int) {
		text = strings.Repeat(text, max(1, min(times, 5000)))
		text = text[:min(len(text), 1<<20)]
		input := render.RawJSON([]byte(text))
		short, cut := shortenInput(input)
		if !json.Valid(short) || len(short) > 8*inputLimit {
			t.Fatalf("%.200q is shortened to %d bytes: %.200q", input, len(short), short)
		}
		if cut != (len(input) > inputLimit) || !cut && !bytes.Equal(short, input) {
			t.Fatalf("%d bytes are shortened: %v", len(input), cut)
		}
	})
}

// MainField picks the most informative fields of an input: a command or a pattern before a
// path, and a path before a description or a content.
func TestMainFieldPrefersACommandOrAPattern(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		`{"command":"make","description":"Build it"}`: "make",
		`{"file_path":"a.go","content":"x"}`:          "a.go",
		`{"pattern":"**/*.sh","path":"src"}`:          "**/*.sh src",
		`{"path":"."}`:                                ".",
		`{"pattern":"x","command":"grep x"}`:          "grep x",
		`{"file_path":"a.go","pattern":"x"}`:          "x",
		`{"command":["a"],"url":"https://x"}`:         "https://x",
		`{"n":1}`:                                     `{"n":1}`,
		`"text"`:                                      "text",
		`[1]`:                                         "[\n  1\n]",
	} {
		if got := MainField(json.RawMessage(input)); got != want {
			t.Errorf("MainField(%s) = %q, want %q", input, got, want)
		}
	}
}
