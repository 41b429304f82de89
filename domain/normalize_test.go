package domain_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

type measured struct {
	Count  int             `json:"count,omitempty"`
	Ratio  float64         `json:"ratio,omitempty"`
	Text   string          `json:"text,omitempty"`
	Sizes  []int           `json:"sizes,omitempty"`
	Nested *question       `json:"nested,omitempty"`
	Named  map[string]int  `json:"named,omitempty"`
	Free   json.RawMessage `json:"free,omitempty"`
}

func echo[T any](_ context.Context, in T, _ domain.Invocation) (T, error) { return in, nil }

// A string with a number is accepted where the schema requires a number.
func TestNumberMayBeWrittenAsAString(t *testing.T) {
	t.Parallel()
	tool := makeTool(t, domain.Spec[measured, measured]{Execute: echo[measured]})
	for input, want := range map[string]string{
		`{"count":"10"}`:                       `{"count":10}`,
		`{"count":" -3 "}`:                     `{"count":-3}`,
		`{"count":"1e2"}`:                      `{"count":100}`,
		`{"count":10.0}`:                       `{"count":10}`,
		`{"ratio":"0.5"}`:                      `{"ratio":0.5}`,
		`{"sizes":["1",2]}`:                    `{"sizes":[1,2]}`,
		`{"nested":{"query":"7","limit":"7"}}`: `{"nested":{"query":"7","limit":7}}`,
		`{"named":{"a":"5"}}`:                  `{"named":{"a":5}}`,
		`{"text":"10"}`:                        `{"text":"10"}`,
		`{"count":"1","text":"<é>"}`:           `{"count":1,"text":"<é>"}`,
		`{"free":{"n":"1"}}`:                   `{"free":{"n":"1"}}`,
	} {
		if got := string(run(t, tool, input).Structured()); got != want {
			t.Errorf("%s is taken as %s, want %s", input, got, want)
		}
	}
	for _, input := range []string{
		`{"count":""}`, `{"count":"ten"}`, `{"count":"0x10"}`, `{"count":"1.5"}`, `{"count":"NaN"}`, `{"count":"Infinity"}`, `{"count":"1 2"}`,
		`{"count":"+1"}`, `{"count":"01"}`, `{"count":true}`, `{"count":["1"]}`, `{"text":1}`, `{"count":"1e2000000"}`,
	} {
		if _, err := tool.Bind(json.RawMessage(input)); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("Bind(%s) = %v, want ErrInvalidInput", input, err)
		}
	}
}

// A number in a string must match the schema like a number.
func TestNumberAsAStringIsHeldToTheSchema(t *testing.T) {
	t.Parallel()
	tool := makeTool(t, domain.Spec[question, answer]{Input: domain.Constrained[question](`{"properties":{"limit":{"minimum":1}}}`), Execute: reply})
	if _, err := tool.Bind(json.RawMessage(`{"query":"a","limit":"0"}`)); err == nil || !strings.HasPrefix(err.Error(), "/limit: ") {
		t.Errorf("Bind of a limit under the minimum = %v, want a fault at /limit", err)
	}
	if schema := string(tool.Describe("t").Input); !strings.Contains(schema, `"limit":{"minimum":1,"type":"integer"}`) {
		t.Errorf("the schema is %s: it tells the model of strings", schema)
	}
}

// The error for a number beyond every Go integer is short.
func TestNumberThatNoIntegerHoldsIsRefusedInFewWords(t *testing.T) {
	t.Parallel()
	tool := makeTool(t, domain.Spec[measured, measured]{Execute: echo[measured]})
	for _, number := range []string{"1e400", "1e1000", "-2.5e999", "1e41"} {
		for _, input := range []string{`{"count":` + number + `}`, `{"count":"` + number + `"}`} {
			if _, err := tool.Bind(json.RawMessage(input)); !errors.Is(err, domain.ErrInvalidInput) || !strings.Contains(err.Error(), "/count: number "+number+" does not fit int") {
				t.Errorf("Bind(%s) = %v, want the number as it was written", input, err)
			}
		}
	}
}

