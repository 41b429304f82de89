package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// A chatChunk is one event of a Chat Completions stream. A server reports an error with the
// member error, or with the object "error" and a message.
type chatChunk struct {
	Object  string          `json:"object"`
	Model   string          `json:"model"`
	Message json.RawMessage `json:"message"`
	Code    json.RawMessage `json:"code"`
	Error   json.RawMessage `json:"error"`
	Usage   json.RawMessage `json:"usage"`
	Choices []struct {
		Index  int       `json:"index"`
		Delta  chatDelta `json:"delta"`
		Finish string    `json:"finish_reason"`
	} `json:"choices"`
}

// A chatDelta is what a chunk adds to the reply. Compatible servers name the reasoning
// reasoning_content or reasoning.
type chatDelta struct {
	Content          chatText           `json:"content"`
	Refusal          string             `json:"refusal"`
	ReasoningContent string             `json:"reasoning_content"`
	Reasoning        string             `json:"reasoning"`
	ToolCalls        []chatCallDelta    `json:"tool_calls"`
	FunctionCall     *chatFunctionDelta `json:"function_call"`
}

// A chatCallDelta is what a chunk adds to a call.
type chatCallDelta struct {
	Index    *int              `json:"index"`
	ID       string            `json:"id"`
	Function chatFunctionDelta `json:"function"`
}

type chatFunctionDelta struct {
	Name string `json:"name"`
	// Arguments is a string, or the JSON object itself.
	Arguments json.RawMessage `json:"arguments"`
}

// text returns the arguments text of the delta.
func (f chatFunctionDelta) text() string {
	if string(f.Arguments) == "null" {
		return ""
	}
	return modelapi.Arguments(f.Arguments)
}

// A chatText is content: a string, or an array of parts that have a text.
type chatText string

// UnmarshalJSON decodes a string, an array of parts or null.
func (t *chatText) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*string)(t))
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
	}
	*t = chatText(text.String())
	return nil
}

// A chatUsage has the token counts of a reply.
type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached     int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
}

// A chatReply assembles a reply from the chunks of a stream.
type chatReply struct {
	emit    func(runner.Part) bool
	message domain.MessageID
	calls   []*chatCall
	model   string
	finish  string
	tokens  events.Tokens
}

// A chatCall is a call as far as it was received.
type chatCall struct {
	index     *int
	id, name  string
	arguments strings.Builder
	scan      objectScan
	// closed is set when a later call begins: the arguments are then complete. It is
	// cleared if more of them arrive.
	closed bool
}

// readChat reads a stream to its end and emits the parts of the reply. The end is [DONE],
// or the end of the response behind a finish reason. Before an error it emits the calls
// so far, with the arguments of a call that broke off as a JSON string.
func readChat(stream ssestream.Decoder, message domain.MessageID, emit func(runner.Part) bool) error {
	r := &chatReply{emit: emit, message: message}
	for stream.Next() {
		data := bytes.TrimSpace(stream.Event().Data)
		if len(data) == 0 {
			continue
		}
		if bytes.HasPrefix(data, []byte("[DONE]")) {
			return r.end()
		}
		if err := r.add(data); err != nil {
			r.emitCalls(true)
			return err
		}
	}
	if err := stream.Err(); err != nil {
		r.emitCalls(true)
		return err
	}
	if r.finish == "" {
		r.emitCalls(true)
		return modelapi.ErrCut
	}
	return r.end()
}

// add adds one chunk. It returns a *modelapi.ReportedError if the chunk reports an error, an
// modelapi.ErrProtocol if it is not a chunk, and modelapi.ErrStopped if the reader of the parts stopped.
func (r *chatReply) add(data []byte) error {
	var chunk chatChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("%w: chunk %s: %w", modelapi.ErrProtocol, modelapi.Excerpt(data), err)
	}
	if present(chunk.Error) {
		return modelapi.ParseReported(chunk.Error)
	}
	if chunk.Object == "error" {
		return modelapi.ParseReported(data)
	}
	if chunk.Model != "" {
		r.model = chunk.Model
	}
	if present(chunk.Usage) {
		r.setTokens(chunk.Usage)
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		if err := r.addDelta(choice.Delta); err != nil {
			return err
		}
		if choice.Finish != "" {
			r.finish = choice.Finish
		}
	}
	return nil
}

// setTokens sets the token counts. It ignores counts in an unknown form, because a reply
// without them is still complete.
func (r *chatReply) setTokens(data json.RawMessage) {
	var usage chatUsage
	if json.Unmarshal(data, &usage) == nil {
		r.tokens = tokens(usage.Prompt, usage.Completion, usage.Details.Cached, usage.Details.CacheWrite)
	}
}

