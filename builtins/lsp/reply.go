package lsp

import (
	"context"
	"encoding/json"

	"github.com/sourcegraph/jsonrpc2"
)

// Handle replies to a request of the server, and stores the diagnostics that the server
// publishes. It runs on the goroutine that reads the connection. It refuses edits and
// changes nothing on the machine.
func (s *languageServer) Handle(_ context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	if req.Notif {
		if req.Method == "textDocument/publishDiagnostics" && req.Params != nil {
			s.published.add(*req.Params)
		}
		return
	}
	result, known := s.reply(req)
	reply := &jsonrpc2.Response{ID: req.ID}
	if !known {
		reply.Error = &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "the client does not implement " + clip(req.Method, 100)}
	} else if err := reply.SetResult(result); err != nil {
		reply.Error = &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()}
	}
	if err := conn.SendResponse(context.Background(), reply); err != nil {
		s.failWrite(err)
	}
}

// maxConfigurationItems is the maximum number of sections in one workspace/configuration.
const maxConfigurationItems = 1000

// reply returns the result for a request of the server, and false for an unknown method.
func (s *languageServer) reply(req *jsonrpc2.Request) (result any, known bool) {
	switch req.Method {
	case "workspace/configuration":
		return s.configuration(req.Params), true
	case "workspace/workspaceFolders":
		return s.workspaceFolders(), true
	case "workspace/applyEdit":
		return object{"applied": false, "failureReason": "this client applies no edits"}, true
	case "window/showDocument":
		return object{"success": false}, true
	case "client/registerCapability", "client/unregisterCapability", "window/workDoneProgress/create", "window/showMessageRequest",
		"workspace/diagnostic/refresh", "workspace/semanticTokens/refresh", "workspace/inlayHint/refresh", "workspace/codeLens/refresh":
		return nil, true
	}
	return nil, false
}

// configuration returns the options of the server for each section that it asks for.
func (s *languageServer) configuration(params *json.RawMessage) []json.RawMessage {
	var asked struct {
		Items []json.RawMessage `json:"items"`
	}
	if params == nil || json.Unmarshal(*params, &asked) != nil {
		return []json.RawMessage{}
	}
	options := s.program.options
	if options == nil {
		options = json.RawMessage("null")
	}
	replies := make([]json.RawMessage, min(len(asked.Items), maxConfigurationItems))
	for i := range replies {
		replies[i] = options
	}
	return replies
}
