package providerstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// openAIResponsesRequest is the part of a request to Responses that the server knows.
// Every other member is an unknown parameter.
type openAIResponsesRequest struct {
	Model           string            `json:"model"`
	Instructions    *string           `json:"instructions"`
	Input           []json.RawMessage `json:"input"`
	Stream          bool              `json:"stream"`
	Store           *bool             `json:"store"`
	Include         []string          `json:"include"`
	MaxOutputTokens *int64            `json:"max_output_tokens"`
	Temperature     *float64          `json:"temperature"`
	Reasoning       *struct {
		Effort string `json:"effort"`
	} `json:"reasoning"`
	Tools []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
}

// openAIItem is one item of the input. Which members an item has depends on its type.
type openAIItem struct {
	Type             string          `json:"type"`
	ID               *string         `json:"id"`
	Role             *string         `json:"role"`
	Content          json.RawMessage `json:"content"`
	CallID           *string         `json:"call_id"`
	Name             *string         `json:"name"`
	Arguments        *string         `json:"arguments"`
	Output           json.RawMessage `json:"output"`
	Summary          json.RawMessage `json:"summary"`
	EncryptedContent *string         `json:"encrypted_content"`
}

// CheckOpenAIResponses returns the first fault of the body of a request to Responses that
// asks for a stream and stores nothing. The rules are those of the public API reference.
func CheckOpenAIResponses(body []byte) error {
	var r openAIResponsesRequest
	if err := decodeStrict(body, &r); err != nil {
		return err
	}
	switch {
	case r.Model == "":
		return errors.New("model is missing")
	case len(r.Input) == 0:
		return errors.New("input is empty")
	case !r.Stream:
		return errors.New("this server only streams, and stream is not true")
	case r.Store == nil || *r.Store:
		return errors.New("store is not false: the ledger stores the conversation, the provider must not")
	case r.MaxOutputTokens != nil && *r.MaxOutputTokens < 16:
		return fmt.Errorf("max_output_tokens %d is under the minimum of 16", *r.MaxOutputTokens)
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 2):
		return fmt.Errorf("temperature %v is not between 0 and 2", *r.Temperature)
	case r.Reasoning != nil && !slices.Contains(openAIEfforts, r.Reasoning.Effort):
		return fmt.Errorf("reasoning.effort %q is unknown", r.Reasoning.Effort)
	case len(r.Tools) > openAIMaxTools:
		return fmt.Errorf("%d tools are over the limit of %d", len(r.Tools), openAIMaxTools)
	}
	for _, include := range r.Include {
		if include != "reasoning.encrypted_content" {
			return fmt.Errorf("include %q is unknown", include)
		}
		if openAIWithoutReasoning(r.Model) {
			return errors.New("encrypted content is not supported with this model")
		}
	}
	if r.Reasoning != nil && openAIWithoutReasoning(r.Model) {
		return errors.New("unsupported parameter: 'reasoning.effort' is not supported with this model")
	}
	seen := map[string]bool{}
	for i, t := range r.Tools {
		if t.Type != "function" || t.Strict == nil {
			return fmt.Errorf("tools[%d] is no function or lacks strict", i)
		}
		if err := checkFunction(t.Name, t.Parameters, t.Strict, seen); err != nil {
			return fmt.Errorf("tools[%d]: %w", i, err)
		}
	}
	if err := checkToolChoice(r.ToolChoice, len(r.Tools)); err != nil {
		return err
	}
	return checkItems(r.Input)
}

// openAIWithoutReasoning reports whether a model has no reasoning.
func openAIWithoutReasoning(model string) bool { return strings.HasPrefix(model, "gpt-4") }

// checkItems checks each item, that each call has one output after it, and that an item
// of the model follows each reasoning item.
func checkItems(input []json.RawMessage) error {
	calls, outputs := map[string]bool{}, map[string]bool{}
	reasoning := -1 // the reasoning item that the next item must follow
	for i, raw := range input {
		var item openAIItem
		if err := decodeStrict(raw, &item); err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
		if err := item.check(); err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
		ofModel := item.Type == "reasoning" || item.Type == "function_call" || item.Role != nil && *item.Role == "assistant"
		if reasoning >= 0 && !ofModel {
			return fmt.Errorf("input[%d] of type reasoning was provided without its required following item", reasoning)
		}
		switch reasoning = -1; item.Type {
		case "reasoning":
			reasoning = i
		case "function_call":
			if calls[*item.CallID] {
				return fmt.Errorf("input[%d]: two calls have the ID %s", i, *item.CallID)
			}
			calls[*item.CallID] = true
		case "function_call_output":
			if !calls[*item.CallID] || outputs[*item.CallID] {
				return fmt.Errorf("input[%d]: no open call has the ID %s", i, *item.CallID)
			}
			outputs[*item.CallID] = true
		}
	}
	if reasoning >= 0 {
		return fmt.Errorf("input[%d] of type reasoning was provided without its required following item", reasoning)
	}
	for id := range calls {
		if !outputs[id] {
			return fmt.Errorf("no tool output found for function call %s", id)
		}
	}
	return nil
}

