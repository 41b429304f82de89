package domain_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// A title is one line of valid UTF-8 with at most 200 runes and without control
// characters.
func TestATitleIsOneShortLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", " \t\n": "", "read a.go": "read a.go", "two\r\nlines\tand  more ": "two lines and more", "\x1b[31mred\x07\x00": "[31mred", "a\u0085b": "a b",
		"b\xffd": "b\uFFFDd", strings.Repeat("é", 200): strings.Repeat("é", 200), strings.Repeat("é", 201): strings.Repeat("é", 199) + "…",
		strings.Repeat("\xff", 300): strings.Repeat("\uFFFD", 199) + "…",
	} {
		tool := makeTool(t, domain.Spec[question, answer]{Execute: reply, Title: func(q question) string { return q.Query }})
		direct := makeTool(t, domain.Spec[question, answer]{Execute: reply, Title: func(question) string { return text }})
		got := bind(t, direct, `{"query":"q"}`).Title()
		if got != want || !utf8.ValidString(got) || utf8.RuneCountInString(got) > 200 {
			t.Errorf("Title of %.20q = %q, want %q", text, got, want)
		}
		if got := bind(t, tool, `{"query":"from the input"}`).Title(); got != "from the input" {
			t.Errorf("Title = %q, want one made from the input", got)
		}
	}
	if got := bind(t, makeTool(t, domain.Spec[question, answer]{Execute: reply}), `{"query":"q"}`).Title(); got != "" {
		t.Errorf("Title without Spec.Title = %q, want it empty", got)
	}
}

// A tool explains an input that does not fit in its own words, made from the input as it
// came. An empty text leaves the standard one. A panic is a defect of the tool.
func TestAToolExplainsAnInvalidInputInItsOwnWords(t *testing.T) {
	t.Parallel()
	own := func(text func(json.RawMessage, *domain.ValidationError) string) error {
		tool := makeTool(t, domain.Spec[question, answer]{Execute: reply, InvalidInput: text})
		bind(t, tool, `{"query":"fits"}`)
		_, err := tool.Bind(json.RawMessage(`{"query":7,"more":true}`))
		return err
	}
	err := own(func(input json.RawMessage, fault *domain.ValidationError) string {
		for i := range input {
			input[i] = 'x' // the copy is the tool's
		}
		return "7 is no query: " + fault.Error()
	})
	fault, ok := errors.AsType[*domain.ValidationError](err)
	if !ok || !errors.Is(err, domain.ErrInvalidInput) || !strings.HasPrefix(fault.OwnText(), "7 is no query: ") || !strings.Contains(fault.OwnText(), "/query") {
		t.Errorf("Bind = %v with the own text %q, want the fault of /query in both", err, fault.OwnText())
	}
	if fault, ok := errors.AsType[*domain.ValidationError](own(func(json.RawMessage, *domain.ValidationError) string { return "" })); !ok || fault.OwnText() != "" {
		t.Errorf("an empty own text is %q, want none", fault.OwnText())
	}
	err = own(func(json.RawMessage, *domain.ValidationError) string { panic("broken") })
	if defect, ok := errors.AsType[*domain.Defect](err); !ok || errors.Is(err, domain.ErrInvalidInput) || !strings.Contains(defect.Error(), "broken") {
		t.Errorf("Bind with a text that panics = %v, want a defect", err)
	}
}

// The description for a turn is that of Spec.DescribeTurn. An empty text is replaced by
// the registered description, and a panic is a defect.
func TestADescriptionForATurnIsNeverEmpty(t *testing.T) {
	t.Parallel()
	describe := func(f func(domain.TurnFacts) string) domain.Tool {
		return makeTool(t, domain.Spec[question, answer]{Description: "registered", Execute: reply, DescribeTurn: f})
	}
	facts := domain.TurnFacts{Agent: "plan"}
	for want, tool := range map[string]domain.Tool{
		"for plan":   describe(func(f domain.TurnFacts) string { return "for " + string(f.Agent) }),
		"a\uFFFDb":   describe(func(domain.TurnFacts) string { return "a\xffb" }),
		"registered": describe(func(domain.TurnFacts) string { return "" }),
	} {
		if got, err := tool.DescribeTurn(facts); got != want || err != nil || !tool.DescribesTurns() {
			t.Errorf("DescribeTurn = %q, %v, want %q", got, err, want)
		}
		if got := tool.Describe("x").Description; got != "registered" {
			t.Errorf("the registered description is %q", got)
		}
	}
	if got, err := describe(nil).DescribeTurn(facts); got != "registered" || err != nil || describe(nil).DescribesTurns() || (domain.Tool{}).DescribesTurns() {
		t.Errorf("DescribeTurn without Spec.DescribeTurn = %q, %v", got, err)
	}
	var defect *domain.Defect
	if _, err := describe(func(domain.TurnFacts) string { panic("broken") }).DescribeTurn(facts); !errors.As(err, &defect) {
		t.Errorf("DescribeTurn that panics = %v, want a defect", err)
	}
}

// The files of a call are those that Spec.Files returns for its input and its output, and
// another presentation keeps them. A panic is a defect.
func TestAnOutputNamesTheFilesOfItsCall(t *testing.T) {
	t.Parallel()
	files := func(q question, a answer) []domain.FileAccess {
		return []domain.FileAccess{{Path: "/" + q.Query, Access: domain.FileRead, Version: "sha256:" + a.Text}}
	}
	out := run(t, makeTool(t, domain.Spec[question, answer]{Execute: reply, Files: files}), `{"query":"a"}`)
	want := []domain.FileAccess{{Path: "/a", Access: domain.FileRead, Version: "sha256:a"}}
	if got := out.WithContent(nil).Files(); !reflect.DeepEqual(got, want) {
		t.Errorf("Files = %v, want %v", got, want)
	}
	if got := run(t, makeTool(t, domain.Spec[question, answer]{Execute: reply}), `{"query":"a"}`).Files(); got != nil {
		t.Errorf("Files without Spec.Files = %v, want nil", got)
	}
	broken := makeTool(t, domain.Spec[question, answer]{Execute: reply, Files: func(question, answer) []domain.FileAccess { panic("broken") }})
	var defect *domain.Defect
	if _, err := bind(t, broken, `{"query":"a"}`).Run(t.Context(), invocation()); !errors.As(err, &defect) {
		t.Errorf("Run with files that panic = %v, want a defect", err)
	}
	failing := makeTool(t, domain.Spec[question, answer]{Files: files, Execute: func(context.Context, question, domain.Invocation) (answer, error) {
		return answer{}, domain.Fail("no")
	}})
	if out, err := bind(t, failing, `{"query":"a"}`).Run(t.Context(), invocation()); err == nil || out.Files() != nil {
		t.Errorf("a failed call names the files %v", out.Files())
	}
}
