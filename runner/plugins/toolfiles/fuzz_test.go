package toolfiles

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// Any bytes are a manifest whose tool can be made or an ErrBadManifest, never a panic. A
// manifest names no file outside of its folder, and all its limits are set.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		`{"description":"d","input":{"type":"object"},"command":["sh","./a.sh"]}`,
		`{"description":"d","input":{"type":"object","properties":{"p":{"type":"string"}}},"output":{"type":"object","properties":{"t":{}}},"command":["bin/a","-v"],
			"files":["lib/b"],"env":["A_B"],"timeout":"30s","limits":{"line":10,"output":20,"progress":3},"title":"p","text":"t","action":"edit","asks_first":true,
			"idempotent":true,"invalid_input":"{faults}","available":[{"agents":["!plan"],"needs":["program:git|hg"]}]}`,
		`{"description":"d","input":{"type":"object"},"command":["./../a"]}`,
		`{"description":"d","input":{"$ref":"#"},"command":["a\u0000b"]}`,
		`{"description":"\ud800"}`, `{"input":{"type":"object","properties":[]}}`, `[`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest("fuzzed", data)
		if err != nil {
			if !errors.Is(err, ErrBadManifest) {
				t.Errorf("parseManifest(%q) = %v, want ErrBadManifest", data, err)
			}
			return
		}
		for _, p := range m.paths() {
			if strings.HasPrefix(p, "/") || p == ".." || strings.HasPrefix(p, "../") || p == "." {
				t.Errorf("parseManifest(%q) names the file %q", data, p)
			}
		}
		if m.timeout <= 0 || m.Limits.Line <= 0 || m.Limits.Output <= 0 || m.Limits.Progress <= 0 || !utf8.ValidString(m.Description) {
			t.Errorf("parseManifest(%q) = %+v, want a description and limits", data, m)
		}
		tool, err := (&fileTool{fileGeneration: fileGeneration{name: "fuzzed", manifest: m}}).make()
		if err != nil && !errors.Is(err, domain.ErrBadSchema) {
			t.Errorf("make(%q) = %v, want ErrBadSchema", data, err)
		}
		if err == nil {
			_, _ = tool.Bind(json.RawMessage(`{"p":1,"t":[]}`))
		}
	})
}

// Any line is exactly one of the four answers or an error, never a panic.
func FuzzAnswerLine(f *testing.F) {
	for _, seed := range []string{
		`{"progress":{"done":1}}`, `{"progress":null}`, `{"output":null}`, `{"output":{"a":[1,2.5e300]}}`, `{"failure":""}`, `{"failure":null}`,
		`{"ask":{"action":"edit","resources":["a"],"save":["*"],"preview":"x"}}`, `{"ask":null}`, `{"ask":{}}`, `{"output":1,"output":2}`,
		`{"output":1}{"output":2}`, `{"OUTPUT":1}`, "{\"output\":\"\xff\"}", `{"output":"\ud800"}`, ``, ` `, `{}`, `[]`, `Traceback`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := parseAnswer(line)
		if err != nil {
			return
		}
		set := 0
		for _, is := range []bool{a.Progress != nil, a.Ask != nil, a.Output != nil, a.Failure != nil} {
			if is {
				set++
			}
		}
		if set != 1 || a.isResult() != (a.Output != nil || a.Failure != nil) {
			t.Errorf("parseAnswer(%q) = %+v, want one answer", line, a)
		}
		if a.Output != nil && !json.Valid(a.Output) || a.Progress != nil && !json.Valid(a.Progress) {
			t.Errorf("parseAnswer(%q) = %+v, which is no JSON", line, a)
		}
		if a.Ask != nil && (a.Ask.Action == "" || len(a.Ask.Resources) == 0) {
			t.Errorf("parseAnswer(%q) = %+v, a question without action or resource", line, a.Ask)
		}
	})
}

// Each form of a line is told from the others, also with null.
func TestAnswerLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"output":null}`: "output", `{"progress":null}`: "progress", `{"failure":""}`: "failure", `{"ask":{"action":"a","resources":["r"]}}`: "ask",
		`{"ask":null}`: "", `{"failure":null}`: "", `{}`: "", `{"output":1,"progress":2}`: "", `{"Output":1}`: "", `{"output":1}x`: "",
	} {
		a, err := parseAnswer([]byte(line))
		got := ""
		switch {
		case err != nil:
		case a.Output != nil:
			got = "output"
		case a.Progress != nil:
			got = "progress"
		case a.Failure != nil:
			got = "failure"
		case a.Ask != nil:
			got = "ask"
		}
		if got != want {
			t.Errorf("parseAnswer(%s) = %q, %v, want %q", line, got, err, want)
		}
	}
}