// check checks one item by itself.
func (item openAIItem) check() error {
	members := map[string]bool{
		"id": item.ID != nil, "role": item.Role != nil, "content": item.Content != nil, "call_id": item.CallID != nil, "name": item.Name != nil,
		"arguments": item.Arguments != nil, "output": item.Output != nil, "summary": item.Summary != nil, "encrypted_content": item.EncryptedContent != nil,
	}
	want, ok := map[string][]string{
		"":                     {"role", "content"},
		"message":              {"role", "content"},
		"function_call":        {"call_id", "name", "arguments"},
		"function_call_output": {"call_id", "output"},
		"reasoning":            {"id", "summary", "encrypted_content"},
	}[item.Type]
	if !ok {
		return fmt.Errorf("type %q is unknown", item.Type)
	}
	for name, has := range members {
		if has != slices.Contains(want, name) {
			return fmt.Errorf("an item of type %q has or lacks the member %s", item.Type, name)
		}
	}
	switch item.Type {
	case "function_call":
		if !openAINamePattern.MatchString(*item.Name) {
			return fmt.Errorf("name %q does not match %s", *item.Name, openAINamePattern)
		}
		return checkResponsesCallID(*item.CallID)
	case "function_call_output":
		if err := checkResponsesCallID(*item.CallID); err != nil {
			return err
		}
		return checkParts(item.Output, "input_text", "input_image", "input_file")
	case "reasoning":
		var summary []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := decodeStrict(item.Summary, &summary); err != nil || summary == nil || !strings.HasPrefix(*item.ID, "rs") {
			return fmt.Errorf("id %q or summary %.80s is invalid", *item.ID, item.Summary)
		}
		return nil
	}
	switch *item.Role {
	case "user", "system", "developer":
		if string(item.Content) == `""` {
			return errors.New("content is empty")
		}
		return checkParts(item.Content, "input_text", "input_image", "input_file")
	case "assistant":
		return checkParts(item.Content, "output_text", "refusal")
	}
	return fmt.Errorf("role %q is unknown", *item.Role)
}

func checkResponsesCallID(id string) error {
	if id == "" || len(id) > openAIMaxResponsesCallID {
		return fmt.Errorf("call_id %q is empty or over %d characters", id, openAIMaxResponsesCallID)
	}
	return nil
}

// checkParts checks content or output: a string, or a non-empty array of parts of the
// types.
func checkParts(content json.RawMessage, types ...string) error {
	var text string
	if json.Unmarshal(content, &text) == nil && string(content) != "null" {
		return nil
	}
	var parts []struct {
		Type     string  `json:"type"`
		Text     *string `json:"text"`
		Refusal  *string `json:"refusal"`
		ImageURL *string `json:"image_url"`
		Detail   *string `json:"detail"`
		Name     *string `json:"filename"`
		Data     *string `json:"file_data"`
	}
	if err := decodeStrict(content, &parts); err != nil || len(parts) == 0 {
		return fmt.Errorf("%.80s is neither a string nor a non-empty array of parts", content)
	}
	for i, p := range parts {
		var err error
		switch {
		case !slices.Contains(types, p.Type):
			return fmt.Errorf("part %d has the type %q, not one of %v", i, p.Type, types)
		case p.Detail != nil && (p.Type != "input_image" || !slices.Contains([]string{"low", "high", "auto"}, *p.Detail)):
			err = fmt.Errorf("a part of type %s has the detail %q", p.Type, *p.Detail)
		case (p.Type == "input_text" || p.Type == "output_text") && p.Text != nil:
		case p.Type == "refusal" && p.Refusal != nil:
		case p.Type == "input_image" && p.ImageURL != nil:
			err = checkImageURL(*p.ImageURL)
		case p.Type == "input_file" && p.Data != nil && p.Name != nil:
			err = checkFileData(*p.Name, *p.Data)
		default:
			err = fmt.Errorf("a part of type %s lacks its content", p.Type)
		}
		if err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
	}
	return nil
}

// A responsesStream collects the events of a stream in Responses.
type responsesStream struct {
	events []string
	output []any
}

// add adds an event of a type.
func (s *responsesStream) add(kind string, members map[string]any) {
	members["type"], members["sequence_number"] = kind, len(s.events)
	s.events = append(s.events, "event: "+kind+"\ndata: "+encodeWire(members)+"\n\n")
}

