package mcp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// A rawServer is a server written by hand, which breaks the protocol in the way of its
// mode.
type rawServer struct{ mode string }

// line writes a line to standard output.
func line(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

// serve answers requests until the input ends.
func (s rawServer) serve() {
	switch s.mode {
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot start with", os.Getenv("TOKEN"))
		os.Exit(3)
	case "silent":
		time.Sleep(time.Hour)
	case "noise":
		for i := range 5000 {
			line("log line %d", i)
		}
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		data, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string `json:"name"`
				Arguments struct {
					Text string `json:"text"`
				} `json:"arguments"`
				Responses map[string]struct {
					Action  string         `json:"action"`
					Content map[string]any `json:"content"`
				} `json:"inputResponses"`
				State  string `json:"requestState"`
				Cursor string `json:"cursor"`
				Meta   struct {
					Token json.RawMessage `json:"progressToken"`
				} `json:"_meta"`
			} `json:"params"`
		}
		_ = json.Unmarshal(data, &r)
		id := string(r.ID)
		answer := func(result string) { line(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result) }
		switch r.Method {
		case "server/discover":
			if s.mode != "mute" {
				line(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, id)
			}
		case "initialize":
			switch s.mode {
			case "refuses":
				line(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%s}}`, id, quoted("no "+os.Getenv("TOKEN")))
				continue
			case "ancient":
				answer(`{"protocolVersion":"1999-01-01","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
				continue
			case "vast":
				answer(`{"protocolVersion":"` + strings.Repeat("x", 64<<20) + `"}`)
				continue
			case "blank":
				answer(`[]`)
				continue
			}
			answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"1"}}`)
		case "tools/list":
			answer(s.list(r.Params.Cursor))
		case "tools/call":
			if s.mode == "rounds" {
				if a, ok := r.Params.Responses["form"]; !ok {
					extra, form := "", `{"type":"object","properties":{"port":{"type":"integer"},"why":{"type":"string","enum":["test","fun"],"enumNames":["for a test","for fun"]}},"required":["port"]}`
					if r.Params.Arguments.Text == "defaults" {
						form = defaultsForm
					}
					if r.Params.Arguments.Text == "long" {
						form = longForm
					}
					if r.Params.Arguments.Text == "url" {
						extra = `"mode":"url","url":"https://example.com/x",`
					}
					answer(`{"resultType":"input_required","requestState":"s1","inputRequests":{"form":{"method":"elicitation/create","params":{` + extra + `"message":` + quoted("Which port? "+token) +
						`,"requestedSchema":` + form + `}}}}`)
				} else if r.Params.Arguments.Text == "defaults" || r.Params.Arguments.Text == "long" {
					content, _ := json.Marshal(a.Content)
					answer(`{"content":[{"type":"text","text":` + quoted(a.Action+" "+string(content)) + `}]}`)
				} else if a.Action == "accept" && r.Params.State == "s1" {
					answer(fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":"%v %v"}]}`, a.Content["port"], a.Content["why"]))
				} else {
					answer(`{"resultType":"complete","isError":true,"content":[{"type":"text","text":"not accepted"}]}`)
				}
				continue
			}
			s.call(id, r.Params.Name, string(r.Params.Meta.Token), answer)
		}
	}
}

// defaultsForm is a form whose fields have defaults, of which the last four are not of the
// type of their field.
const defaultsForm = `{"type":"object","required":["a","b"],"properties":{"a":{"type":"string","default":"x"},"b":{"type":"integer","default":30},` +
	`"c":{"type":"number","default":95.5},"d":{"type":"string","enum":["on","off"],"default":"off"},"e":{"type":"boolean","default":true},` +
	`"f":{"type":"array","items":{"enum":["p","q"]},"default":["q"]},"g":{"type":"integer","default":"7"},"h":{"type":"string","enum":["on"],"default":"no"},` +
	`"i":{"type":"array","items":{"enum":["p"]},"default":[7]},"j":{"type":"boolean","default":null}}}`

// longForm is a form with 13 fields.
var longForm = func() string {
	fields := make([]string, 13)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"f%02d":{"type":"integer"}`, i)
	}
	return `{"type":"object","properties":{` + strings.Join(fields, ",") + `}}`
}()

// tool returns a definition.
func tool(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"description":"does %s","inputSchema":{"type":"object"}%s}`, name, name, more)
}

