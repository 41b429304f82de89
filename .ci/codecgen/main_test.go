package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// domainSource is the package domain of the tests.
const domainSource = `package domain

import "encoding/json"

type kind struct{}

type ID[K any] struct{ u [16]byte }

func (id ID[K]) IsZero() bool { return true }

type TurnID = ID[kind]

type Name string

type Effect uint8

func (e Effect) String() string                   { return "" }
func (e Effect) MarshalText() ([]byte, error)     { return nil, nil }
func (e *Effect) UnmarshalText(text []byte) error { return nil }

type Rule struct {
	Action string ` + "`json:\"action\" codec:\"intern\"`" + `
	Effect Effect ` + "`json:\"effect,omitempty\"`" + `
}

type Own struct{}

func (o Own) MarshalJSON() ([]byte, error) { return nil, nil }

type Input struct {
	Raw json.RawMessage ` + "`json:\"raw\"`" + `
}
`

// table is a table of the kind Asked alone.
const table = "var kinds = map[string]kind{\n\"Asked\": of[Asked](),\n}\n"

// generateFrom runs the generator on the body of a package events, in which '
// quotes the tags, and on domainSource.
func generateFrom(t *testing.T, body string) (string, error) {
	t.Helper()
	events, domain := t.TempDir(), t.TempDir()
	source := "package events\n\nimport (\n\"encoding/json\"\n\"time\"\n\n\"example.com/m/domain\"\n)\n\n" + strings.ReplaceAll(body, "'", "`")
	if err := os.WriteFile(filepath.Join(events, "session.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(domain, "domain.go"), []byte(domainSource), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := generate(events, domain)
	return string(out), err
}

func TestErrorsNameFileStructAndField(t *testing.T) {
	t.Parallel()
	asked := func(fields string) string { return table + "type Asked struct {\n" + fields + "\n}\n" }
	for name, c := range map[string]struct{ body, want string }{
		"unknown type":           {asked("Rate float64 'json:\"rate\"'"), "session.go:14: struct Asked, field Rate: type float64 has no encoding"},
		"interface":              {asked("Any any 'json:\"any\"'"), "field Any: type any has no encoding"},
		"array":                  {asked("Sum [4]string 'json:\"sum\"'"), "field Sum: type [n]string has no encoding"},
		"channel":                {asked("C chan int 'json:\"c\"'"), "field C: type chan has no encoding"},
		"bytes":                  {asked("Data []byte 'json:\"data\"'"), "field Data: type byte has no encoding"},
		"list of IDs":            {asked("Turns []domain.TurnID 'json:\"turns\"'"), "field Turns: type []domain.TurnID has no encoding"},
		"other package":          {asked("D time.Duration 'json:\"d\"'"), "field D: type time.Duration has no encoding"},
		"own JSON methods":       {asked("Own domain.Own 'json:\"own\"'"), "field Own: type domain.Own, with JSON methods of its own, has no encoding"},
		"unknown type of domain": {asked("X domain.X 'json:\"x\"'"), "field X: type X has no encoding"},
		"field in a field":       {asked("In Inner 'json:\"in\"'") + "type Inner struct { Rate float64 'json:\"rate\"' }", "session.go:16: struct Inner, field Rate: type float64 has no encoding"},
		"no key":                 {asked("Text string"), `struct Asked, field Text: JSON key ""`},
		"ignored field":          {asked("Text string 'json:\"-\"'"), `struct Asked, field Text: JSON key "-"`},
		"key with an escape":     {asked("Text string 'json:\"a<b\"'"), `struct Asked, field Text: JSON key "a<b"`},
		"unexported field":       {asked("text string 'json:\"text\"'"), "struct Asked, field text: encoding/json ignores an unexported field"},
		"unknown JSON option":    {asked("N int 'json:\"n,string\"'"), `struct Asked, field N: options "string" of the JSON tag`},
		"unknown codec tag":      {asked("Text string 'json:\"text\" codec:\"interned\"'"), `struct Asked, field Text: codec tag "interned" is unknown`},
		"interned number":        {asked("N int 'json:\"n\" codec:\"intern\"'"), "struct Asked, field N: codec tag intern is for strings"},
		"omitempty of a struct":  {asked("Rule domain.Rule 'json:\"rule,omitempty\"'"), "struct Asked, field Rule: omitempty never omits a domain.Rule: use omitzero"},
		"omitzero of a struct":   {asked("Input domain.Input 'json:\"input,omitzero\"'"), "struct Asked, field Input: omitzero needs a method IsZero of domain.Input"},
		"embedded string":        {asked("domain.Name"), "struct Asked, field Name: an embedded field must be a struct"},
		"duplicate key":          {asked("A string 'json:\"text\"'\nB string 'json:\"text\"'"), `struct Asked has two fields with the JSON key "text"`},
		"keys that differ in case": {
			asked("A string 'json:\"Text\"'\nB string 'json:\"text\"'"), `struct Asked has two fields with the JSON key "text"`,
		},
		"duplicate key of an embedded struct": {
			asked("domain.Rule\nAction string 'json:\"action\"'"), `struct Asked has two fields with the JSON key "action"`,
		},
		"duplicate kind": {
			"var kinds = map[string]kind{\n\"Asked\": of[Asked](),\n\"Asked\": of[Told](),\n}\ntype Asked struct{}\ntype Told struct{}",
			"session.go:12: kind Asked has two lines in the table",
		},
		"duplicate struct": {
			"var kinds = map[string]kind{\n\"Asked\": of[Asked](),\n\"Told\": of[Asked](),\n}\ntype Asked struct{}",
			"session.go:12: struct Asked has two kinds in the table, Asked and Told",
		},
		"line without a struct":    {table, "session.go:11: kind Asked has no struct: declare type Asked"},
		"struct without a line":    {asked("") + "type Told struct { Text string 'json:\"text\"' }", "session.go:16: struct Told has JSON keys, but neither a line in the table"},
		"malformed line":           {"var kinds = map[string]kind{\n\"Asked\": kind{},\n}", `session.go:11: line of the table of kinds is not "Name": of[Type](upcasts...)`},
		"no table":                 {"type Asked struct{}", "package events has no table of kinds"},
		"not a struct":             {table + "type Asked string", "session.go:13: Asked is not a struct"},
		"one name in two packages": {asked("Rule domain.Rule 'json:\"rule\"'\nOwn Rule 'json:\"own\"'") + "type Rule struct{}", "structs Rule and domain.Rule have one name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := generateFrom(t, c.body)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("generate returned %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestPackedStructIsEncodedInPlaceOfTheEvent(t *testing.T) {
	t.Parallel()
	packed := "var kinds = map[string]kind{\n\"Asked\": packed[Asked, packedAsked](),\n}\ntype Asked struct { Text string 'json:\"text\"' }\n"
	out, err := generateFrom(t, packed+"type packedAsked struct {\nAsked\nSame bool 'json:\"same,omitempty\"'\n}")
	for _, want := range []string{
		"case Asked:\n\t\tp := packAsked(e)\n\t\tpackedAskedFields(c, &p)", "return decodePacked(c, packedAsked{}, packedAskedFields)",
		"askedFields(c, &v.Asked)\n\tc.boolField(`\"same\":`, &v.Same, v.Same)", "func (Asked) Kind() string",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("generate returned\n%s\n%v, want a file with %q", out, err, want)
		}
	}
	if _, err := generateFrom(t, packed); err == nil || !strings.Contains(err.Error(), "kind Asked has no packed struct: declare type packedAsked") {
		t.Errorf("generate without the packed struct returned %v", err)
	}
}

func TestAllErrorsAreReported(t *testing.T) {
	t.Parallel()
	_, err := generateFrom(t, table+"type Asked struct {\nA float64 'json:\"a\"'\nB float64 'json:\"b\"'\n}\ntype Told struct { Text string 'json:\"text\"' }")
	for _, want := range []string{"field A", "field B", "struct Told"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("generate returned %v, want an error with %q", err, want)
		}
	}
}

func TestStatementsFollowTypesAndTags(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"F string 'json:\"f\"'":                           "textField(c, `\"f\":`, &v.F, always)",
		"F domain.Name 'json:\"f,omitempty\"'":            "textField(c, `\"f\":`, &v.F, v.F != \"\")",
		"F string 'json:\"f,omitzero\" codec:\"intern\"'": "nameField(c, `\"f\":`, &v.F, v.F != \"\")",
		"F bool 'json:\"f,omitempty\"'":                   "c.boolField(`\"f\":`, &v.F, v.F)",
		"F int 'json:\"f,omitempty\"'":                    "intField(c, `\"f\":`, &v.F, v.F != 0)",
		"F json.RawMessage 'json:\"f,omitempty\"'":        "c.rawField(`\"f\":`, &v.F, len(v.F) > 0)",
		"F domain.TurnID 'json:\"f,omitzero\"'":           "idField(c, `\"f\":`, &v.F, !v.F.IsZero())",
		"F domain.Effect 'json:\"f,omitzero\"'":           "enumField(c, `\"f\":`, &v.F, v.F != 0)",
		"F []string 'json:\"f\"'":                         "listField(c, `\"f\":`, &v.F, always, textElement)",
		"F []domain.Rule 'json:\"f,omitempty\"'":          "listField(c, `\"f\":`, &v.F, len(v.F) > 0, ruleElement)",
		"F domain.Rule 'json:\"f,omitzero\"'":             "if c.key(`\"f\":`, v.F != domain.Rule{}) {\n\t\truleElement(c, &v.F)\n\t}",
		"domain.Rule":                                     "ruleFields(c, &v.Rule)",
		"F time.Time 'json:\"f,omitzero\"'":               "c.unsupportedField(!v.F.IsZero())",
		"F *domain.Own 'json:\"f,omitempty\"'":            "c.unsupportedField(v.F != nil)",
		"F map[string]string 'json:\"f,omitempty\"'":      "c.unsupportedField(len(v.F) > 0)",
	} {
		source, err := generateFrom(t, table+"type Asked struct {\n"+field+"\n}\n")
		if want = "func askedFields(c *jsonCodec, v *Asked) {\n\t" + want + "\n}\n"; err != nil || !strings.Contains(source, want) {
			t.Errorf("field %s gives error %v and\n%s\nwant\n%s", field, err, source, want)
		}
	}
}

func TestKindWithARequiredTimeIsLeftToEncodingJSON(t *testing.T) {
	t.Parallel()
	const inner = "type Inner struct { F time.Time 'json:\"f\"' }\n"
	for _, body := range []string{
		"type Asked struct { F time.Time 'json:\"f\"' }",
		"type Asked struct { F *domain.Own 'json:\"f\"' }",
		"type Asked struct { F Inner 'json:\"f\"' }\n" + inner,
		"type Asked struct { F []Inner 'json:\"f\"' }\n" + inner,
	} {
		source, err := generateFrom(t, table+body)
		if err != nil {
			t.Errorf("%s gives error %v", body, err)
		}
		if strings.Contains(source, "Fields(c *jsonCodec") || !strings.Contains(source, `func (Asked) Kind() string { return "Asked" }`) {
			t.Errorf("%s gives\n%s\nwant the methods and no codec", body, source)
		}
	}
}

func TestCheckComparesWithTheFile(t *testing.T) {
	t.Parallel()
	events, domain := t.TempDir(), t.TempDir()
	for path, source := range map[string]string{
		filepath.Join(events, "session.go"): "package events\n" + table + "type Asked struct{}\n", filepath.Join(domain, "domain.go"): domainSource,
	} {
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(events, domain, true); err == nil {
		t.Error("check passed without a generated file")
	}
	if err := run(events, domain, false); err != nil {
		t.Fatal(err)
	}
	if err := run(events, domain, true); err != nil {
		t.Errorf("check after generation: %v", err)
	}
	path := filepath.Join(events, output)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(source, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(events, domain, true); err == nil || !strings.Contains(err.Error(), "is not up to date: run go generate ./events") {
		t.Errorf("check of a changed file returned %v", err)
	}
}
