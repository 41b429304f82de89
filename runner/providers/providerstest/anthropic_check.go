package providerstest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// The formats of names and IDs in requests to the API, and its limits.
var (
	anthropicNamePattern     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	anthropicIDPattern       = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	anthropicPropertyPattern = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	anthropicImageTypes      = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
)

const (
	anthropicMaxBreakpoints = 4
	anthropicMinThinking    = 1024
)

// anthropicRequest is the part of a request to the Messages API that the server knows.
// Every other member is an unknown parameter.
type anthropicRequest struct {
	Model       string             `json:"model"`
	MaxTokens   int64              `json:"max_tokens"`
	Stream      bool               `json:"stream"`
	System      json.RawMessage    `json:"system"`
	Messages    []anthropicMessage `json:"messages"`
	Temperature *float64           `json:"temperature"`
	Thinking    *anthropicThinking `json:"thinking"`
	Tools       []anthropicTool    `json:"tools"`
	ToolChoice  *anthropicChoice   `json:"tool_choice"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicThinking struct {
	Type    string `json:"type"`
	Budget  int64  `json:"budget_tokens"`
	Display string `json:"display"`
}

type anthropicChoice struct {
	Type       string `json:"type"`
	Name       string `json:"name"`
	NoParallel bool   `json:"disable_parallel_tool_use"`
}

type anthropicTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	Cache       *anthropicCache `json:"cache_control"`
}

type anthropicCache struct {
	Type string `json:"type"`
	TTL  string `json:"ttl"`
}

// An anthropicBlock is one block of content, of any type.
type anthropicBlock struct {
	Type      string           `json:"type"`
	Cache     *anthropicCache  `json:"cache_control"`
	Text      *string          `json:"text"`
	ID        *string          `json:"id"`
	Name      *string          `json:"name"`
	Input     json.RawMessage  `json:"input"`
	ToolUseID *string          `json:"tool_use_id"`
	IsError   *bool            `json:"is_error"`
	Content   json.RawMessage  `json:"content"`
	Source    *anthropicSource `json:"source"`
	Title     *string          `json:"title"`
	Thinking  *string          `json:"thinking"`
	Signature *string          `json:"signature"`
	Data      *string          `json:"data"`
}

type anthropicSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
}

// anthropicMembers are the members that a block of a type must have, and those that it may
// have, apart from cache_control.
var anthropicMembers = map[string]struct{ must, may []string }{
	"text":              {[]string{"text"}, nil},
	"image":             {[]string{"source"}, nil},
	"document":          {[]string{"source"}, []string{"title"}},
	"tool_use":          {[]string{"id", "name", "input"}, nil},
	"tool_result":       {[]string{"tool_use_id"}, []string{"content", "is_error"}},
	"thinking":          {[]string{"thinking", "signature"}, nil},
	"redacted_thinking": {[]string{"data"}, nil},
}

// checkAnthropicRequest returns the first fault of a request to a path.
func checkAnthropicRequest(path string, body []byte, header http.Header) error {
	if path != "/v1/messages" {
		return fmt.Errorf("unknown path %s", path)
	}
	if version := header.Get("Anthropic-Version"); version != "2023-06-01" {
		return fmt.Errorf("anthropic-version %q is not 2023-06-01", version)
	}
	return CheckAnthropic(body)
}

// CheckAnthropic returns the first fault of the body of a request to the Messages API. The
// rules are those of the public API reference and of the errors that the API is known to
// report, with two more: the roles alternate, although the API joins messages of one role,
// and results are in the order of their calls.
func CheckAnthropic(body []byte) error {
	var r anthropicRequest
	if err := decodeStrict(body, &r); err != nil {
		return err
	}
	switch {
	case r.Model == "":
		return errors.New("model: field required")
	case r.MaxTokens < 1:
		return fmt.Errorf("max_tokens: %d is under 1", r.MaxTokens)
	case !r.Stream:
		return errors.New("this server only streams, and stream is not true")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 1):
		return fmt.Errorf("temperature: %v is not between 0 and 1", *r.Temperature)
	}
	if err := r.checkThinking(); err != nil {
		return err
	}
	c := &anthropicChecker{request: r, ids: map[string]bool{}}
	if err := c.checkTools(); err != nil {
		return err
	}
	if err := c.checkSystem(); err != nil {
		return err
	}
	if err := c.checkMessages(); err != nil {
		return err
	}
	if c.breakpoints > anthropicMaxBreakpoints {
		return fmt.Errorf("a maximum of %d blocks with cache_control may be provided, found %d", anthropicMaxBreakpoints, c.breakpoints)
	}
	return nil
}

// checkThinking checks the parameter thinking and those that depend on it.
func (r *anthropicRequest) checkThinking() error {
	if r.Thinking == nil {
		return nil
	}
	switch t := r.Thinking; {
	case !slices.Contains([]string{"enabled", "disabled", "adaptive"}, t.Type):
		return fmt.Errorf("thinking.type: %q is unknown", t.Type)
	case t.Type != "enabled" && t.Budget != 0:
		return fmt.Errorf("thinking.budget_tokens: not permitted with the type %s", t.Type)
	case t.Type == "disabled":
		return nil
	case t.Type == "enabled" && t.Budget < anthropicMinThinking:
		return fmt.Errorf("thinking.budget_tokens: %d is under %d", t.Budget, anthropicMinThinking)
	case t.Budget >= r.MaxTokens:
		return fmt.Errorf("max_tokens: %d is not over the %d of thinking.budget_tokens", r.MaxTokens, t.Budget)
	case r.Temperature != nil && *r.Temperature != 1:
		return errors.New("temperature: may only be 1 when thinking is enabled")
	case r.ToolChoice != nil && (r.ToolChoice.Type == "any" || r.ToolChoice.Type == "tool"):
		return errors.New("thinking may not be enabled when tool_choice forces tool use")
	}
	return nil
}

// An anthropicChecker checks one request.
type anthropicChecker struct {
	request     anthropicRequest
	breakpoints int
	// ids has the IDs of the calls so far.
	ids map[string]bool
}

// cache checks and counts a cache_control.
func (c *anthropicChecker) cache(cache *anthropicCache) error {
	if cache == nil {
		return nil
	}
	if cache.Type != "ephemeral" || !slices.Contains([]string{"", "5m", "1h"}, cache.TTL) {
		return fmt.Errorf("cache_control: %+v is unknown", *cache)
	}
	c.breakpoints++
	return nil
}

// checkTools checks the tools and the parameter tool_choice.
func (c *anthropicChecker) checkTools() error {
	seen := map[string]bool{}
	for i, t := range c.request.Tools {
		if t.Type != "" && t.Type != "custom" {
			return fmt.Errorf("tools.%d.type: %q is unknown", i, t.Type)
		}
		if !anthropicNamePattern.MatchString(t.Name) {
			return fmt.Errorf("tools.%d.name: %q does not match %s", i, t.Name, anthropicNamePattern)
		}
		if seen[t.Name] {
			return fmt.Errorf("tools: tool names must be unique, and %s is there twice", t.Name)
		}
		seen[t.Name] = true
		if err := checkAnthropicSchema(t.Schema); err != nil {
			return fmt.Errorf("tools.%d.input_schema: %w", i, err)
		}
		if err := c.cache(t.Cache); err != nil {
			return fmt.Errorf("tools.%d.%w", i, err)
		}
	}
	switch choice := c.request.ToolChoice; {
	case choice == nil:
		return nil
	case len(c.request.Tools) == 0:
		return errors.New("tool_choice: may only be specified while providing tools")
	case !slices.Contains([]string{"auto", "any", "tool", "none"}, choice.Type):
		return fmt.Errorf("tool_choice.type: %q is unknown", choice.Type)
	case (choice.Type == "tool") != (choice.Name != ""), choice.Name != "" && !seen[choice.Name]:
		return fmt.Errorf("tool_choice.name: %q is not a tool, or is given with the type %s", choice.Name, choice.Type)
	case choice.Type == "none" && choice.NoParallel:
		return errors.New("tool_choice.disable_parallel_tool_use: not permitted with the type none")
	}
	return nil
}

// checkAnthropicSchema checks the schema of an input.
func checkAnthropicSchema(schema json.RawMessage) error {
	var s map[string]json.RawMessage
	if err := json.Unmarshal(schema, &s); err != nil || s == nil {
		return fmt.Errorf("%.80s is not an object", schema)
	}
	if string(s["type"]) != `"object"` {
		return fmt.Errorf("type: %s is not object", s["type"])
	}
	for _, key := range []string{"oneOf", "allOf", "anyOf"} {
		if _, ok := s[key]; ok {
			return errors.New("it does not support oneOf, allOf, or anyOf at the top level")
		}
	}
	var properties map[string]json.RawMessage
	if p, ok := s["properties"]; ok && json.Unmarshal(p, &properties) != nil {
		return errors.New("properties: it is not an object")
	}
	for key := range properties {
		if !anthropicPropertyPattern.MatchString(key) {
			return fmt.Errorf("properties: the key %q does not match %s", key, anthropicPropertyPattern)
		}
	}
	return nil
}

// checkSystem checks the system prompt: a string, or an array of text blocks.
func (c *anthropicChecker) checkSystem() error {
	if c.request.System == nil {
		return nil
	}
	blocks, err := anthropicBlocks(c.request.System)
	if err != nil {
		return fmt.Errorf("system: %w", err)
	}
	for i, b := range blocks {
		if b.Type != "text" {
			return fmt.Errorf("system.%d.type: %q is not text", i, b.Type)
		}
		if err := c.checkBlock(b); err != nil {
			return fmt.Errorf("system.%d.%w", i, err)
		}
	}
	return nil
}

// anthropicBlocks returns content as blocks. A string is one text block.
func anthropicBlocks(content json.RawMessage) ([]anthropicBlock, error) {
	var text string
	if bytes.HasPrefix(content, []byte(`"`)) && json.Unmarshal(content, &text) == nil {
		return []anthropicBlock{{Type: "text", Text: &text}}, nil
	}
	var blocks []anthropicBlock
	if err := decodeStrict(content, &blocks); err != nil || blocks == nil {
		return nil, fmt.Errorf("content: %.80s is neither a string nor an array of blocks", content)
	}
	return blocks, nil
}