// list returns a page of tools.
func (s rawServer) list(cursor string) string {
	switch s.mode {
	case "v1":
		return `{"tools":[{"name":"tool","description":"version v1","inputSchema":{"type":"object"}}]}`
	case "v2":
		return `{"tools":[{"name":"tool","description":"version v2","inputSchema":{"type":"object"}}]}`
	case "v3":
		return `{"tools":[{"name":"tool","description":"version v1","inputSchema":{"type":"object","title":"x"}}]}`
	case "v4":
		return `{"tools":[{"name":"tool","description":"version v1","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`
	case "rounds":
		return `{"tools":[` + tool("ask", "") + `]}`
	case "nolist":
		return `{"tools":"all of them"}`
	case "tasklist":
		return `{"resultType":"task","taskId":"1","tools":[]}`
	case "absentlist":
		return `{}`
	case "vastlist":
		return `{"tools":[` + tool("a", `,"title":"`+strings.Repeat("x", 64<<20)+`"`) + `]}`
	case "dielist":
		os.Exit(9)
	case "many":
		all := make([]string, 2000)
		for i := range all {
			all[i] = tool(fmt.Sprintf("t%04d", i), "")
		}
		return `{"tools":[` + strings.Join(all, ",") + `]}`
	case "pages":
		return fmt.Sprintf(`{"tools":[%s],"nextCursor":"c%s1"}`, tool("p"+cursor, "")[:0]+tool("p"+fmt.Sprint(len(cursor)), ""), cursor)
	case "cursor":
		return fmt.Sprintf(`{"tools":[%s],"nextCursor":"same"}`, tool("p"+cursor, ""))
	case "pair": // a_b_c is b_c of a, and c of a_b
		return `{"tools":[` + tool("b_c", "") + "," + tool("c", "") + `]}`
	case "names":
		long := strings.Repeat("x", 100)
		return `{"tools":[` + strings.Join([]string{
			tool("good", ""), tool("good", `,"title":"second"`), tool("with.dot", ""), tool("with space", ""), tool("", ""), tool(long, ""), tool("bash", ""),
			`null`, `5`, `{"name":7}`, `{"name":"noschema","description":"x"}`, `{"name":"nullschema","inputSchema":null}`,
			`{"name":"array","inputSchema":[]}`, `{"name":"text","inputSchema":{"type":"string"}}`,
			`{"name":"regex","inputSchema":{"type":"object","properties":{"a":{"pattern":"("}}}}`,
			`{"name":"remote","inputSchema":{"type":"object","$ref":"https://example.com/x"}}`,
			`{"name":"big","inputSchema":{"type":"object","description":"` + strings.Repeat("y", 1<<20) + `"}}`,
			`{"name":"output","inputSchema":{"type":"object"},"outputSchema":7}`,
			`{"name":"talk","description":"` + strings.Repeat("z", 100_000) + `","inputSchema":{"type":"object"}}`,
			tool("annotated", `,"annotations":5`), tool("background", `,"execution":{"taskSupport":"required"}`), `{"name":` + quoted(token) + `,"inputSchema":{"type":"object"}}`,
		}, ",") + `]}`
	}
	var all []string
	for _, name := range []string{
		"again", "asks", "cursed", "dup", "empty", "endless", "error", "misshapen", "noresult", "tasked", "errs", "flood", "half", "hang", "huge", "late", "nothing", "null", "odd", "panics", "plain", "pings", "secret", "sized", "steps", "strange", "task", "task25", "text", "twice", "babble", "inputs",
	} {
		all = append(all, tool(name, ""))
	}
	all = append(all, tool("lies", `,"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
		tool("forgets", `,"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
		tool("list", `,"outputSchema":{"type":"array","items":{"type":"integer"}}`),
		tool("beside", `,"outputSchema":{"type":"object"}`), tool("same", `,"outputSchema":{"type":"object"}`), tool("picture", `,"outputSchema":{"type":"object"}`))
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// call answers a call in the way of its tool.
func (s rawServer) call(id, name, progress string, answer func(string)) {
	text := func(text string) string { return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text) }
	secret := os.Getenv("TOKEN")
	switch name {
	case "tool":
		answer(text("called"))
	case "twice":
		answer(text("first"))
		answer(text("second"))
	case "late":
		line(`{"jsonrpc":"2.0","id":99999,"result":%s}`, text("foreign"))
		line(`{"jsonrpc":"2.0","id":"%s","result":%s}`, id, text("as a string"))
		answer(text("own"))
	case "babble":
		for i := range 900 {
			line("noise %d", i)
		}
		line(`{"level":"info","msg":"JSON but no message"}`)
		line(`[{"jsonrpc":"2.0","id":%s,"result":%s}]`, id, text("after the noise"))
	case "flood":
		for i := range 20_000 {
			line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"step %d"}}`, progress, i, i)
		}
		answer(text("after the flood"))
	case "errs":
		for range 2000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("e", 1000))
		}
		answer(text("after the errors"))
	case "huge":
		line(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, text(strings.Repeat("h", 17<<20)))
	case "sized":
		answer(text(strings.Repeat("h", 8<<20)))
	case "half":
		fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":%s,"res`, id)
		os.Exit(0)
	case "hang":
	case "steps":
		line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"total":2,"message":%q}}`, progress, "half "+secret)
		answer(`{"isError":true,"content":[{"type":"text","text":"stopped"}]}`)
	case "task":
		answer(`{"resultType":"task","taskId":"1","content":[]}`)
	case "tasked":
		answer(`{"task":{"taskId":"1","status":"working"},"content":[]}`)
	case "noresult":
		answer(`{"structuredContent":null}`)
	case "error":
		line(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":%s,"data":%s}}`, id, quoted("no "+secret), quoted(secret))
	case "misshapen":
		line(`{"jsonrpc":"2.0","id":%s,"error":"no"}`, id)
	case "cursed":
		answer(`{"content":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`)
	case "again":
		answer(`{"resultType":"input_required","requestState":"busy"}`)
	case "asks":
		answer(`{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}`)
	case "endless":
		go func() {
			for {
				fmt.Fprintln(os.Stderr, strings.Repeat("e", 1000))
			}
		}()
		for i := 0; ; i++ {
			line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, progress, i)
		}
	case "task25":
		answer(`{"task":{"taskId":"1","status":"working"}}`)
	case "odd":
		answer(`{"resultType":"partial","content":[{"type":"text","text":"done"}]}`)
	case "strange":
		answer(`{"resultType":7,"content":[{"type":"text","text":"done"}]}`)
	case "dup":
		answer(`{"resultType":"task","resultType":"complete","content":[{"type":"text","text":"done"}]}`)
	case "empty":
		answer(`{}`)
	case "null":
		answer(`null`)
	case "nothing":
		line(`{"jsonrpc":"2.0","id":%s}`, id)
	case "plain":
		answer(`{"content":[{"type":"hologram","text":"new kind"}]}`)
	case "text":
		answer(`{"content":"done"}`)
	case "lies":
		answer(`{"content":[],"structuredContent":{"n":"seven"}}`)
	case "forgets":
		answer(`{"content":[{"type":"text","text":"seven"}]}`)
	case "list":
		answer(`{"content":[],"structuredContent":[1,20000000000000000001]}`)
	case "beside":
		answer(`{"content":[{"type":"text","text":"{\"n\":1}"},{"type":"image","data":"cG5n","mimeType":"image/png"}],"structuredContent":{"n":1}}`)
	case "same":
		answer(`{"content":[{"type":"text","text":"as text"}],"structuredContent":{"value":"as text"}}`)
	case "picture":
		answer(`{"content":[{"type":"image","data":"cG5n","mimeType":"image/png","_meta":{}}],"structuredContent":{"content":[{"type":"image","data":"cG5n","mimeType":"image/png"}]}}`)
	case "secret":
		escaped := ""
		for _, b := range []byte(secret) {
			escaped += fmt.Sprintf(`\u%04x`, b)
		}
		line(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"<%s>"},{"type":"hologram","name":"<%s>"}],"structuredContent":{"%s":"%s"}}}`, id, escaped, escaped, escaped, escaped)
	case "panics":
		// Each of these would end a client that trusts the SDK with it.
		line(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}`)
		line(`{"jsonrpc":"2.0","id":"a","method":"elicitation/create"}`)
		line(`{"jsonrpc":"2.0","id":"b","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","oneOf":[null]}}}}}`)
		line(`{"jsonrpc":"2.0","id":"c","method":"sampling/createMessage"}`)
		line(`{"jsonrpc":"2.0","id":"d","method":"roots/list","params":null}`)
		line(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
		line(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":"x"}}`, progress)
		line(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":null}`)
		answer(text("still here"))
	case "pings":
		for i := range 500 {
			line(`{"jsonrpc":"2.0","id":"p%d","method":"ping"}`, i)
		}
		answer(text("pinged"))
	case "inputs":
		answer(`{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{}}},"requestState":"s"}`)
	}
}
