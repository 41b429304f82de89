package mcp

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// No result makes the client panic. A result with a type other than complete is no
// success, and a success has a document that its codec accepts.
func FuzzMCPResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"}]}`, `{"resultType":"task"}`, `{"resultType":"complete","content":[]}`, `{"resultType":null}`,
		`{"content":[{"type":"image","data":"cG5n","mimeType":"image/png"},{"type":"resource","resource":{"uri":"x","blob":"!"}}]}`,
		`{"structuredContent":{"a":[1,2.5e300,"\u0061"]},"isError":true}`, `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[null]}}}}}}}}`,
		`{"resultType":"complete","resultType":"task","content":[]}`, "{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}", `[]`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	clean := cleaner{secrets.New("a secret of the fuzz")}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, kind, err := parseResult(data)
		if err != nil {
			if kind != 0 {
				t.Errorf("parseResult(%q) = kind %d with an error", data, kind)
			}
			return
		}
		var first struct {
			ResultType *json.RawMessage `json:"resultType"`
		}
		if json.Unmarshal(data, &first) == nil && first.ResultType != nil && string(*first.ResultType) != `"complete"` && kind != inputResult {
			var text string
			if json.Unmarshal(*first.ResultType, &text) != nil || text != "complete" {
				t.Errorf("parseResult(%q) = kind %d, want no success of this type", data, kind)
			}
		}
		switch kind {
		case completeResult:
			for _, schema := range []bool{false, true} {
				out, err := r.output(clean, schema)
				if err == nil && !json.Valid(out.document) {
					t.Errorf("output of %q = %q, want JSON", data, out.document)
				}
				if err == nil && !schema {
					presentDocument(t, out)
				}
			}
		case failedResult:
			r.failure(clean)
		case inputResult:
			var requests map[string]struct {
				Params struct {
					Schema json.RawMessage `json:"requestedSchema"`
				} `json:"params"`
			}
			_ = json.Unmarshal(r.InputRequests, &requests)
			for _, request := range requests {
				fields, err := formFields([]byte(request.Params.Schema))
				for _, field := range fields {
					_, _ = field.value([]string{"1"})
				}
				if err == nil && len(fields) == 0 {
					t.Errorf("the form %s has no question", request.Params.Schema)
				}
			}
		}
	})
}

// presentDocument fails the test unless a tool accepts and presents the output.
func presentDocument(t *testing.T, out callOutput) {
	t.Helper()
	tool, err := domain.Make(domain.Spec[json.RawMessage, callOutput]{
		Description: "d", Input: rawInput{json.RawMessage(`{"type":"object"}`)}, Output: outputCodec{json.RawMessage(blocksSchema)}, Present: presentOutput,
		Execute: func(context.Context, json.RawMessage, domain.Invocation) (callOutput, error) { return out, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := tool.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bound.Run(t.Context(), domain.Invocation{}); err != nil {
		t.Errorf("run with %q: %v", out.document, err)
	}
}
