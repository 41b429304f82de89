package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
)

// secret is a value of the environment of a server.
const secret = "tok-5f3a9c71e2b8"

// A toolCall is a call of a tool and its expected end.
type toolCall struct {
	tool, input string
	outcome     domain.Outcome
	texts       []string // parts of the text that the model or the operator reads
}

// check makes each call in a turn of its own, and fails the test for every call that does
// not end as expected. It returns the end of the session.
func (w *world) check(t *testing.T, rows []toolCall) *sessionEnd {
	t.Helper()
	turns := 0
	end, err := w.session(t.Context(), replier(func(runner.Turn) []domain.Call {
		if turns++; turns > len(rows) {
			return nil
		}
		return []domain.Call{call(fmt.Sprint(turns), rows[turns-1].tool, rows[turns-1].input)}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		want(t, row.tool+" "+row.input, end.settlement(fmt.Sprint(i+1)), row.outcome, row.texts...)
	}
	return end
}

// serveHTTP starts server-everything on a port of the loopback interface until the test
// ends, and returns its entry.
func serveHTTP(t *testing.T) entry {
	t.Helper()
	port := filepath.Join(t.TempDir(), "port")
	e := reference(t, "server-everything", nil, "streamableHttp")
	server := command(t, e)
	server.Env = append(os.Environ(), "PORT=0", "PORT_FILE="+port, "TOKEN="+secret)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	return entry{
		"url": fmt.Sprintf("http://127.0.0.1:%d/mcp", awaitNumber(t, port)), "headers": map[string]string{"X-Token": secret},
		"startup_timeout": "1m", "timeout": "1m",
	}
}

// Each tool of server-everything has its end, over both transports: content of every type,
// structured content, a failure of the tool, an input that does not fit, a form that the
// person answers. A tool that needs sampling is not offered, because the client does not
// say that it can, and a tool that needs tasks is a recorded refusal.
func TestReferenceServer(t *testing.T) {
	t.Parallel()
	packages(t)
	for name, serve := range map[string]func() entry{
		"stdio":          func() entry { return reference(t, "server-everything", map[string]string{"TOKEN": secret}, "stdio") },
		"streamableHttp": func() entry { return serveHTTP(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]entry{"every": serve()})
			w.person.answers = map[string][]string{"legal name": {"Ada"}, "favorite integer": {"7"}, "favorite hero": {"Green Lantern"}}
			names := w.await(t, has("every_echo", "every_get-roots-list", "every_trigger-elicitation-request"))
			if i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "sampling") }); i >= 0 {
				t.Errorf("%s is offered, want no tool that needs sampling", names[i])
			}
			w.check(t, []toolCall{
				{"every_echo", `{"message":"hi"}`, domain.Succeeded, []string{"Echo: hi"}},
				{"every_echo", `{}`, domain.InvalidInput, []string{"missing property 'message'"}},
				{"every_get-sum", `{"a":1,"b":2.5}`, domain.Succeeded, []string{"1 and 2.5 is 3.5"}},
				{"every_get-tiny-image", `{}`, domain.Succeeded, []string{"image you requested", "<image/png 4033>", "MCP logo"}},
				{"every_get-annotated-message", `{"messageType":"error","includeImage":true}`, domain.Succeeded, []string{"Error: Operation failed", "<image/png 4033>"}},
				{"every_get-structured-content", `{"location":"Chicago"}`, domain.Succeeded, []string{`{"temperature":36,`, `"humidity":82}`}},
				{"every_get-resource-links", `{"count":2}`, domain.Succeeded, []string{"[link to a resource] demo://resource/dynamic/blob/1", "demo://resource/dynamic/text/2"}},
				{"every_get-resource-reference", `{"resourceType":"Blob","resourceId":2}`, domain.Succeeded, []string{"<text/plain ", "demo://resource/dynamic/blob/2"}},
				{"every_get-resource-reference", `{"resourceType":"Text","resourceId":2}`, domain.Succeeded, []string{"[resource demo://resource/dynamic/text/2]"}},
				{"every_get-resource-reference", `{"resourceType":"Text","resourceId":0}`, domain.Failed, []string{"Invalid resourceId: 0"}},
				{"every_gzip-file-as-resource", `{"name":"a.gz","data":"data:text/plain;base64,aGVsbG8=","outputType":"resource"}`, domain.Succeeded, []string{"<application/gzip "}},
				{"every_get-env", `{}`, domain.Succeeded, []string{`"TOKEN": "[redacted]"`}},
				{"every_get-roots-list", `{}`, domain.Succeeded, []string{w.project}},
				{"every_toggle-simulated-logging", `{}`, domain.Succeeded, []string{"Started"}},
				{"every_trigger-long-running-operation", `{"duration":0.5,"steps":5}`, domain.Succeeded, []string{"completed", "Steps: 5"}},
				{"every_trigger-elicitation-request", `{}`, domain.Succeeded, []string{"Name: Ada", "Favorite Integer: 7", "Favorite Number: 3.14", "hero-2", "fish-1"}},
				{"every_trigger-sampling-request", `{"prompt":"x"}`, domain.UnknownTool, nil},
				{"every_simulate-research-query", `{"topic":"x"}`, domain.UnknownTool, nil},
			})
			if got := len(w.person.asked); got != 13 {
				t.Errorf("the person was asked %d questions, want the 13 fields of the form: %q", got, w.person.asked)
			}
			refusals, err := w.refusals(t.Context())
			if err != nil || len(refusals) != 1 || !strings.Contains(refusals[0], "every_simulate-research-query: every call of it starts a task") {
				t.Errorf("refused %q with the error %v, want the tool that starts tasks", refusals, err)
			}
		})
	}
}

// server-filesystem reads and writes the files of the project, which is the only root, and
// no other ones. Its structured outputs lose nothing, and an image is one to the model.
func TestFilesystemServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"files": reference(t, "server-filesystem", nil)})
	file := filepath.Join(w.project, "a.txt")
	if err := os.WriteFile(filepath.Join(w.project, "b.png"), []byte("\x89PNG\r\n\x1a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.await(t, has("files_write_file"))
	path := fmt.Sprintf(`"path":%q`, file)
	rows := []toolCall{
		{"files_list_allowed_directories", `{}`, domain.Succeeded, []string{w.project}},
		{"files_write_file", `{` + path + `,"content":"hello\n"}`, domain.Succeeded, []string{"Successfully wrote"}},
		{"files_read_text_file", `{` + path + `}`, domain.Succeeded, []string{"hello"}},
		{"files_read_text_file", `{"path":"/etc/passwd"}`, domain.Failed, []string{"outside allowed directories"}},
		{"files_edit_file", `{` + path + `,"edits":[{"oldText":"hello","newText":"bye"}]}`, domain.Succeeded, []string{"+bye"}},
		{"files_edit_file", `{` + path + `,"edits":[{"oldText":"absent","newText":"x"}]}`, domain.Failed, []string{"absent"}},
		{"files_list_directory", fmt.Sprintf(`{"path":%q}`, w.project), domain.Succeeded, []string{"a.txt", "b.png"}},
		{"files_read_media_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(w.project, "b.png")), domain.Succeeded, []string{"<image/png 8>"}},
	}
	end := w.check(t, rows)
	for i, row := range rows {
		if s := end.settlement(fmt.Sprint(i + 1)); s != nil && s.Lost > 0 {
			t.Errorf("%s lost %d bytes, want none: its content repeats its structured output", row.tool, s.Lost)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "bye\n" {
		t.Errorf("the file has %q with the error %v, want the edited text", data, err)
	}
}
