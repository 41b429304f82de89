package mcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/settlement-ledger/ledger/domain"
)

// at returns the entry of a server over HTTP.
func at(url string) entry {
	return entry{"type": "http", "url": url, "headers": map[string]string{"Authorization": "Bearer " + token}, "startup_timeout": "20s", "timeout": "20s"}
}

// httpServer returns a server over HTTP that requires the token.
func httpServer(t *testing.T, options *sdk.StreamableHTTPOptions) *httptest.Server {
	t.Helper()
	server := sdkServer()
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, options)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// Servers of the SDK over HTTP, with sessions of the older protocol and without sessions
// of the newer one, serve calls.
func TestServersOverHTTPServeCalls(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]*sdk.StreamableHTTPOptions{
		"sessions": nil, "stateless": {Stateless: true}, "json": {JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]entry{"a": at(httpServer(t, options).URL)})
			w.want(w.call("a_echo", `{"text":"hi"}`), domain.Succeeded, "echo hi")
			w.want(w.call("a_count", `{"text":"four"}`), domain.Succeeded, `{"count":4}`)
			w.want(w.call("a_fail", `{"text":"grace"}`), domain.Failed, "it failed with grace")
			if name == "sessions" {
				w.want(w.call("a_change", `{"text":"x"}`), domain.Succeeded)
				for !slices.Contains(names(w.offer()), "a_extra") && t.Context().Err() == nil {
				}
				w.want(w.call("a_extra", `{}`), domain.Succeeded, "new")
			}
		})
	}
}

// A rawHTTP is a server over HTTP written by hand. call answers the requests tools/call.
type rawHTTP struct {
	mu    sync.Mutex
	calls int
	call  func(w http.ResponseWriter, r *http.Request, id string, nth int)
	// annotations are those of the tool.
	annotations string
	sessions    atomic.Int64
}

func (s *rawHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "no", http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &m)
	reply := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	switch m.Method {
	case "server/discover":
		http.Error(w, "no", http.StatusBadRequest)
	case "initialize":
		w.Header().Set("Mcp-Session-Id", fmt.Sprintf("s%d", s.sessions.Add(1)))
		reply(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
	case "tools/list":
		reply(`{"tools":[{"name":"t","description":"d","inputSchema":{"type":"object"}` + s.annotations + `}]}`)
	case "tools/call":
		s.mu.Lock()
		s.calls++
		n := s.calls
		s.mu.Unlock()
		s.call(w, r, string(m.ID), n)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// What goes awry between a server and the client ends the call with a text that says so.
// The call is sent once; after an expired session it is sent again only if its tool is
// idempotent.
func TestFaultsOverHTTPEndTheCall(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other host got a request") }))
	t.Cleanup(elsewhere.Close)
	ok := func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"fine"}]}}`, id)
	}
	status := func(code int) func(http.ResponseWriter, *http.Request, string, int) {
		return func(w http.ResponseWriter, _ *http.Request, id string, nth int) {
			if nth == 1 {
				http.Error(w, "leaks "+token, code)
				return
			}
			ok(w, id)
		}
	}
	events := func(body string, end func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, string, int) {
		return func(w http.ResponseWriter, _ *http.Request, id string, nth int) {
			if nth > 1 {
				ok(w, id)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, strings.ReplaceAll(body, "ID", id))
			w.(http.Flusher).Flush()
			if end != nil {
				end(w)
			}
		}
	}
	abort := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	for name, row := range map[string]struct {
		call        func(http.ResponseWriter, *http.Request, string, int)
		annotations string
		outcome     domain.Outcome
		text        string
		calls       int
	}{
		"401":                {status(401), "", domain.Defective, "401 Unauthorized", 1},
		"403":                {status(403), "", domain.Defective, "403 Forbidden", 1},
		"500":                {status(500), "", domain.Failed, "Internal Server Error", 1},
		"503":                {status(503), "", domain.Failed, "Service Unavailable", 1},
		"expired":            {status(404), "", domain.Failed, "session of the MCP server a had expired", 1},
		"expired idempotent": {status(404), `,"annotations":{"idempotentHint":true}`, domain.Succeeded, "fine", 2},
		"cut before":         {func(http.ResponseWriter, *http.Request, string, int) { panic(http.ErrAbortHandler) }, "", domain.Failed, "EOF; the outcome of the call is unknown", 1},
		"cut in an event":    {events("data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"res", abort), "", domain.Failed, "terminated without response", 1},
		"ended stream":       {events(": nothing\n\n", nil), "", domain.Failed, "terminated without response", 1},
		"broken event":       {events("data: {\"jsonrpc\n\n", nil), "", domain.Defective, "failed to decode", 1},
		"64 MiB in an event": {func(w http.ResponseWriter, _ *http.Request, id string, nth int) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]}}\n\n", id, strings.Repeat("x", 64<<20))
		}, "", domain.Defective, "MCP server a", 1},
		"other host": {func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "", domain.Failed, "redirects to another host", 1},
		"other type": {func(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}, "", domain.Defective, "unsupported content type", 1},
		"too large": {func(w http.ResponseWriter, _ *http.Request, id string, _ int) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, id, strings.Repeat("x", 17<<20))
		}, "", domain.Defective, "over the limit", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := &rawHTTP{call: row.call, annotations: row.annotations}
			server := httptest.NewServer(raw)
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			w := newWorld(t, map[string]entry{"a": at(server.URL)})
			w.want(w.call("a_t", `{}`), row.outcome, row.text)
			raw.mu.Lock()
			defer raw.mu.Unlock()
			if raw.calls != row.calls {
				t.Errorf("the server got %d calls, want %d", raw.calls, row.calls)
			}
		})
	}
}

// A server that refuses the credentials is a refusal that says what to do.
func TestRefusedCredentialsAreARefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]entry{"a": at(httpServer(t, nil).URL).with("headers", map[string]string{"Authorization": "Bearer expired-token-1"})})
	w.wantOffered()
	w.wantRefusal("mcp server a", "401 Unauthorized", "Authorization")
}
