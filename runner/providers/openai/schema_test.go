package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/openai"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// A schema becomes one that the API accepts, or the turn is refused with the tool and the
// rule, and nothing is sent.
func TestSchemasAreAcceptedOrRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, want, rule string }{
		{`{"type":"object","properties":{"b":{"type":"string"},"a":{}},"required":["b"],"additionalProperties":false}`, `{"additionalProperties":false,"properties":{"b":{"type":"string"},"a":{}},"required":["b"],"type":"object"}`, ""},
		{``, `{"properties":{},"type":"object"}`, ""},
		{`true`, `{"properties":{},"type":"object"}`, ""},
		{`{}`, `{"properties":{},"type":"object"}`, ""},
		{`{"type":["object","null"]}`, `{"properties":{},"type":"object"}`, ""},
		{`{"type":"object","properties":{"a":true,"b":{"type":"array"},"c":{"type":["array","null"],"items":false}}}`, `{"properties":{"a":{},"b":{"type":"array","items":{}},"c":{"type":["array","null"],"items":{"not":{}}}},"type":"object"}`, ""},
		{`{"type":"object","properties":{"a":{"type":"array","items":[{"type":"string"},true]}}}`, `{"properties":{"a":{"type":"array","items":{"anyOf":[{"type":"string"},{}]}}},"type":"object"}`, ""},
		{`{"type":"object","properties":{"a":{"anyOf":[{"type":"array"},{"type":"object","properties":{"x":{"type":"array"}}}]}}}`, `{"properties":{"a":{"anyOf":[{"type":"array","items":{}},{"type":"object","properties":{"x":{"type":"array","items":{}}}}]}},"type":"object"}`, ""},
		{`{"anyOf":[{"type":"object","properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]}`, `{"properties":{"a":{},"b":{}},"type":"object"}`, ""},
		{`{"type":"object","properties":{"a":{"type":"string"}},"oneOf":[{"required":["a"]},{"properties":{"a":{"type":"number"}}}]}`, `{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"number"}]}},"type":"object"}`, ""},
		{`{"allOf":[{"type":"object","properties":{"a":{}},"required":["a"]},{"type":"object","properties":{"b":{}},"required":["b"]}],"not":{"required":["c"]}}`, `{"properties":{"a":{},"b":{}},"required":["a","b"],"type":"object"}`, ""},
		{`{"type":"array","items":{}}`, "", "of type object"},
		{`{"type":"string"}`, "", "of type object"},
		{`false`, "", "of type object"},
		{`[]`, "", "of type object"},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, "", "of type object"},
		{`{"enum":[{}]}`, "", "no enum or const"},
		{`{"anyOf":[{"type":"string"},{"type":"object"}]}`, "", "contain objects only"},
		{`{"anyOf":[true]}`, `{"properties":{},"type":"object"}`, ""},
		{`{"oneOf":[{"$ref":"#/$defs/a"}]}`, "", "contain objects only"},
		{`{"anyOf":{}}`, "", "contain objects only"},
		{`{"type":"object","properties":{"a":` + strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100) + `}}`, "", "64 levels"},
	} {
		for _, format := range formats {
			server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
			p := provider(t, server, openai.Config{API: format})
			asked := turn(prompt("go"))
			asked.Tools = []domain.Definition{{Name: "acme_read", Input: json.RawMessage(c.schema)}}
			record, err := p.PrepareRequest(asked)
			got := ask(t, p, asked)
			if c.rule != "" {
				for _, err := range []error{err, got.err} {
					refused, ok := errors.AsType[*runner.IncompatibleError](err)
					if !ok || refused.Tool != "acme_read" || refused.Model != "m-1" || !strings.Contains(refused.Rule, c.rule) {
						t.Errorf("%s: %v, want the rule %q", c.schema, err, c.rule)
					}
				}
				if len(server.Requests()) > 0 {
					t.Errorf("%s was sent", c.schema)
				}
				continue
			}
			if err != nil || got.err != nil || !strings.Contains(record.Schemas, `"parameters":`+c.want) {
				t.Errorf("%s becomes %s, %v, %v; want %s", c.schema, record.Schemas, err, got.err, c.want)
			}
		}
	}
}

// A turn with more tools than a request may have, or with a name that the API does not
// accept, is refused before it is sent.
func TestTooManyToolsAndBadNamesAreRefused(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
		p := provider(t, server, openai.Config{API: format})
		asked := turn(prompt("go"))
		for i := range 128 {
			asked.Tools = append(asked.Tools, domain.Definition{Name: domain.Name(fmt.Sprintf("tool_%d", i))})
		}
		if got := ask(t, p, asked); got.err != nil {
			t.Errorf("128 tools: %v", got.err)
		}
		for name, rule := range map[domain.Name]string{"one_more": "at most 128 tools", "bad.name": "the name of a tool"} {
			more := asked
			more.Tools = append(asked.Tools[:127:127], domain.Definition{Name: name})
			if name == "one_more" {
				more.Tools = append(asked.Tools[:128:128], domain.Definition{Name: name})
			}
			_, err := p.PrepareRequest(more)
			if refused, ok := errors.AsType[*runner.IncompatibleError](err); !ok || !strings.Contains(refused.Rule, rule) {
				t.Errorf("%s: %v, want the rule %q", name, err, rule)
			}
		}
		if n := len(server.Requests()); n != 1 {
			t.Errorf("%d requests were sent, want 1", n)
		}
	})
}