// A foreign is a codec with a schema from outside the program.
type foreign struct{ schema string }

func (f foreign) Schema() json.RawMessage                             { return json.RawMessage(f.schema) }
func (foreign) Decode(data json.RawMessage) (json.RawMessage, error)  { return data, nil }
func (foreign) Encode(value json.RawMessage) (json.RawMessage, error) { return value, nil }

// Numbers in strings are converted behind local references of the schema too.
func TestNumberIsFoundBehindLocalReferences(t *testing.T) {
	t.Parallel()
	tool := makeTool(t, domain.Spec[json.RawMessage, json.RawMessage]{
		Input: foreign{`{"type":"object","properties":{"n":{"$ref":"#/$defs/n"},"self":{"$ref":"#/properties/self"},"either":{"type":["integer","string"]},
			"maybe":{"type":["null","number"]},"pair":{"type":"array","prefixItems":[{"type":"integer"}]}},"$defs":{"n":{"type":"integer"}}}`},
		Output:  foreign{`true`},
		Execute: echo[json.RawMessage],
	})
	for input, want := range map[string]string{
		`{"n":"3"}`: `{"n":3}`, `{"either":"3"}`: `{"either":"3"}`, `{"maybe":"3"}`: `{"maybe":3}`, `{"pair":["3","3"]}`: `{"pair":[3,"3"]}`, `{"other":"3"}`: `{"other":"3"}`,
		`{"maybe":null, "x":1e3}`: `{"maybe":null,"x":1e3}`,
	} {
		if got := string(run(t, tool, input).Structured()); got != want {
			t.Errorf("%s is taken as %s, want %s", input, got, want)
		}
	}
}

// hugeNumbers are numbers whose exact value takes too much time or memory to
// compute.
var hugeNumbers = map[string]string{
	"exponent": "1e2000000", "negative exponent": "1e-2000000", "exponent beyond int": "1e99999999999999999999", "exponent just over": "1e1001",
	"digits": strings.Repeat("9", 256<<10), "fraction": "0." + strings.Repeat("3", 1001), "zeros": "1" + strings.Repeat("0", 5000) + "e-5000",
}

// A huge number is an invalid input, found without computing its value.
func TestHugeNumberIsInvalidInputAtOnce(t *testing.T) {
	t.Parallel()
	tool := makeTool(t, domain.Spec[map[string]json.Number, json.RawMessage]{
		Output: foreign{`{"type":"object","additionalProperties":{"type":"number","maximum":1e400}}`},
		Execute: func(_ context.Context, in map[string]json.Number, _ domain.Invocation) (json.RawMessage, error) {
			return json.RawMessage(in["raw"]), nil
		},
	})
	for name, number := range hugeNumbers {
		for _, input := range []string{`{"n/m":` + number + `}`, `{"n/m":"` + number + `"}`} {
			_, err := tool.Bind(json.RawMessage(input))
			if !errors.Is(err, domain.ErrInvalidInput) || !strings.Contains(err.Error(), "/n~1m: ") {
				t.Errorf("Bind of %s = %.200v, want an ErrInvalidInput at /n~1m", name, err)
			}
			if len(err.Error()) > 2000 {
				t.Errorf("Bind of %s is refused in %d bytes", name, len(err.Error()))
			}
		}
		if _, err := domain.Make(domain.Spec[json.RawMessage, json.RawMessage]{
			Description: "d", Input: foreign{`{"type":"object","properties":{"n":{"maximum":` + number + `}}}`}, Execute: echo[json.RawMessage],
		}); !errors.Is(err, domain.ErrBadSchema) {
			t.Errorf("Make with a schema of %s = %.200v, want ErrBadSchema", name, err)
		}
	}
	if _, err := tool.Bind(json.RawMessage(`{"n":1e1000,"m":-1.5e-1000,"o":` + strings.Repeat("9", 1000) + `}`)); err != nil {
		t.Errorf("Bind of numbers at the limits = %v", err)
	}
}

