package providerstest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// Requests that the Messages API takes are answered, and each request that breaks one rule
// is refused with the status 400 and kept as a fault.
func TestInvalidRequestsToAnthropicAreRefused(t *testing.T) {
	t.Parallel()
	server := providerstest.NewAnthropicServer(func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: providerstest.AnthropicStream("m", providerstest.AnthropicReply{Text: "ok"})}
	})
	defer server.Close()
	const tool = `{"name":"read","input_schema":{"type":"object","properties":{"path":{}}}}`
	const tools = `"tools":[` + tool + `]`
	const thinks = `"thinking":{"type":"enabled","budget_tokens":1024}`
	const text = `{"type":"text","text":"go"}`
	const mark = `"cache_control":{"type":"ephemeral"}`
	marked := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"go",`+mark+`},`, n), ",")
	}
	user := func(blocks ...string) string { return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}` }
	says := func(blocks ...string) string {
		return `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]}`
	}
	call := func(id string) string { return `{"type":"tool_use","id":"` + id + `","name":"read","input":{}}` }
	result := func(id string) string { return `{"type":"tool_result","tool_use_id":"` + id + `"}` }
	const thought = `{"type":"thinking","thinking":"hm","signature":"s"}`
	failed := func(content string) string {
		return `{"type":"tool_result","tool_use_id":"a","is_error":true,"content":` + content + `}`
	}
	messages := func(list ...string) string { return `"messages":[` + strings.Join(list, ",") + `]` }
	answered := func(answer string) string {
		return messages(user(text), says(call("a")), user(answer)) + "," + tools
	}
	image := func(kind, data string) string {
		return `{"type":"image","source":{"type":"base64","media_type":"` + kind + `","data":"` + data + `"}}`
	}
	hello := messages(`{"role":"user","content":"go"}`)
	for _, c := range []struct{ members, fault string }{
		{hello, ""},
		{messages(user(text), says(text), user(text)) + `,"system":"Be brief.","temperature":1`, ""},
		{messages(user(text), says(thought, call("a"), call("b")), user(result("a"), result("b"), text)) + "," + tools + "," + thinks, ""},
		{messages(user(text), says(thought, call("a")), user(result("a")), says(call("b")), user(result("b"))) + "," + tools + "," + thinks, ""},
		{messages(user(text), says(call("a")), user(result("a"))) + "," + tools + `,"thinking":{"type":"adaptive","display":"summarized"},"tool_choice":{"type":"none"}`, ""},
		{answered(failed(`"no"`)), ""},
		{answered(`{"type":"tool_result","tool_use_id":"a","content":[` + image("image/png", "AA==") + `,{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="}}]}`), ""},
		{messages(user(marked(4))), ""},
		{hello + `,"top_q":1`, "unknown field"},
		{hello + `,"model":""`, "field required"},
		{hello + `,"max_tokens":0`, "under 1"},
		{hello + `,"stream":false`, "only streams"},
		{hello + `,"system":7`, "system: content"},
		{messages(`{"role":"user","content":7}`), "messages.0.content"},
		{answered(strings.Replace(failed("7"), "true", "false", 1)), "tool_result.content"},
		{messages(user(`{"type":"image","source":{"type":"text","media_type":"text/plain","data":"x"}}`)), "is not a source of a image"},
		{hello + "," + strings.Replace(tools, `{"name"`, `{"type":"bash","name"`, 1), "is unknown"},
		{hello + "," + strings.Replace(tools, `{"name"`, `{"cache_control":{"type":"x"},"name"`, 1), "is unknown"},
		{hello + "," + tools + `,"tool_choice":{"type":"none","disable_parallel_tool_use":true}`, "not permitted with the type none"},
		{hello + `,"tools":[{"name":"read","input_schema":[]}]`, "is not an object"},
		{hello + "," + strings.Replace(tools, `{"path":{}}`, `[]`, 1), "is not an object"},
		{hello + `,"temperature":1.5`, "not between 0 and 1"},
		{hello + `,"thinking":{"type":"enabled","budget_tokens":1000}`, "under 1024"},
		{hello + `,"thinking":{"type":"enabled","budget_tokens":9999}`, "is not over"},
		{hello + `,"thinking":{"type":"adaptive","budget_tokens":2000}`, "not permitted"},
		{hello + `,"thinking":{"type":"on"}`, "is unknown"},
		{hello + "," + thinks + `,"temperature":0.5`, "may only be 1"},
		{hello + "," + thinks + "," + tools + `,"tool_choice":{"type":"any"}`, "forces tool use"},
		{hello + `,"system":""`, "non-whitespace"},
		{hello + `,"system":[` + image("image/png", "AA==") + `]`, "is not text"},
		{hello + `,"tool_choice":{"type":"none"}`, "while providing tools"},
		{hello + "," + tools + `,"tool_choice":{"type":"tool","name":"edit"}`, "is not a tool"},
		{hello + "," + tools + `,"tool_choice":{"type":"never"}`, "is unknown"},
		{hello + `,"tools":[` + tool + "," + tool + `]`, "must be unique"},
		{hello + "," + strings.Replace(tools, `"read"`, `"re.ad"`, 1), "does not match"},
		{hello + "," + strings.Replace(tools, `"read"`, `"`+strings.Repeat("n", 65)+`"`, 1), "does not match"},
		{hello + "," + strings.Replace(tools, `"type":"object"`, `"type":"array"`, 1), "is not object"},
		{hello + "," + strings.Replace(tools, `"type":"object"`, `"type":"object","anyOf":[]`, 1), "at the top level"},
		{hello + "," + strings.Replace(tools, `"path"`, `"filter[path]"`, 1), "does not match"},
		{messages(), "at least one message"},
		{messages(user()), "non-empty content"},
		{messages(`{"role":"user","content":""}`), "non-whitespace"},
		{messages(user(`{"type":"text","text":" "}`)), "non-whitespace"},
		{messages(user(`{"type":"text"}`)), "field required"},
		{messages(user(`{"type":"text","text":"go","id":"x"}`)), "extra inputs"},
		{messages(user(`{"type":"video"}`)), "has no block of the type"},
		{messages(says(text)), "roles must alternate"},
		{messages(user(text), user(text)), "roles must alternate"},
		{messages(`{"role":"system","content":"go"}`), "roles must alternate"},
		{messages(user(text), says(text)), "must end with a user message"},
		{messages(user(text), says(thought), user(text)), "cannot be thinking"},
		{messages(user(text), says(strings.Replace(thought, `"s"`, `""`, 1), text), user(text)), "missing or invalid"},
		{messages(user(text), says(strings.Replace(thought, `{`, `{`+mark+`,`, 1), text), user(text)), "not permitted on thinking"},
		{messages(user(thought)), "has no block of the type"},
		{messages(user(text), says(image("image/png", "AA==")), user(text)), "has no block of the type"},
		{messages(user(text), says(call("a")), user(result("a"))) + "," + tools + "," + thinks, "must start with a thinking block"},
		{messages(user(text), says(call("a")), user(result("a")), says(thought, call("b")), user(result("b"))) + "," + tools + "," + thinks, "must start with a thinking block"},
		{messages(user(text), says(call("a")), user(result("a"))), "must define tools"},
		{messages(user(text), says(call("a")), user(text)) + "," + tools, "without tool_result blocks"},
		{messages(user(text), says(call("a"), call("b")), user(result("a"))) + "," + tools, "without tool_result blocks"},
		{messages(user(text), says(call("a"), call("b")), user(result("b"), result("a"))) + "," + tools, "not in the order"},
		{messages(user(text), says(call("a"), call("a")), user(result("a"))) + "," + tools, "must be unique"},
		{messages(user(text), says(call("a")), user(result("a")), says(call("a")), user(result("a"))) + "," + tools, "must be unique"},
		{messages(user(text), says(call("a")), user(result("a"), result("a"))) + "," + tools, "one corresponding tool_use"},
		{answered(result("b")), "one corresponding tool_use"},
		{messages(user(text), says(call("a")), user(text, result("a"))) + "," + tools, "must come first"},
		{messages(user(text), says(call("a.b")), user(result("a.b"))) + "," + tools, "does not match"},
		{messages(user(text), says(strings.Replace(call("a"), `"read"`, `"re ad"`, 1)), user(result("a"))) + "," + tools, "does not match"},
		{messages(user(text), says(strings.Replace(call("a"), `{}`, `"{}"`, 1)), user(result("a"))) + "," + tools, "not a valid dictionary"},
		{answered(failed(`[]`)), "cannot be empty"},
		{answered(failed(`""`)), "cannot be empty"},
		{answered(failed(`[` + image("image/png", "AA==") + `]`)), "must be of the type text"},
		{answered(strings.Replace(failed(`[`+call("b")+`]`), "true", "false", 1)), "a result has no block"},
		{answered(strings.Replace(failed(`[{"type":"text","text":""}]`), "true", "false", 1)), "non-whitespace"},
		{messages(user(image("image/tiff", "AA=="))), "are not base64 of a image"},
		{messages(user(image("image/png", ""))), "are not base64 of a image"},
		{messages(user(image("image/png", "%%"))), "are not base64 of a image"},
		{messages(user(`{"type":"image","source":{"type":"url","url":"http://x"}}`)), "not an address of https"},
		{messages(user(`{"type":"document","source":{"type":"file"}}`)), "is unknown"},
		{messages(user(strings.Replace(text, `{`, `{"cache_control":{"type":"forever"},`, 1))), "is unknown"},
		{messages(user(marked(4))) + "," + strings.Replace(tools, `{"name"`, `{`+mark+`,"name"`, 1), "maximum of 4"},
	} {
		before := len(server.Faults())
		body := `{"model":"m","max_tokens":2048,"stream":true,` + c.members + `}`
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+"/v1/messages", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {"2023-06-01"}}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		faults := server.Faults()[before:]
		valid := err == nil && response.StatusCode == http.StatusOK && len(faults) == 0
		if c.fault == "" && !valid || c.fault != "" && (response.StatusCode != http.StatusBadRequest || !strings.Contains(fmt.Sprint(faults), c.fault)) {
			t.Errorf("%s was answered with %s %s, faults %q; want the fault %q", body, response.Status, answer, faults, c.fault)
		}
	}
	for _, c := range []struct{ path, version, fault string }{{"/v1/complete", "2023-06-01", "unknown path"}, {"/v1/messages", "", "anthropic-version"}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+c.path, strings.NewReader(`{"model":"m","max_tokens":1,"stream":true,`+hello+`}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Content-Type": {"application/json"}, "Anthropic-Version": {c.version}}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if faults := server.Faults(); response.StatusCode != http.StatusBadRequest || !strings.Contains(faults[len(faults)-1], c.fault) {
			t.Errorf("%s was answered with %s, faults %q", c.path, response.Status, faults)
		}
	}
}