// checkMessages checks the messages: they alternate from a user message on, and each call
// is answered once by the first blocks of the next message.
func (c *anthropicChecker) checkMessages() error {
	if len(c.request.Messages) == 0 {
		return errors.New("messages: at least one message is required")
	}
	roles := []string{"user", "assistant"}
	var open []string // the calls that the next message must answer
	var messages [][]anthropicBlock
	for i, m := range c.request.Messages {
		if m.Role != roles[i%2] {
			return fmt.Errorf("messages.%d: roles must alternate between user and assistant from a user message on, and this is %q", i, m.Role)
		}
		blocks, err := anthropicBlocks(m.Content)
		if err != nil {
			return fmt.Errorf("messages.%d.%w", i, err)
		}
		if len(blocks) == 0 {
			return fmt.Errorf("messages.%d: all messages must have non-empty content", i)
		}
		if err := c.checkMessage(m.Role, blocks, open); err != nil {
			return fmt.Errorf("messages.%d: %w", i, err)
		}
		open, messages = callsOf(blocks), append(messages, blocks)
	}
	return c.checkEnd(messages)
}

// callsOf returns the IDs of the calls in a message.
func callsOf(blocks []anthropicBlock) []string {
	var ids []string
	for _, b := range blocks {
		if b.Type == "tool_use" {
			ids = append(ids, *b.ID)
		}
	}
	return ids
}