// A huge number is an invalid output, found without computing its value.
func TestHugeNumberIsInvalidOutputAtOnce(t *testing.T) {
	t.Parallel()
	for name, number := range hugeNumbers {
		tool := makeTool(t, domain.Spec[question, json.RawMessage]{Output: foreign{`{"type":"object"}`}, Execute: func(context.Context, question, domain.Invocation) (json.RawMessage, error) {
			return json.RawMessage(`{"list":[1,` + number + `]}`), nil
		}})
		if _, err := bind(t, tool, `{"query":""}`).Run(t.Context(), invocation()); !errors.Is(err, domain.ErrInvalidOutput) || !strings.HasPrefix(err.Error(), "/list/1: ") {
			t.Errorf("Run with %s = %.200v, want an ErrInvalidOutput at /list/1", name, err)
		}
	}
}

// Ignoring drops the given keys from an input, and no others.
func TestIgnoredKeyIsDroppedAndNoOther(t *testing.T) {
	t.Parallel()
	tool := makeTool(t, domain.Spec[question, answer]{Input: domain.Ignoring(domain.JSON[question](), "description"), Execute: reply})
	for _, input := range []string{`{"query":"q","description":"List files"}`, `{"description":{"any":[1]},"query":"q","limit":"2"}`} {
		if got := string(run(t, tool, input).Structured()); got != `{"text":"q"}` {
			t.Errorf("%s gives %s", input, got)
		}
	}
	for _, input := range []string{`{"query":"q","descriptions":""}`, `{"query":"q","Description":""}`, `{"description":"q"}`, `"description"`, `{"query":"q","description":1e2000000}`} {
		if _, err := tool.Bind(json.RawMessage(input)); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("Bind(%s) = %v, want ErrInvalidInput", input, err)
		}
	}
	if schema := string(tool.Describe("t").Input); strings.Contains(schema, "description") {
		t.Errorf("the schema is %s: it tells the model of the key", schema)
	}
	if _, err := domain.Make(domain.Spec[chan int, answer]{
		Description: "d", Input: domain.Ignoring(domain.JSON[chan int](), "x"), Execute: func(context.Context, chan int, domain.Invocation) (answer, error) { return answer{}, nil },
	}); !errors.Is(err, domain.ErrBadSchema) {
		t.Errorf("Make with a codec without a schema = %v, want ErrBadSchema", err)
	}
}

// FuzzBind checks that Bind accepts an input or returns ErrInvalidInput, and that
// it accepts the output of the echo of an accepted input.
func FuzzBind(f *testing.F) {
	for _, seed := range []string{
		`{"count":"10"}`, `{"count":1e2000000}`, `{"sizes":["1",2.0]}`, `{"nested":{"query":"","limit":"-0"}}`, `{"named":{"~":"1e1"}}`, `[]`, `{"free":{"a":1e999}}`, `{"ratio":"1e-1000"}`,
	} {
		f.Add(seed)
	}
	tool := makeTool(f, domain.Spec[measured, measured]{Input: domain.Ignoring(domain.JSON[measured](), "description"), Execute: echo[measured]})
	f.Fuzz(func(t *testing.T, input string) {
		bound, err := tool.Bind(json.RawMessage(input))
		if err != nil {
			if !errors.Is(err, domain.ErrInvalidInput) {
				t.Fatalf("Bind(%q) = %v, want ErrInvalidInput", input, err)
			}
			return
		}
		out, err := bound.Run(t.Context(), invocation())
		if err != nil {
			t.Fatalf("Run of %q = %v", input, err)
		}
		again, err := tool.Bind(out.Structured())
		if err != nil {
			t.Fatalf("what %q is taken as is refused: %s: %v", input, out.Structured(), err)
		}
		if second, err := again.Run(t.Context(), invocation()); err != nil || string(second.Structured()) != string(out.Structured()) {
			t.Fatalf("%q is taken as %s, and that as %s, %v", input, out.Structured(), second.Structured(), err)
		}
	})
}