// tokens returns token counts. The API counts tokens of the cache as input tokens too.
func tokens(input, output, read, write int64) events.Tokens {
	return events.Tokens{Input: max(input-read-write, 0), Output: output, CacheRead: read, CacheWrite: write}
}

func (r *chatReply) addDelta(d chatDelta) error {
	reasoning := d.ReasoningContent
	if reasoning == "" {
		reasoning = d.Reasoning // some servers send the same text under both names
	}
	for _, part := range []runner.Part{runner.ThinkingPart(modelapi.ValidText(reasoning)), runner.TextPart(modelapi.ValidText(string(d.Content))), runner.TextPart(modelapi.ValidText(d.Refusal))} {
		if part != runner.ThinkingPart("") && part != runner.TextPart("") && !r.emit(part) {
			return modelapi.ErrStopped
		}
	}
	for _, c := range d.ToolCalls {
		if r.addCall(c); len(r.calls) > maxCalls {
			return errTooManyCalls
		}
	}
	if d.FunctionCall != nil {
		if r.addCall(chatCallDelta{Function: *d.FunctionCall}); len(r.calls) > maxCalls {
			return errTooManyCalls
		}
	}
	return nil
}

// addCall adds a delta to its call, which it may begin.
func (r *chatReply) addCall(d chatCallDelta) {
	text := d.Function.text()
	c := r.callOf(d, text)
	if c == nil {
		for _, before := range r.calls {
			before.closed = true
		}
		c = &chatCall{index: d.Index}
		r.calls = append(r.calls, c)
	} else {
		c.closed = false
	}
	if c.id == "" {
		c.id = d.ID
	}
	if c.name == "" {
		c.name = d.Function.Name
	} else if c.name != d.Function.Name { // some servers repeat the name in every delta
		c.name += d.Function.Name
	}
	c.arguments.WriteString(text)
	c.scan.write(text)
}

// callOf returns the call that a delta continues, or nil if the delta begins a call. The
// index decides, then the ID, and without both it is the last call. Some servers give
// every call the same index, or send each call as one piece without an index: a delta
// with another ID, or with a name and arguments behind a complete object, begins a call.
func (r *chatReply) callOf(d chatCallDelta, text string) *chatCall {
	var c *chatCall
	for _, known := range r.calls {
		switch {
		case d.Index != nil && known.index != nil && *known.index == *d.Index:
			c = known
		case d.Index == nil && d.ID != "" && known.id == d.ID:
			c = known
		case d.Index == nil && d.ID == "":
			c = known
		}
	}
	switch {
	case c == nil, d.ID != "" && c.id != "" && d.ID != c.id:
		return nil
	case d.Function.Name != "" && text != "" && c.scan.complete():
		return nil
	case d.Function.Name != "" && d.Index == nil && d.Function.Name != c.name:
		return nil
	}
	return c
}

// end emits the calls and the end of a reply.
func (r *chatReply) end() error {
	if !r.emitCalls(false) || !r.emit(runner.FinishPart{Reason: r.finish, Model: r.model, Tokens: r.tokens}) {
		return modelapi.ErrStopped
	}
	return nil
}

// emitCalls emits the calls in the order in which they began. cut says that the stream
// broke off. It returns false if the reader of the parts stopped.
func (r *chatReply) emitCalls(cut bool) bool {
	for i, c := range r.calls {
		id := c.id
		if id == "" {
			id = modelapi.MadeCallID(r.message, i)
		}
		input := json.RawMessage(c.arguments.String())
		if !c.closed && (cut || stopsEarly(r.finish)) {
			input = modelapi.BrokenOff(c.arguments.String())
		}
		if !r.emit(runner.CallPart{ID: domain.CallID(id), Name: c.name, Input: input}) {
			return false
		}
	}
	return true
}

// stopsEarly reports whether a finish reason says that the model did not end its reply by
// itself, so that the arguments of its last call may have broken off.
func stopsEarly(finish string) bool {
	switch strings.ToLower(finish) {
	case "length", "max_tokens", "max_output_tokens", "model_length", "content_filter", "safety", "recitation", "error", "abort", "cancelled":
		return true
	}
	return false
}

// An objectScan finds the end of a JSON object in text that is written piece by piece.
type objectScan struct {
	depth            int
	ended            bool
	inString, escape bool
}

// write scans the next piece.
func (s *objectScan) write(text string) {
	for i := range len(text) {
		switch b := text[i]; {
		case s.escape:
			s.escape = false
		case s.inString && b == '\\':
			s.escape = true
		case b == '"':
			s.inString = !s.inString
		case s.inString:
		case b == '{' || b == '[':
			s.depth++
		case b == '}' || b == ']':
			s.depth--
			s.ended = s.depth == 0
		}
	}
}

// complete reports whether the text is a whole object.
func (s *objectScan) complete() bool { return s.ended && s.depth == 0 }