// checkEnd checks the end of the messages: the last one is of the user, because several
// models take no other, and a reply that is under way there starts with thinking, if the
// request has a budget for it. The reply starts behind the last message with more than
// results.
func (c *anthropicChecker) checkEnd(messages [][]anthropicBlock) error {
	last := len(messages) - 1
	if last%2 == 1 {
		return errors.New("this model does not support assistant message prefill: the conversation must end with a user message")
	}
	if c.request.Thinking == nil || c.request.Thinking.Type != "enabled" || messages[last][0].Type != "tool_result" {
		return nil
	}
	start := last - 2
	for start > 0 && !slices.ContainsFunc(messages[start], func(b anthropicBlock) bool { return b.Type != "tool_result" }) {
		start -= 2
	}
	if first := messages[start+1][0]; !isThinking(first) {
		return fmt.Errorf("messages.%d.content.0: when thinking is enabled, a final assistant message must start with a thinking block, but found %s", start+1, first.Type)
	}
	return nil
}

// isThinking reports whether a block has thinking.
func isThinking(b anthropicBlock) bool {
	return b.Type == "thinking" || b.Type == "redacted_thinking"
}

// checkMessage checks the blocks of one message, which must answer the open calls, in
// order and before any other block.
func (c *anthropicChecker) checkMessage(role string, blocks []anthropicBlock, open []string) error {
	allowed := []string{"text", "image", "document", "tool_result"}
	if role == "assistant" {
		allowed = []string{"text", "tool_use", "thinking", "redacted_thinking"}
	}
	answers, others := []string{}, false
	for j, b := range blocks {
		if !slices.Contains(allowed, b.Type) {
			return fmt.Errorf("content.%d: a message of the role %s has no block of the type %q", j, role, b.Type)
		}
		if err := c.checkBlock(b); err != nil {
			return fmt.Errorf("content.%d.%w", j, err)
		}
		if b.Type != "tool_result" {
			others = true
			continue
		}
		if others {
			return fmt.Errorf("content.%d: tool_result blocks must come first in a message", j)
		}
		if !slices.Contains(open, *b.ToolUseID) || slices.Contains(answers, *b.ToolUseID) {
			return fmt.Errorf("content.%d: each tool_result block must have one corresponding tool_use block in the previous message, and %s has not", j, *b.ToolUseID)
		}
		answers = append(answers, *b.ToolUseID)
	}
	if missing := slices.DeleteFunc(slices.Clone(open), func(id string) bool { return slices.Contains(answers, id) }); len(missing) > 0 {
		return fmt.Errorf("tool_use ids were found without tool_result blocks immediately after: %s", strings.Join(missing, ", "))
	}
	if !slices.Equal(open, answers) {
		return fmt.Errorf("the tool_result blocks %v are not in the order of the calls %v", answers, open)
	}
	if n := len(blocks); role == "assistant" && n > 0 && isThinking(blocks[n-1]) {
		return errors.New("the final block in an assistant message cannot be thinking")
	}
	return nil
}

