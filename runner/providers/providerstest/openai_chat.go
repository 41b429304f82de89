package providerstest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// The formats of names and IDs in requests to the API, and its limits.
var (
	openAINamePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	openAIImageTypes  = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	openAIEfforts     = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
)

const (
	openAIMaxTools           = 128
	openAIMaxChatCallID      = 40
	openAIMaxResponsesCallID = 64
)

// openAIChatRequest is the part of a request to Chat Completions that the server knows.
// Every other member is an unknown parameter.
type openAIChatRequest struct {
	Model         string              `json:"model"`
	Messages      []openAIChatMessage `json:"messages"`
	Stream        bool                `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxCompletionTokens *int64           `json:"max_completion_tokens"`
	MaxTokens           *int64           `json:"max_tokens"`
	Temperature         *float64         `json:"temperature"`
	ReasoningEffort     *string          `json:"reasoning_effort"`
	Tools               []openAIChatTool `json:"tools"`
	ToolChoice          json.RawMessage  `json:"tool_choice"`
}

type openAIChatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID *string         `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type openAIChatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
}

// decodeStrict decodes one JSON document into to and refuses unknown members.
func decodeStrict(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text after the JSON document")
	}
	return nil
}

// CheckOpenAIChat returns the first fault of the body of a request to Chat Completions.
// The rules are those of the public API reference, with two that compatible servers add:
// a user message is not empty, and a parameter that no known server reads is a fault.
func CheckOpenAIChat(body []byte) error {
	var r openAIChatRequest
	if err := decodeStrict(body, &r); err != nil {
		return err
	}
	switch {
	case r.Model == "":
		return errors.New("model is missing")
	case len(r.Messages) == 0:
		return errors.New("messages is empty")
	case !r.Stream:
		return errors.New("this server only streams, and stream is not true")
	case r.MaxCompletionTokens != nil && r.MaxTokens != nil:
		return errors.New("max_tokens and max_completion_tokens are both set")
	case r.MaxCompletionTokens != nil && *r.MaxCompletionTokens < 1, r.MaxTokens != nil && *r.MaxTokens < 1:
		return errors.New("the limit of output tokens is under 1")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 2):
		return fmt.Errorf("temperature %v is not between 0 and 2", *r.Temperature)
	case r.ReasoningEffort != nil && !slices.Contains(openAIEfforts, *r.ReasoningEffort):
		return fmt.Errorf("reasoning_effort %q is unknown", *r.ReasoningEffort)
	}
	if err := checkChatTools(r.Tools); err != nil {
		return err
	}
	if err := checkToolChoice(r.ToolChoice, len(r.Tools)); err != nil {
		return err
	}
	return checkChatMessages(r.Messages)
}

func checkChatTools(tools []openAIChatTool) error {
	if tools != nil && len(tools) == 0 {
		return errors.New("tools is an empty array")
	}
	if len(tools) > openAIMaxTools {
		return fmt.Errorf("%d tools are over the limit of %d", len(tools), openAIMaxTools)
	}
	seen := map[string]bool{}
	for i, t := range tools {
		if t.Type != "function" {
			return fmt.Errorf("tools[%d].type is %q", i, t.Type)
		}
		if err := checkFunction(t.Function.Name, t.Function.Parameters, t.Function.Strict, seen); err != nil {
			return fmt.Errorf("tools[%d]: %w", i, err)
		}
	}
	return nil
}

// checkFunction checks the name and the schema of a tool, and adds the name to seen.
func checkFunction(name string, parameters json.RawMessage, strict *bool, seen map[string]bool) error {
	if !openAINamePattern.MatchString(name) {
		return fmt.Errorf("name %q does not match %s", name, openAINamePattern)
	}
	if seen[name] {
		return fmt.Errorf("name %q is that of another tool", name)
	}
	seen[name] = true
	var schema map[string]any
	if err := json.Unmarshal(parameters, &schema); err != nil {
		return fmt.Errorf("schema of %s is not an object: %w", name, err)
	}
	if schema["type"] != "object" {
		return fmt.Errorf("schema of %s must be of type object, got type: %v", name, schema["type"])
	}
	for _, key := range []string{"oneOf", "anyOf", "allOf", "enum", "const", "not"} {
		if _, ok := schema[key]; ok {
			return fmt.Errorf("schema of %s must not have %s at the top level", name, key)
		}
	}
	if _, ok := schema["properties"].(map[string]any); !ok {
		return fmt.Errorf("schema of %s: object schema missing properties", name)
	}
	return checkSchema(schema, strict != nil && *strict, name)
}

