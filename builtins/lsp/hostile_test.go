package lsp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The variables that make the test program a language server: its behaviour, and the
// folder in which it records its starts and the messages that it reads.
const (
	modeVariable  = "LEDGER_LSP_TEST_MODE"
	stateVariable = "LEDGER_LSP_TEST_STATE"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode != "" {
		s := &testServer{mode: mode, state: os.Getenv(stateVariable), in: bufio.NewReader(os.Stdin), out: bufio.NewWriter(os.Stdout)}
		s.serve()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// A testServer is a language server that misbehaves in one way, its mode, and otherwise
// replies to every request.
type testServer struct {
	mode, state string
	starts      int
	in          *bufio.Reader
	out         *bufio.Writer
	lastID      int
}

// A wireMessage is a request, a notification or a reply.
type wireMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// note appends a line to a file in the state folder.
func (s *testServer) note(file, line string) {
	f, err := os.OpenFile(filepath.Join(s.state, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

func (s *testServer) raw(text string) {
	s.out.WriteString(text)
	s.out.Flush()
}

func (s *testServer) send(message map[string]any) {
	message["jsonrpc"] = "2.0"
	data, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	s.raw(fmt.Sprintf("Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s", len(data), data))
}

func (s *testServer) receive() wireMessage {
	length := 0
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		if value, ok := strings.CutPrefix(line, "Content-Length:"); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(s.in, data); err != nil {
		os.Exit(0)
	}
	var m wireMessage
	if err := json.Unmarshal(data, &m); err != nil {
		panic(err)
	}
	if m.Method != "" {
		s.note("messages", m.Method+" "+string(m.Params))
	}
	return m
}

// ask sends a request to the client and returns its reply.
func (s *testServer) ask(method string, params any) wireMessage {
	s.lastID++
	s.send(map[string]any{"id": fmt.Sprintf("server-%d", s.lastID), "method": method, "params": params})
	for {
		if m := s.receive(); m.Method == "" {
			return m
		}
	}
}

func (s *testServer) hang() {
	signal.Ignore(syscall.SIGTERM)
	for {
		time.Sleep(time.Hour)
	}
}

func (s *testServer) die(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(3)
}

func (s *testServer) serve() {
	s.note("starts", strconv.Itoa(os.Getpid()))
	data, _ := os.ReadFile(filepath.Join(s.state, "starts"))
	s.starts = strings.Count(string(data), "\n")
	switch s.mode {
	case "dies at start":
		s.die("no toolchain")
	case "writes garbage":
		s.raw("Welcome to the server!\n\n")
	case "writes an endless header":
		for {
			s.raw(strings.Repeat("x", 1000))
		}
	case "writes headers without end":
		for i := 0; ; i++ {
			s.raw(fmt.Sprintf("X-%d: y\r\n", i))
		}
	case "announces a huge message":
		s.raw("Content-Length: 99999999999\r\n\r\n")
	case "announces a negative message":
		s.raw("Content-Length: -1\r\n\r\n")
	case "writes invalid JSON":
		s.raw("Content-Length: 4\r\n\r\n{{{{")
	case "writes null":
		s.raw("Content-Length: 4\r\n\r\nnull")
	case "writes an empty batch":
		s.raw("Content-Length: 2\r\n\r\n[]")
	case "ends in a message":
		s.raw("Content-Length: 400\r\n\r\n{")
		s.die("cut off")
	case "closes its output":
		os.Stdout.Close()
		s.hang()
	case "reads nothing":
		s.hang()
	case "floods its error output":
		for range 2000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("e", 1000))
		}
	}
	for {
		if m := s.receive(); m.Method != "" {
			s.handle(m)
		}
	}
}

func (s *testServer) handle(m wireMessage) {
	if s.mode == "dies at "+m.Method || s.mode == "dies once at "+m.Method && s.starts == 1 {
		s.die("fatal: " + m.Method)
	}
	if s.mode == "hangs at "+m.Method {
		s.hang()
	}
	switch m.Method {
	case "initialize":
		s.reply(m, map[string]any{"capabilities": s.capabilities()})
	case "exit":
		if s.mode != "does not exit" {
			os.Exit(0)
		}
		s.hang()
	case "textDocument/didOpen", "textDocument/didChange":
		s.publish(m)
	case "$/cancelRequest":
		if s.mode == "replies after the cancellation" {
			var params struct {
				ID json.RawMessage `json:"id"`
			}
			_ = json.Unmarshal(m.Params, &params)
			s.send(map[string]any{"id": params.ID, "error": map[string]any{"code": -32800, "message": "cancelled"}})
		}
	default:
		if m.ID != nil {
			s.request(m)
		}
	}
}

func (s *testServer) capabilities() map[string]any {
	if s.mode == "has no capabilities" {
		return nil
	}
	all := map[string]any{"definitionProvider": true, "hoverProvider": map[string]any{}, "referencesProvider": true, "workspaceSymbolProvider": true, "implementationProvider": false}
	if s.mode == "counts in UTF-8" {
		all["positionEncoding"] = "utf-8"
	}
	return all
}

func (s *testServer) reply(m wireMessage, result any) {
	s.send(map[string]any{"id": m.ID, "result": result})
}

// publish sends diagnostics for a document that was opened or changed: stale ones, then
// a first part, then the rest.
func (s *testServer) publish(m wireMessage) {
	var params struct {
		TextDocument struct {
			URI     string `json:"uri"`
			Version int    `json:"version"`
		} `json:"textDocument"`
	}
	_ = json.Unmarshal(m.Params, &params)
	at := map[string]any{"start": map[string]int{"line": 0, "character": 0}, "end": map[string]int{"line": 0, "character": 1}}
	found := []any{}
	for i := range 3 {
		found = append(found, map[string]any{"range": at, "severity": i + 1, "message": fmt.Sprintf("part %d of version %d", i, params.TextDocument.Version), "code": i})
		s.send(map[string]any{"method": "textDocument/publishDiagnostics", "params": map[string]any{
			"uri": params.TextDocument.URI, "version": params.TextDocument.Version + min(i, 1) - 1, "diagnostics": found,
		}})
	}
}

// request replies to a request about a position: with the same position in the same file,
// or as the mode says.
func (s *testServer) request(m wireMessage) {
	var params struct {
		TextDocument struct {
			URI string `json:"uri"`
		} `json:"textDocument"`
		Position map[string]int `json:"position"`
	}
	_ = json.Unmarshal(m.Params, &params)
	same := map[string]any{"uri": params.TextDocument.URI, "range": map[string]any{"start": params.Position, "end": params.Position}}
	elsewhere := func(uri string) map[string]any {
		return map[string]any{"targetUri": uri, "targetRange": same["range"], "targetSelectionRange": same["range"]}
	}
	refuse := func(code int) {
		s.send(map[string]any{"id": m.ID, "error": map[string]any{"code": code, "message": "not now"}})
	}
	switch s.mode {
	case "replies after the cancellation":
		if m.Method != "shutdown" {
			return
		}
		s.reply(m, nil)
	case "replies with another id":
		if m.Method != "shutdown" {
			s.send(map[string]any{"id": 1234567, "result": same})
			s.send(map[string]any{"id": "text", "result": same})
			s.send(map[string]any{"id": nil, "result": same})
			return
		}
		s.reply(m, nil)
	case "hovers over a secret":
		if m.Method != "textDocument/hover" {
			s.reply(m, elsewhere(strings.TrimSuffix(params.TextDocument.URI, "a.go")+"secret.go"))
			return
		}
		s.reply(m, map[string]any{"contents": "the secret"})
	case "replies twice":
		s.reply(m, same)
		s.reply(m, elsewhere("file:///nowhere"))
	case "replies with a number":
		s.reply(m, 7)
	case "refuses":
		refuse(-32603)
	case "changes its state":
		if s.lastID++; s.lastID < 3 {
			refuse(-32801)
			return
		}
		s.reply(m, same)
	case "floods messages":
		for i := range 5000 {
			s.send(map[string]any{"method": "window/logMessage", "params": map[string]any{"type": 4, "message": strconv.Itoa(i)}})
		}
		s.reply(m, same)
	case "sends a large message":
		s.raw(fmt.Sprintf("Content-Length: %d\r\n\r\n", 17<<20))
	case "leaves a process":
		child := exec.Command("setsid", "sh", "-c", "echo $$ > "+filepath.Join(s.state, "child")+"; exec sleep 600")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			panic(err)
		}
		for {
			if data, _ := os.ReadFile(filepath.Join(s.state, "child")); strings.HasSuffix(string(data), "\n") {
				s.die("left a process")
			}
		}
	case "leads elsewhere":
		dir := strings.TrimSuffix(params.TextDocument.URI, "/project/a.go")
		s.reply(m, []any{elsewhere(dir + "/project/secret.go"), elsewhere(dir + "/project/b%20%C3%A9.go"), elsewhere(dir + "/outside/c.go"), elsewhere("jdt://x/y"),
			elsewhere(dir + "/project/missing.go"), elsewhere("file://host/etc/passwd"), elsewhere("%zz"), elsewhere(dir + "/project/link.go")})
	case "sends requests":
		replies := map[string]json.RawMessage{}
		for method, params := range map[string]any{
			"workspace/configuration": map[string]any{"items": []any{map[string]any{"section": "gopls"}, nil}}, "workspace/workspaceFolders": nil,
			"client/registerCapability": map[string]any{}, "window/workDoneProgress/create": map[string]any{"token": 1},
			"window/showMessageRequest": map[string]any{"message": "?", "actions": []any{}}, "workspace/applyEdit": map[string]any{"edit": map[string]any{}},
			"experimental/unknown": 5,
		} {
			got := s.ask(method, params)
			replies[method] = got.Result
			if got.Error != nil {
				replies[method] = got.Error
			}
		}
		text, _ := json.Marshal(replies)
		s.reply(m, map[string]any{"contents": []any{"", map[string]any{"language": "json", "value": string(text)}}})
	default:
		if m.Method == "textDocument/hover" {
			s.reply(m, map[string]any{"contents": map[string]any{"kind": "markdown", "value": "about it"}})
			return
		}
		s.reply(m, same)
	}
}