// checkBlock checks one block by itself.
func (c *anthropicChecker) checkBlock(b anthropicBlock) error {
	if err := b.checkMembers(); err != nil {
		return err
	}
	if err := c.cache(b.Cache); err != nil {
		return err
	}
	switch b.Type {
	case "text":
		if strings.TrimSpace(*b.Text) == "" {
			return errors.New("text: text content blocks must contain non-whitespace text")
		}
	case "image", "document":
		return b.Source.check(b.Type)
	case "tool_use":
		return c.checkCall(b)
	case "tool_result":
		return c.checkResult(b)
	case "thinking", "redacted_thinking":
		switch {
		case b.Cache != nil:
			return errors.New("cache_control: not permitted on thinking")
		case b.Signature != nil && *b.Signature == "", b.Data != nil && *b.Data == "":
			return errors.New("signature: it is missing or invalid")
		}
	}
	return nil
}

// checkMembers checks that a block of a known type has the members of its type and no
// others.
func (b anthropicBlock) checkMembers() error {
	members := anthropicMembers[b.Type]
	present := map[string]bool{
		"text": b.Text != nil, "id": b.ID != nil, "name": b.Name != nil, "input": b.Input != nil, "tool_use_id": b.ToolUseID != nil, "is_error": b.IsError != nil,
		"content": b.Content != nil, "source": b.Source != nil, "title": b.Title != nil, "thinking": b.Thinking != nil, "signature": b.Signature != nil, "data": b.Data != nil,
	}
	for name, has := range present {
		must := slices.Contains(members.must, name)
		if must && !has {
			return fmt.Errorf("%s.%s: field required", b.Type, name)
		}
		if has && !must && !slices.Contains(members.may, name) {
			return fmt.Errorf("%s.%s: extra inputs are not permitted", b.Type, name)
		}
	}
	return nil
}