// item adds an output item: the event that begins it, the events between, and the event
// with the whole item.
func (s *responsesStream) item(begun, done map[string]any, between func(id string, index int)) {
	index := len(s.output)
	s.add("response.output_item.added", map[string]any{"output_index": index, "item": begun})
	between(done["id"].(string), index)
	s.add("response.output_item.done", map[string]any{"output_index": index, "item": done})
	s.output = append(s.output, done)
}

// OpenAIResponsesStream returns the events of a reply in Responses, with each text and
// each arguments text in several deltas.
func OpenAIResponsesStream(model string, r OpenAIReply) []string {
	s := &responsesStream{}
	response := func(status string) map[string]any {
		return map[string]any{
			"id": "resp_local", "object": "response", "created_at": 1790000000, "status": status, "error": nil, "incomplete_details": nil,
			"model": model + "-served", "output": slices.Clone(s.output), "usage": nil, "store": false,
		}
	}
	s.add("response.created", map[string]any{"response": response("in_progress")})
	s.add("response.in_progress", map[string]any{"response": response("in_progress")})
	if r.Thinking != "" || r.Encrypted != "" {
		s.reasoning(r)
	}
	if r.Text != "" {
		s.message("output_text", "text", "response.output_text", r.Text)
	}
	if r.Refusal != "" {
		s.message("refusal", "refusal", "response.refusal", r.Refusal)
	}
	for i, c := range r.Calls {
		s.call(c, r.Finish != "" && i == len(r.Calls)-1)
	}
	end, last := "completed", response("completed")
	if r.Finish != "" {
		end, last = "incomplete", response("incomplete")
		last["incomplete_details"] = map[string]any{"reason": r.Finish}
	}
	last["usage"] = map[string]any{
		"input_tokens": 100, "input_tokens_details": map[string]any{"cached_tokens": 60},
		"output_tokens": 20, "output_tokens_details": map[string]any{"reasoning_tokens": 5}, "total_tokens": 120,
	}
	s.add("response."+end, map[string]any{"response": last})
	return s.events
}

func (s *responsesStream) reasoning(r OpenAIReply) {
	summary := []any{}
	if r.Thinking != "" {
		summary = []any{map[string]any{"type": "summary_text", "text": r.Thinking}}
	}
	id := fmt.Sprintf("rs_%d", len(s.output))
	begun := map[string]any{"id": id, "type": "reasoning", "summary": []any{}, "encrypted_content": ""}
	done := map[string]any{"id": id, "type": "reasoning", "summary": summary, "encrypted_content": r.Encrypted}
	s.item(begun, done, func(id string, index int) {
		for _, p := range pieces(r.Thinking) {
			s.add("response.reasoning_summary_text.delta", map[string]any{"item_id": id, "output_index": index, "summary_index": 0, "delta": p})
		}
	})
}

func (s *responsesStream) message(part, member, event, text string) {
	id := fmt.Sprintf("msg_%d", len(s.output))
	begun := map[string]any{"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []any{}}
	whole := map[string]any{"type": part, member: text}
	done := map[string]any{"id": id, "type": "message", "role": "assistant", "status": "completed", "content": []any{whole}}
	s.item(begun, done, func(id string, index int) {
		at := func(members map[string]any) map[string]any {
			members["item_id"], members["output_index"], members["content_index"] = id, index, 0
			return members
		}
		s.add("response.content_part.added", at(map[string]any{"part": map[string]any{"type": part, member: ""}}))
		for _, p := range pieces(text) {
			s.add(event+".delta", at(map[string]any{"delta": p}))
		}
		s.add(event+".done", at(map[string]any{member: text}))
		s.add("response.content_part.done", at(map[string]any{"part": whole}))
	})
}

// call adds a call. A broken-off call has no final arguments and the status incomplete.
func (s *responsesStream) call(c OpenAICall, brokenOff bool) {
	id, status := fmt.Sprintf("fc_%d", len(s.output)), "completed"
	if brokenOff {
		status = "incomplete"
	}
	begun := map[string]any{"id": id, "type": "function_call", "status": "in_progress", "call_id": c.ID, "name": c.Name, "arguments": ""}
	done := map[string]any{"id": id, "type": "function_call", "status": status, "call_id": c.ID, "name": c.Name, "arguments": c.Arguments}
	s.item(begun, done, func(id string, index int) {
		for _, p := range pieces(c.Arguments) {
			s.add("response.function_call_arguments.delta", map[string]any{"item_id": id, "output_index": index, "delta": p})
		}
		if !brokenOff {
			s.add("response.function_call_arguments.done", map[string]any{"item_id": id, "output_index": index, "name": c.Name, "arguments": c.Arguments})
		}
	})
}
