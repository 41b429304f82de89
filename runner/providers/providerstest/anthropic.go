package providerstest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// NewAnthropicServer starts a server of the Messages API: POST /v1/messages as a stream. It
// answers each valid request with the result of answer, which may be called concurrently.
// The caller closes the server.
func NewAnthropicServer(answer func(ModelRequest) ModelAnswer) *ModelServer {
	return start(modelAPI{
		requestID: "Request-Id", check: checkAnthropicRequest,
		invalid: func(message string) string { return anthropicErrorBody("invalid_request_error", message) },
	}, answer)
}

// AnthropicFailure returns the answer of a request that fails with a status and an error
// of the API, such as 529 and overloaded_error.
func AnthropicFailure(status int, kind, message string) ModelAnswer {
	return ModelAnswer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Chunks: []string{anthropicErrorBody(kind, message)}}
}

// anthropicErrorBody returns the JSON body of an error of the API.
func anthropicErrorBody(kind, message string) string {
	return encodeWire(map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}, "request_id": "req_local"})
}

// An AnthropicCall is a call in a streamed reply.
type AnthropicCall struct {
	ID, Name, Input string
}

// An AnthropicReply is what a model replies. [AnthropicStream] writes it as a stream.
type AnthropicReply struct {
	// Thinking is a block of thinking with a signature. Empty: no such block.
	Thinking string
	Text     string
	Calls    []AnthropicCall
	// Stop is the stop reason. Empty: tool_use for a reply with calls, or else end_turn.
	Stop string
}

// AnthropicEvent returns one event of a stream.
func AnthropicEvent(kind string, data any) string {
	return "event: " + kind + "\ndata: " + encodeWire(data) + "\n\n"
}

// AnthropicStream returns a reply as the events of a stream, one in each element.
func AnthropicStream(model string, reply AnthropicReply) []string {
	type object = map[string]any
	events := []string{
		AnthropicEvent("message_start", object{"type": "message_start", "message": object{
			"id": "msg_local", "type": "message", "role": "assistant", "model": model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
			"usage": object{"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7},
		}}),
		AnthropicEvent("ping", object{"type": "ping"}),
	}
	index := 0
	block := func(begin object, deltas ...object) {
		events = append(events, AnthropicEvent("content_block_start", object{"type": "content_block_start", "index": index, "content_block": begin}))
		for _, delta := range deltas {
			events = append(events, AnthropicEvent("content_block_delta", object{"type": "content_block_delta", "index": index, "delta": delta}))
		}
		events = append(events, AnthropicEvent("content_block_stop", object{"type": "content_block_stop", "index": index}))
		index++
	}
	deltas := func(kind, member, text string) (all []object) {
		for _, piece := range pieces(text) {
			all = append(all, object{"type": kind, member: piece})
		}
		return all
	}
	if reply.Thinking != "" {
		block(object{"type": "thinking", "thinking": "", "signature": ""}, append(deltas("thinking_delta", "thinking", reply.Thinking), object{"type": "signature_delta", "signature": "signed"})...)
	}
	if reply.Text != "" {
		block(object{"type": "text", "text": ""}, deltas("text_delta", "text", reply.Text)...)
	}
	for _, c := range reply.Calls {
		block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, deltas("input_json_delta", "partial_json", c.Input)...)
	}
	stop := reply.Stop
	if stop == "" && len(reply.Calls) > 0 {
		stop = "tool_use"
	} else if stop == "" {
		stop = "end_turn"
	}
	return append(events,
		AnthropicEvent("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 23}}),
		AnthropicEvent("message_stop", object{"type": "message_stop"}))
}

// The formats and limits of the API.
var (
	anthropicToolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	anthropicCallID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	anthropicImages   = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
)

// anthropicMaxCacheMarks is the largest number of blocks with cache_control.
const anthropicMaxCacheMarks = 4

// anthropicRequest is the part of a request that the server knows. Every other member is
// an error, as it is for the API.
type anthropicRequest struct {
	Model       string             `json:"model"`
	MaxTokens   *int64             `json:"max_tokens"`
	Stream      bool               `json:"stream"`
	System      []anthropicBlock   `json:"system"`
	Messages    []anthropicMessage `json:"messages"`
	Tools       []anthropicTool    `json:"tools"`
	ToolChoice  *anthropicChoice   `json:"tool_choice"`
	Temperature *float64           `json:"temperature"`
	Thinking    *anthropicThinking `json:"thinking"`
}

type anthropicChoice struct {
	Type string `json:"type"`
}

type anthropicThinking struct {
	Type   string `json:"type"`
	Budget int64  `json:"budget_tokens"`
}

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content []anthropicBlock `json:"content"`
}