// checkCall checks a tool_use block, whose ID no other block of the request has.
func (c *anthropicChecker) checkCall(b anthropicBlock) error {
	switch {
	case len(c.request.Tools) == 0:
		return errors.New("tool_use: requests which have tool_use or tool_result blocks must define tools")
	case !anthropicIDPattern.MatchString(*b.ID):
		return fmt.Errorf("tool_use.id: %q does not match %s", *b.ID, anthropicIDPattern)
	case c.ids[*b.ID]:
		return fmt.Errorf("tool_use.id: tool_use ids must be unique, and %s is there twice", *b.ID)
	case !anthropicNamePattern.MatchString(*b.Name):
		return fmt.Errorf("tool_use.name: %q does not match %s", *b.Name, anthropicNamePattern)
	case !bytes.HasPrefix(bytes.TrimSpace(b.Input), []byte("{")):
		return fmt.Errorf("tool_use.input: %.80s is not a valid dictionary", b.Input)
	}
	c.ids[*b.ID] = true
	return nil
}

// checkResult checks a tool_result block: an error has text only, and some.
func (c *anthropicChecker) checkResult(b anthropicBlock) error {
	var blocks []anthropicBlock
	if b.Content != nil && string(b.Content) != `""` {
		var err error
		if blocks, err = anthropicBlocks(b.Content); err != nil {
			return fmt.Errorf("tool_result.%w", err)
		}
	}
	failed := b.IsError != nil && *b.IsError
	if failed && len(blocks) == 0 {
		return errors.New("tool_result: content cannot be empty if is_error is true")
	}
	for k, inner := range blocks {
		if !slices.Contains([]string{"text", "image", "document"}, inner.Type) {
			return fmt.Errorf("tool_result.content.%d: a result has no block of the type %q", k, inner.Type)
		}
		if failed && inner.Type != "text" {
			return fmt.Errorf("tool_result.content.%d: all content must be of the type text if is_error is true", k)
		}
		if err := c.checkBlock(inner); err != nil {
			return fmt.Errorf("tool_result.content.%d.%w", k, err)
		}
	}
	return nil
}

// check checks the source of an image or a document.
func (s *anthropicSource) check(block string) error {
	types := anthropicImageTypes
	if block == "document" {
		types = []string{"application/pdf"}
	}
	switch s.Type {
	case "url":
		if u, err := url.Parse(s.URL); err != nil || u.Scheme != "https" {
			return fmt.Errorf("source.url: %q is not an address of https", s.URL)
		}
	case "base64":
		data, err := base64.StdEncoding.DecodeString(s.Data)
		if err != nil || len(data) == 0 || !slices.Contains(types, s.MediaType) {
			return fmt.Errorf("source: %d bytes of the type %q are not base64 of a %s", len(data), s.MediaType, block)
		}
	case "text":
		if block != "document" || s.MediaType != "text/plain" || s.Data == "" {
			return fmt.Errorf("source: text of the type %q is not a source of a %s", s.MediaType, block)
		}
	default:
		return fmt.Errorf("source.type: %q is unknown", s.Type)
	}
	return nil
}
