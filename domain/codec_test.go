package domain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// The schema of JSON has the fields, types and requirements of the Go type.
func TestSchemaSaysWhatTheGoTypeSays(t *testing.T) {
	t.Parallel()
	type input struct {
		Path  string          `json:"path" jsonschema:"where to look"`
		Any   json.RawMessage `json:"any,omitempty"`
		Bytes []byte          `json:"bytes,omitempty"`
		Exact json.Number     `json:"exact,omitempty"`
	}
	want := `{"additionalProperties":false,"properties":{
		"any":true,
		"bytes":{"contentEncoding":"base64","type":["null","string"]},
		"exact":{"type":"number"},
		"path":{"description":"where to look","type":"string"}
	},"required":["path"],"type":"object"}`
	got, err := domain.Canonical(domain.JSON[input]().Schema())
	if err != nil {
		t.Fatal(err)
	}
	if want, err := domain.Canonical(json.RawMessage(want)); err != nil || string(got) != string(want) {
		t.Errorf("schema = %s, want %s", got, want)
	}
}

// The patch of Constrained adds constraints to the schema.
func TestPatchSaysWhatAGoTypeCannot(t *testing.T) {
	t.Parallel()
	patch := `{"properties":{"limit":{"minimum":1,"maximum":9007199254740993},"query":{"enum":["a","b"]}},"required":null,"title":"T"}`
	got := domain.Constrained[question](patch).Schema()
	want := `{"additionalProperties":false,"properties":{"limit":{"maximum":9007199254740993,"minimum":1,"type":"integer"},"query":{"enum":["a","b"],"type":"string"}},"title":"T","type":"object"}`
	if string(got) != want {
		t.Errorf("schema = %s, want %s", got, want)
	}
	tool := makeTool(t, domain.Spec[question, answer]{Input: domain.Constrained[question](patch), Execute: reply})
	run(t, tool, `{"query":"a","limit":1}`)
	for _, input := range []string{`{"query":"c"}`, `{"query":"a","limit":0}`, `{"query":"a","limit":9007199254740994}`} {
		if _, err := tool.Bind(json.RawMessage(input)); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("Bind(%s) = %v, want ErrInvalidInput", input, err)
		}
	}
}

type tree struct {
	Children []tree `json:"children"`
}

// refusal returns the error of Make for a codec of the input, and checks that the
// same codec of the output gives the same sentinel.
func refusal[T any](t *testing.T, c domain.Codec[T]) error {
	t.Helper()
	_, in := domain.Make(domain.Spec[T, answer]{Description: "d", Input: c, Execute: func(context.Context, T, domain.Invocation) (a answer, err error) { return }})
	_, out := domain.Make(domain.Spec[question, T]{Description: "d", Output: c, Execute: func(context.Context, question, domain.Invocation) (v T, err error) { return }})
	for boundary, err := range map[string]error{"input": in, "output": out} {
		if !errors.Is(err, domain.ErrBadSchema) || !strings.Contains(fmt.Sprint(err), boundary) {
			t.Errorf("Make with such a codec for the %s = %v, want ErrBadSchema that names it", boundary, err)
		}
	}
	return in
}

// Make returns ErrBadSchema for a schema that the validator cannot apply.
func TestSchemaThatCannotBeHonouredIsRefused(t *testing.T) {
	t.Parallel()
	refusal(t, domain.JSON[tree]())
	refusal(t, domain.JSON[chan int]())
	refusal(t, domain.JSON[func()]())
	refusal(t, domain.JSON[map[bool]int]())
	refusal(t, domain.JSON[struct{ C chan int }]())
	for _, patch := range []string{``, `{`, `{} {}`, `null`, `[]`, `7`, `{"properties":{"query":{"pattern":"("}}}`, `{"type":"text"}`} {
		if err := refusal(t, domain.Constrained[question](patch)); err != nil {
			t.Logf("%s: %v", patch, err)
		}
	}
	for _, schema := range []string{
		``, `not JSON`, `{} {}`, `{"type":"text"}`, `{"minimum":"1"}`,
		`{"$schema":"https://example.com/own"}`,
		`{"$ref":"https://example.com/s.json"}`,
		`{"$ref":"other.json"}`,
		`{"$ref":"file:///etc/passwd"}`,
		`{"properties":{"a":{"$ref":"#/$defs/none"}}}`,
	} {
		if err := refusal(t, raw(schema)); err != nil {
			t.Logf("%s: %v", schema, err)
		}
	}
}