type anthropicCache struct {
	Type string `json:"type"`
	TTL  string `json:"ttl"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	Cache       *anthropicCache `json:"cache_control"`
}

type anthropicBlock struct {
	Type      string           `json:"type"`
	Text      *string          `json:"text"`
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	Input     json.RawMessage  `json:"input"`
	ToolUseID string           `json:"tool_use_id"`
	IsError   *bool            `json:"is_error"`
	Content   []anthropicBlock `json:"content"`
	Source    *anthropicSource `json:"source"`
	Title     *string          `json:"title"`
	Thinking  *string          `json:"thinking"`
	Signature *string          `json:"signature"`
	Data      *string          `json:"data"`
	Cache     *anthropicCache  `json:"cache_control"`
}

type anthropicSource struct {
	Type  string `json:"type"`
	Media string `json:"media_type"`
	Data  string `json:"data"`
}

// checkAnthropicRequest returns the first fault of a request to a path.
func checkAnthropicRequest(path string, body []byte, header http.Header) error {
	switch {
	case path != "/v1/messages":
		return fmt.Errorf("unknown path %s", path)
	case header.Get("Anthropic-Version") == "":
		return errors.New("the header anthropic-version is missing")
	}
	return CheckAnthropic(body)
}

// CheckAnthropic returns the first fault of a request body of the Messages API, or nil.
func CheckAnthropic(body []byte) error {
	var r anthropicRequest
	if err := decodeStrict(body, &r); err != nil {
		return err
	}
	c := &anthropicCheck{calls: map[string]bool{}}
	switch {
	case r.Model == "":
		return errors.New("model: missing")
	case r.MaxTokens == nil || *r.MaxTokens < 1:
		return errors.New("max_tokens: missing or below 1")
	case !r.Stream:
		return errors.New("stream: this server streams only")
	case len(r.Messages) == 0:
		return errors.New("messages: at least one message is required")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 1):
		return errors.New("temperature: not between 0 and 1")
	case r.Thinking != nil && (r.Thinking.Type != "enabled" || r.Thinking.Budget < 1024 || r.Thinking.Budget >= *r.MaxTokens):
		return errors.New("thinking: the budget is not between 1024 and max_tokens")
	case r.Thinking != nil && r.Temperature != nil && *r.Temperature != 1:
		return errors.New("temperature: may only be 1 when thinking is enabled")
	case r.ToolChoice != nil && len(r.Tools) == 0:
		return errors.New("tool_choice: may only be given with tools")
	case r.ToolChoice != nil && !slices.Contains([]string{"auto", "any", "none"}, r.ToolChoice.Type):
		return fmt.Errorf("tool_choice: unknown type %q", r.ToolChoice.Type)
	}
	for i, b := range r.System {
		if err := c.text(fmt.Sprintf("system.%d", i), b); err != nil {
			return err
		}
	}
	if err := c.tools(r.Tools); err != nil {
		return err
	}
	if err := c.messages(r.Messages); err != nil {
		return err
	}
	switch {
	case len(c.calls) > 0 && len(r.Tools) == 0:
		return errors.New("requests which include tool_use or tool_result blocks must define tools")
	case c.marks > anthropicMaxCacheMarks:
		return fmt.Errorf("a maximum of 4 blocks with cache_control may be provided, found %d", c.marks)
	}
	return nil
}

// An anthropicCheck checks the parts of one request.
type anthropicCheck struct {
	// marks counts the blocks with cache_control.
	marks int
	// calls has the IDs of the calls.
	calls map[string]bool
}

// mark counts a mark of the cache.
func (c *anthropicCheck) mark(at string, m *anthropicCache) error {
	if m == nil {
		return nil
	}
	if c.marks++; m.Type != "ephemeral" || !slices.Contains([]string{"", "5m", "1h"}, m.TTL) {
		return fmt.Errorf("%s: cache_control is not ephemeral", at)
	}
	return nil
}

// text checks a text block.
func (c *anthropicCheck) text(at string, b anthropicBlock) error {
	if b.Type != "text" || b.Text == nil || strings.TrimSpace(*b.Text) == "" {
		return fmt.Errorf("%s: text content blocks must be non-empty", at)
	}
	return c.mark(at, b.Cache)
}

// tools checks the tools.
func (c *anthropicCheck) tools(tools []anthropicTool) error {
	names := map[string]bool{}
	for i, t := range tools {
		at := fmt.Sprintf("tools.%d", i)
		var schema map[string]json.RawMessage
		switch {
		case !anthropicToolName.MatchString(t.Name):
			return fmt.Errorf("%s: the name %q does not match %s", at, t.Name, anthropicToolName)
		case names[t.Name]:
			return fmt.Errorf("%s: tool names must be unique: %s", at, t.Name)
		case json.Unmarshal(t.Schema, &schema) != nil || string(schema["type"]) != `"object"`:
			return fmt.Errorf("%s: input_schema is not of type object: %s", at, t.Schema)
		case schema["anyOf"] != nil || schema["oneOf"] != nil || schema["allOf"] != nil:
			return fmt.Errorf("%s: input_schema does not support oneOf, allOf, or anyOf at the top level", at)
		}
		names[t.Name] = true
		if err := c.mark(at, t.Cache); err != nil {
			return err
		}
	}
	return nil
}

// messages checks that roles alternate, from a user on, and that the message behind a
// reply with calls begins with one result for each call.
func (c *anthropicCheck) messages(messages []anthropicMessage) error {
	var waiting []string // the calls of the message before
	for i, m := range messages {
		at := fmt.Sprintf("messages.%d", i)
		if want := [...]string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("%s: the role is %q, want %q: roles alternate from user on", at, m.Role, want)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("%s: all messages must have non-empty content", at)
		}
		for n := range len(waiting) {
			if n >= len(m.Content) || m.Content[n].Type != "tool_result" {
				return fmt.Errorf("%s: tool_use ids were found without tool_result blocks immediately after: %v", at, waiting)
			}
		}
		var calls []string
		for n, b := range m.Content {
			at := fmt.Sprintf("%s.content.%d", at, n)
			if err := c.block(at, m.Role, b); err != nil {
				return err
			}
			switch b.Type {
			case "tool_use":
				calls = append(calls, b.ID)
			case "tool_result":
				place := slices.Index(waiting, b.ToolUseID)
				if place < 0 {
					return fmt.Errorf("%s: unexpected tool_use_id found in tool_result blocks: %s", at, b.ToolUseID)
				}
				waiting = slices.Delete(waiting, place, place+1)
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("%s: calls without a result: %v", at, waiting)
		}
		waiting = calls
	}
	if len(waiting) > 0 {
		return fmt.Errorf("the last message has calls without a result: %v", waiting)
	}
	last := messages[len(messages)-1]
	if end := last.Content[len(last.Content)-1]; last.Role == "assistant" && end.Text != nil && strings.TrimRight(*end.Text, " \t\r\n") != *end.Text {
		return errors.New("messages: final assistant content cannot end with trailing whitespace")
	}
	return nil
}

// block checks a block of a message.
func (c *anthropicCheck) block(at, role string, b anthropicBlock) error {
	switch {
	case b.Type == "text":
		return c.text(at, b)
	case b.Type == "tool_use" && role == "assistant":
		return c.call(at, b)
	case b.Type == "tool_result" && role == "user":
		return c.result(at, b)
	case (b.Type == "image" || b.Type == "document") && role == "user":
		if err := c.mark(at, b.Cache); err != nil {
			return err
		}
		return checkAnthropicSource(at, b)
	case b.Type == "thinking" && role == "assistant" && b.Thinking != nil && b.Signature != nil && *b.Signature != "":
		return nil
	case b.Type == "redacted_thinking" && role == "assistant" && b.Data != nil && *b.Data != "":
		return nil
	}
	return fmt.Errorf("%s: a block of type %q is not allowed in a message of the role %s", at, b.Type, role)
}

// call checks a call.
func (c *anthropicCheck) call(at string, b anthropicBlock) error {
	var input map[string]json.RawMessage
	switch {
	case !anthropicCallID.MatchString(b.ID):
		return fmt.Errorf("%s.id: %q does not match %s", at, b.ID, anthropicCallID)
	case c.calls[b.ID]:
		return fmt.Errorf("%s.id: tool_use ids must be unique: %s", at, b.ID)
	case !anthropicToolName.MatchString(b.Name):
		return fmt.Errorf("%s.name: %q does not match %s", at, b.Name, anthropicToolName)
	case json.Unmarshal(b.Input, &input) != nil || input == nil:
		return fmt.Errorf("%s.input: %s is not an object", at, b.Input)
	}
	c.calls[b.ID] = true
	return c.mark(at, b.Cache)
}

// result checks a result.
func (c *anthropicCheck) result(at string, b anthropicBlock) error {
	for i, part := range b.Content {
		at := fmt.Sprintf("%s.content.%d", at, i)
		var err error
		switch part.Type {
		case "text":
			err = c.text(at, part)
		case "image", "document":
			err = checkAnthropicSource(at, part)
		default:
			err = fmt.Errorf("%s: a block of type %q is not allowed in a result", at, part.Type)
		}
		if err != nil {
			return err
		}
	}
	return c.mark(at, b.Cache)
}

// checkAnthropicSource checks the source of an image or a document.
func checkAnthropicSource(at string, b anthropicBlock) error {
	switch {
	case b.Source == nil || b.Source.Type != "base64" || b.Source.Data == "":
		return fmt.Errorf("%s.source: not base64 data", at)
	case b.Type == "image" && !slices.Contains(anthropicImages, b.Source.Media):
		return fmt.Errorf("%s.source: the media type %q is no image", at, b.Source.Media)
	case b.Type == "document" && b.Source.Media != "application/pdf":
		return fmt.Errorf("%s.source: the media type %q is no PDF", at, b.Source.Media)
	}
	if _, err := base64.StdEncoding.Decode(make([]byte, base64.StdEncoding.DecodedLen(len(b.Source.Data))), bytes.TrimSpace([]byte(b.Source.Data))); err != nil {
		return fmt.Errorf("%s.source: %w", at, err)
	}
	return nil
}
