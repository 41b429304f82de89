package providerstest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// Requests that the API takes are answered, and each request that breaks one rule is
// refused with the status 400 and kept as a fault.
func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	server := providerstest.NewOpenAIServer(func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: []string{"data: [DONE]\n\n"}}
	})
	defer server.Close()
	tool := func(schema string) string {
		return `"tools":[{"type":"function","function":{"name":"read","parameters":` + schema + `}}]`
	}
	flat := func(schema, more string) string {
		return `"tools":[{"type":"function","name":"read","parameters":` + schema + more + `}]`
	}
	const object, user, call = `{"type":"object","properties":{}}`, `{"role":"user","content":"go"}`, `{"id":"c1","type":"function","function":{"name":"read","arguments":"{}"}}`
	asked := `{"role":"assistant","content":null,"tool_calls":[` + call + `]}`
	const item, output = `{"type":"function_call","call_id":"c1","name":"read","arguments":"{}"}`, `{"type":"function_call_output","call_id":"c1","output":"x"}`
	const thought = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"g"}`
	chat := func(messages ...string) string { return `"messages":[` + strings.Join(messages, ",") + `]` }
	input := func(items ...string) string { return `"store":false,"input":[` + strings.Join(items, ",") + `]` }
	answer := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"x"}` }
	for _, c := range []struct {
		path, members, fault string
	}{
		{"chat/completions", chat(user), ""},
		{"chat/completions", chat(user, asked, answer("c1"), user), ""},
		{"chat/completions", chat(user) + "," + tool(object) + `,"tool_choice":"none"`, ""},
		{"chat/completions", chat(), "messages is empty"},
		{"chat/completions", chat(user) + `,"previous_response_id":"x"`, "unknown field"},
		{"chat/completions", chat(user) + `,"tools":[]`, "empty array"},
		{"chat/completions", chat(user) + `,"tool_choice":"none"`, "only allowed when tools"},
		{"chat/completions", chat(user, asked), "without an answer: c1"},
		{"chat/completions", chat(user, asked, user), "without an answer: c1"},
		{"chat/completions", chat(user, asked, answer("c2")), "must answer an open call"},
		{"chat/completions", chat(user, asked, answer("c1"), answer("c1")), "must answer an open call"},
		{"chat/completions", chat(user, answer("c1")), "must answer an open call"},
		{"chat/completions", chat(user, strings.ReplaceAll(asked, "c1", strings.Repeat("c", 41))), "over 40"},
		{"chat/completions", chat(user, strings.ReplaceAll(asked, `"read"`, `"re.ad"`)), "does not match"},
		{"chat/completions", chat(user, strings.Replace(asked, call, call+","+call, 1)), "two calls have the ID"},
		{"chat/completions", chat(user, strings.Replace(asked, call, "", 1)), "tool_calls is empty"},
		{"chat/completions", chat(`{"role":"user","content":""}`), "is empty"},
		{"chat/completions", chat(`{"role":"robot","content":"go"}`), "role"},
		{"chat/completions", chat(user, asked, `{"role":"tool","tool_call_id":"c1","content":[{"type":"image_url","image_url":{"url":"https://x"}}]}`), "not one of"},
		{"chat/completions", chat(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/tiff;base64,AA=="}}]}`), "unsupported image"},
		{"chat/completions", chat(user) + "," + tool(`{"type":"array"}`), "must be of type object"},
		{"chat/completions", chat(user) + "," + tool(`{"type":"object"}`), "missing properties"},
		{"chat/completions", chat(user) + "," + tool(`{"type":"object","properties":{},"anyOf":[]}`), "must not have anyOf"},
		{"chat/completions", chat(user) + "," + tool(`{"type":"object","properties":{"a":{"type":"array"}}}`), "missing items"},
		{"chat/completions", chat(user) + "," + tool(`{"type":"object","properties":{"a":true}}`), "not of type object"},
		{"chat/completions", chat(user) + `,"tools":[` + strings.Repeat(`{},`, 128) + `{}]`, "over the limit of 128"},
		{"responses", input(user), ""},
		{"responses", input(user, thought, item, output) + "," + flat(object, `,"strict":false`), ""},
		{"responses", `"input":[` + user + `]`, "store is not false"},
		{"responses", input(), "input is empty"},
		{"responses", input(`{"role":"user","content":[{"type":"input_image","image_url":"https://x","detail":"auto"}]}`), ""},
		{"responses", input(`{"role":"user","content":[{"type":"input_image","image_url":"https://x","detail":"huge"}]}`), "the detail"},
		{"responses", input(`{"role":"user","content":[{"type":"input_text","text":"x","detail":"auto"}]}`), "the detail"},
		{"responses", input(user, item), "no tool output found"},
		{"responses", input(user, output), "no open call"},
		{"responses", input(user, item, output, output), "no open call"},
		{"responses", input(user, item, item, output), "two calls have the ID"},
		{"responses", input(user, thought), "required following item"},
		{"responses", input(user, thought, user), "required following item"},
		{"responses", input(user, strings.ReplaceAll(item, "c1", strings.Repeat("c", 65))), "over 64"},
		{"responses", input(user, strings.Replace(item, `"name":"read",`, "", 1)), "has or lacks the member name"},
		{"responses", input(user) + "," + flat(object, ""), "lacks strict"},
		{"responses", input(user) + "," + flat(`{"type":"object","properties":{"a":{}}}`, `,"strict":true`), "strict schema"},
		{"responses", input(user) + `,"include":["everything"]`, "unknown"},
		{"responses", input(user) + `,"max_output_tokens":5`, "minimum of 16"},
		{"responses", strings.Replace(input(user), "go", "", 1), "empty"},
	} {
		before := len(server.Faults())
		body := `{"model":"m","stream":true,` + c.members + `}`
		response, err := http.Post(server.URL()+"/"+c.path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		faults := server.Faults()[before:]
		valid := err == nil && response.StatusCode == http.StatusOK && len(faults) == 0
		if c.fault == "" && !valid || c.fault != "" && (response.StatusCode != http.StatusBadRequest || !strings.Contains(fmt.Sprint(faults), c.fault)) {
			t.Errorf("%s %s was answered with %s %s, faults %q; want the fault %q", c.path, body, response.Status, text, faults, c.fault)
		}
	}
}