// A schema that refers to another document is refused, and compiling it reads no
// file.
func TestSchemaReachesNoFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "there.json")
	if err := os.WriteFile(file, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	refusal(t, raw(fmt.Sprintf(`{"$ref":%q}`, "file://"+file)))
	refusal(t, raw(fmt.Sprintf(`{"$ref":%q}`, file)))
}

// A schema of draft-07 and one of draft 2020-12 are applied by the rules of their
// draft.
func TestBothDraftsAreHeldToTheirOwnRules(t *testing.T) {
	t.Parallel()
	// The two drafts differ in the meaning of an array of items, and of $ref with
	// other keywords.
	for draft, schema := range map[string]string{
		"draft-07":          `{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}],"definitions":{"n":{"type":"integer"}}}`,
		"2020-12":           `{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"type":"integer"}],"$defs":{"n":{"type":"integer"}}}`,
		"2020-12 by itself": `{"prefixItems":[{"type":"integer"}]}`,
	} {
		tool := rawTool(t, schema, `{}`)
		run(t, tool, `[1,"b"]`)
		if _, err := tool.Bind(json.RawMessage(`["a"]`)); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("%s: Bind of an item that does not fit = %v, want ErrInvalidInput", draft, err)
		}
	}
	if _, err := rawTool(t, `{"$schema":"http://json-schema.org/draft-07/schema#","prefixItems":[{"type":"integer"}]}`, `{}`).Bind(json.RawMessage(`["a"]`)); err != nil {
		t.Errorf("draft-07 does not know prefixItems, and yet: %v", err)
	}
}

// References within a schema are followed.
func TestReferencesWithinASchemaAreFollowed(t *testing.T) {
	t.Parallel()
	tool := rawTool(t, `{"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"left":{"$ref":"#/$defs/tree"}},"additionalProperties":false}}}`, `{}`)
	run(t, tool, `{"left":{"left":{}}}`)
	_, err := tool.Bind(json.RawMessage(`{"left":{"left":{"right":{}}}}`))
	if got, want := paths(t, err), []string{"/left/left"}; !slices.Equal(got, want) {
		t.Errorf("faults at %q, want %q: %v", got, want, err)
	}
}

// paths returns the sorted paths of the violations of err.
func paths(t *testing.T, err error) (paths []string) {
	t.Helper()
	m, ok := errors.AsType[*domain.ValidationError](err)
	if !ok {
		t.Fatalf("got %v, want a Mismatch", err)
	}
	for _, f := range m.Violations {
		paths = append(paths, f.Path)
		if f.Detail == "" || !strings.Contains(err.Error(), f.String()) {
			t.Errorf("fault %+v is not told in %q", f, err)
		}
	}
	slices.Sort(paths)
	return paths
}

// A ValidationError lists every violation with its path.
// Scenario 13.
func TestValidationErrorListsEveryViolationWithItsPath(t *testing.T) {
	t.Parallel()
	type item struct {
		Name string `json:"name"`
	}
	type input struct {
		Path  string `json:"path"`
		Count int    `json:"count"`
		Items []item `json:"items"`
		Odd   int    `json:"a/b~c"`
	}
	tool := makeTool(t, domain.Spec[input, answer]{
		Input:   domain.Constrained[input](`{"properties":{"count":{"minimum":1}}}`),
		Execute: func(context.Context, input, domain.Invocation) (a answer, err error) { return },
	})
	_, err := tool.Bind(json.RawMessage(`{"path":7,"count":-1,"items":[{"name":1},{"name":"b","extra":2},{}],"a/b~c":"x"}`))
	want := []string{"/a~1b~0c", "/count", "/items/0/name", "/items/1", "/items/2", "/path"}
	if got := paths(t, err); !slices.Equal(got, want) {
		t.Errorf("faults at %q, want %q", got, want)
	}
	for _, word := range []string{"extra", "'name'", "minimum"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %s", err, word)
		}
	}
	_, err = tool.Bind(json.RawMessage(`{}`))
	if got, want := paths(t, err), []string{""}; !slices.Equal(got, want) {
		t.Errorf("faults at %q, want %q", got, want)
	}
	for _, missing := range []string{"path", "count", "items", "a/b~c"} {
		if !strings.Contains(err.Error(), missing) {
			t.Errorf("%q does not name the missing %s", err, missing)
		}
	}
}

