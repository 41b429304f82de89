package domain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// present runs a tool with an encoded output and a presentation, and returns its
// Output.
func present(t *testing.T, encoded string, how func(domain.Encoded[json.RawMessage]) []domain.Content) domain.Output {
	t.Helper()
	spec := domain.Spec[json.RawMessage, json.RawMessage]{
		Input: raw(`{}`), Output: raw(`{}`),
		Execute: func(context.Context, json.RawMessage, domain.Invocation) (json.RawMessage, error) {
			return json.RawMessage(encoded), nil
		},
	}
	if how != nil {
		spec.Present = func(_ json.RawMessage, out domain.Encoded[json.RawMessage]) []domain.Content { return how(out) }
	}
	return run(t, makeTool(t, spec), `{}`)
}

// settled returns the settlement of an output within all limits.
func settled(o domain.Output) domain.Settlement {
	return domain.Settlement{Outcome: domain.Succeeded, Began: true, Structured: o.Structured(), Content: o.Content()}
}

// Without a presentation, the model reads a string as text and any other value as
// JSON.
func TestWithoutAPresentationAStringIsTextAndAnythingElseAsItIs(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]domain.ToolResult{
		`"line\none"`:    {Text: "line\none"},
		" \n\t\"late\" ": {Text: "late"},
		`""`:             {},
		`{"a":"b"}`:      {Structured: json.RawMessage(`{"a":"b"}`)},
		`null`:           {Structured: json.RawMessage(`null`)},
		`["a"]`:          {Structured: json.RawMessage(`["a"]`)},
		`7`:              {Structured: json.RawMessage(`7`)},
	} {
		if got := settled(present(t, encoded, nil)).ToolResult(); !reflect.DeepEqual(got, want) {
			t.Errorf("output %s reads %+v, want %+v", encoded, got, want)
		}
	}
}

// A presentation of text and a file is read as content, and the structured output
// is kept.
// Scenario 2.
func TestTextAndFileReadAsContentBesideTheStructuredOutput(t *testing.T) {
	t.Parallel()
	output := present(t, `{"n":1}`, func(domain.Encoded[json.RawMessage]) []domain.Content {
		return []domain.Content{domain.Text("a chart"), domain.Media{MIME: "image/png", Name: "c.png", Data: []byte("png")}}
	})
	if got := string(output.Structured()); got != `{"n":1}` {
		t.Errorf("structured = %s", got)
	}
	reading := settled(output).ToolResult()
	data, err := json.Marshal(reading.Content)
	want := `[{"type":"text","text":"a chart"},{"type":"file","uri":"data:image/png;base64,cG5n","mime":"image/png","name":"c.png"}]`
	if err != nil || reading.Type() != "content" || string(data) != want {
		t.Errorf("reads as %s %s, %v, want content %s", reading.Type(), data, err, want)
	}
}

// A presentation of one text is read as text.
// Scenario 11.
func TestOneTextReadsAsText(t *testing.T) {
	t.Parallel()
	output := present(t, `[{"todo":"x"}]`, func(out domain.Encoded[json.RawMessage]) []domain.Content {
		var b bytes.Buffer
		if err := json.Indent(&b, out.JSON(), "", "  "); err != nil {
			t.Error(err)
		}
		return []domain.Content{domain.Text(b.String())}
	})
	reading := settled(output).ToolResult()
	if want := "[\n  {\n    \"todo\": \"x\"\n  }\n]"; reading.Type() != "text" || reading.Text != want {
		t.Errorf("reads as %s %q, want text %q", reading.Type(), reading.Text, want)
	}
	if got := string(output.Structured()); got != `[{"todo":"x"}]` {
		t.Errorf("structured = %s", got)
	}
}

// A presentation that changes the bytes it receives does not change the output.
func TestPresentationCannotChangeTheOutput(t *testing.T) {
	t.Parallel()
	output := present(t, `{"a":1}`, func(out domain.Encoded[json.RawMessage]) []domain.Content {
		copy(out.JSON(), `[[[[[[[`)
		return nil
	})
	if got := string(output.Structured()); got != `{"a":1}` {
		t.Errorf("structured = %s, want what was encoded", got)
	}
}

// A codec that changes the bytes it returned does not change the output.
func TestCodecCannotChangeTheOutputAfterwards(t *testing.T) {
	t.Parallel()
	buffer := []byte(`{"a":1}`)
	tool := makeTool(t, domain.Spec[question, answer]{
		Output:  codec[answer]{schema: `{}`, encode: func(answer) (json.RawMessage, error) { return buffer, nil }},
		Execute: reply,
	})
	output := run(t, tool, `{"query":"q"}`)
	copy(buffer, `[[[[[[[`)
	if got := string(output.Structured()); got != `{"a":1}` {
		t.Errorf("structured = %s, want what was encoded", got)
	}
}

// The structured output has no insignificant white space.
func TestOutputIsKeptWithoutInsignificantSpace(t *testing.T) {
	t.Parallel()
	var presented string
	output := present(t, "{ \"a\" : [ 1,\n2 ] }\n", func(out domain.Encoded[json.RawMessage]) []domain.Content {
		presented = string(out.JSON())
		return nil
	})
	if got, want := string(output.Structured()), `{"a":[1,2]}`; got != want || presented != want {
		t.Errorf("structured = %s, presented = %s, want %s", got, presented, want)
	}
}

// WithContent replaces the presentation and no other part.
func TestWithContentReplacesThePresentationOnly(t *testing.T) {
	t.Parallel()
	before := present(t, `"a"`, nil)
	after := before.WithContent(domain.Contents{domain.Text("b")})
	if before.Content().Text() != "a" || after.Content().Text() != "b" || string(after.Structured()) != `"a"` {
		t.Errorf("before %v, after %v of %s", before.Content(), after.Content(), after.Structured())
	}
}