// checkSchema checks a schema and those below it.
func checkSchema(schema any, strict bool, at string) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: %v is not of type object", at, schema)
	}
	properties, _ := s["properties"].(map[string]any)
	types, _ := s["type"].([]any)
	if s["type"] == "array" || slices.Contains(types, any("array")) {
		if _, ok := s["items"]; !ok {
			return fmt.Errorf("%s: array schema missing items", at)
		}
	}
	if strict && s["type"] == "object" {
		required, _ := s["required"].([]any)
		if s["additionalProperties"] != false || len(required) != len(properties) {
			return fmt.Errorf("%s: a strict schema needs additionalProperties false and every property in required", at)
		}
	}
	for name, p := range properties {
		if err := checkSchema(p, strict, at+"."+name); err != nil {
			return err
		}
	}
	if items, ok := s["items"]; ok {
		if err := checkSchema(items, strict, at+"[]"); err != nil {
			return err
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		branches, _ := s[key].([]any)
		for i, b := range branches {
			if err := checkSchema(b, strict, fmt.Sprintf("%s.%s[%d]", at, key, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkToolChoice(choice json.RawMessage, tools int) error {
	if choice == nil {
		return nil
	}
	if tools == 0 {
		return errors.New("tool_choice is only allowed when tools are specified")
	}
	if !slices.Contains([]string{`"none"`, `"auto"`, `"required"`}, string(choice)) {
		return fmt.Errorf("tool_choice %s is unknown", choice)
	}
	return nil
}

// checkChatMessages checks each message, and that each call of an assistant message is
// answered once by the tool messages right behind it.
func checkChatMessages(messages []openAIChatMessage) error {
	var open []string // calls that the next messages must answer
	for i, m := range messages {
		if m.Role == "tool" {
			if m.ToolCallID == nil || !slices.Contains(open, *m.ToolCallID) {
				return fmt.Errorf("messages[%d]: a tool message must answer an open call of the preceding message with tool_calls", i)
			}
			open = slices.DeleteFunc(open, func(id string) bool { return id == *m.ToolCallID })
		} else if len(open) > 0 {
			return fmt.Errorf("messages[%d]: tool_call_ids without an answer: %s", i, strings.Join(open, ", "))
		} else if m.ToolCallID != nil {
			return fmt.Errorf("messages[%d]: tool_call_id in a message of role %s", i, m.Role)
		}
		if err := m.check(); err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		for _, c := range m.ToolCalls {
			if slices.Contains(open, c.ID) {
				return fmt.Errorf("messages[%d]: two calls have the ID %s", i, c.ID)
			}
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("tool_call_ids without an answer: %s", strings.Join(open, ", "))
	}
	return nil
}

// check checks one message by itself.
func (m openAIChatMessage) check() error {
	if m.ToolCalls != nil && (len(m.ToolCalls) == 0 || m.Role != "assistant") {
		return fmt.Errorf("tool_calls is empty or in a message of role %s", m.Role)
	}
	for _, c := range m.ToolCalls {
		switch {
		case c.Type != "function":
			return fmt.Errorf("type of call %s is %q", c.ID, c.Type)
		case c.ID == "" || len(c.ID) > openAIMaxChatCallID:
			return fmt.Errorf("call ID %q is empty or over %d characters", c.ID, openAIMaxChatCallID)
		case !openAINamePattern.MatchString(c.Function.Name):
			return fmt.Errorf("name %q does not match %s", c.Function.Name, openAINamePattern)
		case c.Function.Arguments == nil:
			return fmt.Errorf("call %s has no arguments", c.ID)
		}
	}
	switch m.Role {
	case "system", "developer", "tool":
		return checkChatContent(m.Content, "text")
	case "user":
		if string(m.Content) == `""` {
			return errors.New("content of the user is empty")
		}
		return checkChatContent(m.Content, "text", "image_url", "file")
	case "assistant":
		if len(m.ToolCalls) > 0 && (m.Content == nil || string(m.Content) == "null") {
			return nil
		}
		return checkChatContent(m.Content, "text", "refusal")
	}
	return fmt.Errorf("role %q is unknown", m.Role)
}

// openAIChatPart is one part of the content of a message.
type openAIChatPart struct {
	Type     string  `json:"type"`
	Text     *string `json:"text"`
	Refusal  *string `json:"refusal"`
	ImageURL *struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
	File *struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
	} `json:"file"`
}

// checkChatContent checks content: a string, or a non-empty array of parts of the types.
func checkChatContent(content json.RawMessage, types ...string) error {
	var text string
	if content != nil && json.Unmarshal(content, &text) == nil && string(content) != "null" {
		return nil
	}
	var parts []openAIChatPart
	if err := decodeStrict(content, &parts); err != nil || len(parts) == 0 {
		return fmt.Errorf("content %.80s is neither a string nor a non-empty array of parts", content)
	}
	for i, p := range parts {
		if !slices.Contains(types, p.Type) {
			return fmt.Errorf("content[%d] has the type %q, not one of %v", i, p.Type, types)
		}
		if err := p.check(); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	return nil
}

func (p openAIChatPart) check() error {
	present := map[string]bool{"text": p.Text != nil, "refusal": p.Refusal != nil, "image_url": p.ImageURL != nil, "file": p.File != nil}
	for name, has := range present {
		if has != (name == p.Type) {
			return fmt.Errorf("a part of type %s has or lacks the member %s", p.Type, name)
		}
	}
	switch p.Type {
	case "image_url":
		return checkImageURL(p.ImageURL.URL)
	case "file":
		return checkFileData(p.File.Name, p.File.Data)
	}
	return nil
}

// checkImageURL checks the address of an image: https, or data of a known type.
func checkImageURL(address string) error {
	if u, err := url.Parse(address); err == nil && u.Scheme == "https" {
		return nil
	}
	kind, err := dataType(address)
	if err != nil {
		return err
	}
	if !slices.Contains(openAIImageTypes, kind) {
		return fmt.Errorf("unsupported image type %s", kind)
	}
	return nil
}

// checkFileData checks a file in a request. Only PDF files are documented for all models.
func checkFileData(name, data string) error {
	kind, err := dataType(data)
	if err != nil {
		return err
	}
	if kind != "application/pdf" || name == "" {
		return fmt.Errorf("file %q of type %s is not a PDF file with a name", name, kind)
	}
	return nil
}

// dataType returns the type of a non-empty data URI in base64.
func dataType(uri string) (string, error) {
	kind, encoded, ok := strings.Cut(strings.TrimPrefix(uri, "data:"), ";base64,")
	data, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || !strings.HasPrefix(uri, "data:") || err != nil || len(data) == 0 {
		return "", fmt.Errorf("%.40q is not data in base64", uri)
	}
	return kind, nil
}

// OpenAIChatStream returns the events of a reply in Chat Completions: one chunk with the
// role, the text and the calls in several deltas each, the calls one after another, the
// finish reason, a chunk with the usage and no choice, and [DONE].
func OpenAIChatStream(model string, r OpenAIReply) []string {
	var events []string
	chunk := func(delta map[string]any, finish any) {
		choice := map[string]any{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}
		events = append(events, "data: "+encodeWire(chatChunk(model, []any{choice}, nil))+"\n\n")
	}
	chunk(map[string]any{"role": "assistant", "content": "", "refusal": nil}, nil)
	for _, p := range pieces(r.Thinking) {
		chunk(map[string]any{"reasoning_content": p}, nil)
	}
	for _, p := range pieces(r.Text) {
		chunk(map[string]any{"content": p}, nil)
	}
	for _, p := range pieces(r.Refusal) {
		chunk(map[string]any{"refusal": p}, nil)
	}
	for i, c := range r.Calls {
		call := func(delta map[string]any) {
			delta["index"] = i
			chunk(map[string]any{"tool_calls": []any{delta}}, nil)
		}
		call(map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": ""}})
		for _, p := range pieces(c.Arguments) {
			call(map[string]any{"function": map[string]any{"arguments": p}})
		}
	}
	finish := "stop"
	if len(r.Calls) > 0 {
		finish = "tool_calls"
	}
	chunk(map[string]any{}, cmp.Or(r.Finish, finish))
	usage := map[string]any{
		"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
		"prompt_tokens_details":     map[string]any{"cached_tokens": 60},
		"completion_tokens_details": map[string]any{"reasoning_tokens": 5},
	}
	return append(events, "data: "+encodeWire(chatChunk(model, []any{}, usage))+"\n\n", "data: [DONE]\n\n")
}

// chatChunk returns one chunk of a stream.
func chatChunk(model string, choices []any, usage any) map[string]any {
	return map[string]any{
		"id": "chatcmpl-local", "object": "chat.completion.chunk", "created": 1790000000, "model": model + "-served",
		"system_fingerprint": "fp_local", "choices": choices, "usage": usage,
	}
}