// An invalid output lists its violations too.
func TestOutputViolationsAreListed(t *testing.T) {
	t.Parallel()
	tool := rawTool(t, `{}`, `{"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`)
	_, err := bind(t, tool, `{"a":1,"b":2}`).Run(t.Context(), invocation())
	if got, want := paths(t, err), []string{"/a", "/b"}; !slices.Equal(got, want) || !errors.Is(err, domain.ErrInvalidOutput) {
		t.Errorf("faults at %q, want %q: %v", got, want, err)
	}
}

// Violations are the same in every run, and groups of causes are not listed.
func TestViolationsAreDeterministicAndMinimal(t *testing.T) {
	t.Parallel()
	tool := rawTool(t, `{
		"allOf":[{"$ref":"#/$defs/closed"}],
		"$defs":{"closed":{"properties":{"n":{"type":"integer"},"either":{"anyOf":[{"type":"string"},{"type":"integer"}]}},"additionalProperties":false}}
	}`, `{}`)
	want := strings.Join([]string{
		"additional properties 'a', 'b', 'c', 'd' not allowed",
		"/either: 'anyOf' failed", "/either: got null, want integer", "/either: got null, want string",
		"/n: got string, want integer",
	}, "; ")
	for range 20 {
		_, err := tool.Bind(json.RawMessage(`{"d":1,"c":1,"b":1,"a":1,"either":null,"n":"x"}`))
		if err == nil || err.Error() != want {
			t.Fatalf("Bind = %v, want %s", err, want)
		}
	}
}

// A number with more digits than a double has is passed on unchanged.
func TestBigNumbersSurvive(t *testing.T) {
	t.Parallel()
	type numbers struct {
		Whole int64           `json:"whole"`
		Exact json.Number     `json:"exact"`
		Raw   json.RawMessage `json:"raw"`
	}
	tool := makeTool(t, domain.Spec[numbers, numbers]{Execute: func(_ context.Context, n numbers, _ domain.Invocation) (numbers, error) { return n, nil }})
	const document = `{"whole":9007199254740993,"exact":123456789012345678901234567890.123456789,"raw":[18446744073709551617,1e999]}`
	if got := string(run(t, tool, document).Structured()); got != document {
		t.Errorf("in %s, out %s", document, got)
	}
}

// A nil slice in an output is a valid value.
func TestNilSlicesAreValues(t *testing.T) {
	t.Parallel()
	type lists struct {
		Bytes []byte          `json:"bytes"`
		Names []string        `json:"names"`
		Any   json.RawMessage `json:"any"`
	}
	tool := makeTool(t, domain.Spec[question, lists]{Execute: func(context.Context, question, domain.Invocation) (l lists, err error) { return }})
	if got, want := string(run(t, tool, `{"query":""}`).Structured()), `{"bytes":null,"names":null,"any":null}`; got != want {
		t.Errorf("structured = %s, want %s", got, want)
	}
}

// The codec of JSON rejects unknown fields and a second document.
func TestJSONCodecTakesOneDocumentOfKnownFields(t *testing.T) {
	t.Parallel()
	c := domain.JSON[question]()
	for _, document := range []string{``, `{"query":"q","more":1}`, `{"query":"q"} {}`, `{"query":"q"}]`, `{"query":1}`} {
		if got, err := c.Decode(json.RawMessage(document)); err == nil || got != (question{}) {
			t.Errorf("Decode(%s) = %+v, %v, want an error and the zero value", document, got, err)
		}
	}
	want := question{Query: "<&>", Limit: 3}
	data, err := c.Encode(want)
	if err != nil || string(data) != `{"query":"<&>","limit":3}` {
		t.Errorf("Encode = %s, %v", data, err)
	}
	if got, err := c.Decode(data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Decode(%s) = %+v, %v, want %+v", data, got, err, want)
	}
}

// A number beyond the Go type is a violation with its path.
func TestNumberBeyondIntIsAViolationWithItsPath(t *testing.T) {
	t.Parallel()
	type limited struct {
		Limit int `json:"limit"`
	}
	tool, err := domain.Make(domain.Spec[limited, string]{
		Description: "for a test",
		Execute:     func(context.Context, limited, domain.Invocation) (string, error) { return "", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tool.Bind(json.RawMessage(`{"limit":99999999999999999999}`))
	if want := "/limit: number 99999999999999999999 does not fit int"; !errors.Is(err, domain.ErrInvalidInput) || err.Error() != want {
		t.Fatalf("Bind = %v, want %s", err, want)
	}
}
