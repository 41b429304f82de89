package providerstest

import "net/http"

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
