package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// A streamEvent is one event of a stream.
type streamEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Model string          `json:"model"`
		Usage json.RawMessage `json:"usage"`
	} `json:"message"`
	Block streamBlock `json:"content_block"`
	Delta struct {
		Type       string `json:"type"`
		Text       string `json:"text"`
		Thinking   string `json:"thinking"`
		Signature  string `json:"signature"`
		Input      string `json:"partial_json"`
		StopReason string `json:"stop_reason"`
	} `json:"delta"`
	Usage json.RawMessage `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// A streamBlock is the beginning of a block of content.
type streamBlock struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
}

// A messageUsage has the token counts of an event. A count that is absent stays as it was.
type messageUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

// callBlock is the type of a block with a call.
const callBlock = "tool_use"

// A replyReader assembles a reply from the events of a stream.
type replyReader struct {
	provider, model string
	emit            func(runner.Part) bool
	// blocks are in the order in which they began, and byIndex has them by their index.
	blocks  []*replyBlock
	byIndex map[int]*replyBlock
	// text is the number of bytes of the text so far, and calls the number of calls.
	text, calls int
	// replied is the model that the server names.
	replied string
	stop    string
	tokens  events.Tokens
}

// A replyBlock is a block of content as far as it was received.
type replyBlock struct {
	begin streamBlock
	// text and calls are those of the reply before the block.
	text, calls int
	// input has the deltas of the input of a call.
	input               strings.Builder
	thinking, signature strings.Builder
	ended               bool
}

// read reads a stream to its end and emits the parts of the reply. Before an error it
// emits the calls so far, with the input of a call that broke off as a JSON string.
func (r *replyReader) read(stream ssestream.Decoder) error {
	for stream.Next() {
		data := bytes.TrimSpace(stream.Event().Data)
		if len(data) == 0 {
			continue
		}
		ended, err := r.add(data)
		if err != nil {
			r.emitCalls(true)
			return err
		}
		if ended {
			return r.end()
		}
	}
	r.emitCalls(true)
	if err := stream.Err(); err != nil {
		return err
	}
	return modelapi.ErrCut
}

// add adds one event, and reports whether the reply has ended. It ignores events of an
// unknown type. It returns a *modelapi.ReportedError if the event reports an error, a
// modelapi.ErrProtocol if it does not follow from the events before it, and
// modelapi.ErrStopped if the reader of the parts stopped.
func (r *replyReader) add(data []byte) (ended bool, err error) {
	var e streamEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return false, fmt.Errorf("%w: event %s: %w", modelapi.ErrProtocol, modelapi.Excerpt(data), err)
	}
	switch e.Type {
	case "error":
		return false, modelapi.ParseReported(e.Error)
	case "message_start":
		r.replied = e.Message.Model
		r.setTokens(e.Message.Usage)
	case "content_block_start":
		return false, r.begin(e.Index, e.Block)
	case "content_block_delta":
		return false, r.addDelta(e)
	case "content_block_stop":
		return false, r.endBlock(e.Index)
	case "message_delta":
		if e.Delta.StopReason != "" {
			r.stop = e.Delta.StopReason
		}
		r.setTokens(e.Usage)
	case "message_stop":
		return true, nil
	}
	return false, nil
}

// setTokens sets the token counts. It ignores counts in an unknown form, because a reply
// without them is still complete.
func (r *replyReader) setTokens(data json.RawMessage) {
	var usage messageUsage
	if len(data) == 0 || json.Unmarshal(data, &usage) != nil {
		return
	}
	for _, count := range []struct {
		from *int64
		to   *int64
	}{{usage.Input, &r.tokens.Input}, {usage.Output, &r.tokens.Output}, {usage.CacheRead, &r.tokens.CacheRead}, {usage.CacheWrite, &r.tokens.CacheWrite}} {
		if count.from != nil {
			*count.to = *count.from
		}
	}
}

// begin begins a block.
func (r *replyReader) begin(index int, begin streamBlock) error {
	if r.byIndex[index] != nil {
		return fmt.Errorf("%w: block %d begins twice", modelapi.ErrProtocol, index)
	}
	b := &replyBlock{begin: begin, text: r.text, calls: r.calls}
	if r.byIndex == nil {
		r.byIndex = map[int]*replyBlock{}
	}
	r.blocks, r.byIndex[index] = append(r.blocks, b), b
	if begin.Type == callBlock {
		r.calls++
	}
	b.thinking.WriteString(begin.Thinking)
	b.signature.WriteString(begin.Signature)
	return r.emitText(begin.Text, begin.Thinking)
}

// emitText emits text and thinking that are not empty.
func (r *replyReader) emitText(text, thinking string) error {
	if thinking != "" && !r.emit(runner.ThinkingPart(modelapi.ValidText(thinking))) {
		return modelapi.ErrStopped
	}
	text = modelapi.ValidText(text)
	if r.text += len(text); text != "" && !r.emit(runner.TextPart(text)) {
		return modelapi.ErrStopped
	}
	return nil
}

// addDelta adds a delta to its block.
func (r *replyReader) addDelta(e streamEvent) error {
	b := r.byIndex[e.Index]
	if b == nil || b.ended {
		return fmt.Errorf("%w: a delta of block %d, which is not open", modelapi.ErrProtocol, e.Index)
	}
	b.input.WriteString(e.Delta.Input)
	b.thinking.WriteString(e.Delta.Thinking)
	b.signature.WriteString(e.Delta.Signature)
	return r.emitText(e.Delta.Text, e.Delta.Thinking)
}

// endBlock ends a block. It emits the signed thinking of the block, which later requests
// contain.
func (r *replyReader) endBlock(index int) error {
	b := r.byIndex[index]
	if b == nil || b.ended {
		return fmt.Errorf("%w: block %d ends and is not open", modelapi.ErrProtocol, index)
	}
	b.ended = true
	item := thinkingItem{
		Type: b.begin.Type, Thinking: b.thinking.String(), Signature: b.signature.String(), Data: b.begin.Data, Text: b.text, Calls: b.calls,
	}
	if item.block() == nil {
		return nil
	}
	data, _ := json.Marshal(item) // encoding strings never fails
	if !r.emit(runner.ProviderPart{Provider: r.provider, Model: r.model, Data: data}) {
		return modelapi.ErrStopped
	}
	return nil
}

// end emits the calls and the end of a reply.
func (r *replyReader) end() error {
	if !r.emitCalls(false) || !r.emit(runner.FinishPart{Reason: r.stop, Model: r.replied, Tokens: r.tokens}) {
		return modelapi.ErrStopped
	}
	return nil
}

// emitCalls emits the calls in the order in which they began. cut says that the stream
// broke off. It returns false if the reader of the parts stopped.
func (r *replyReader) emitCalls(cut bool) bool {
	for i, b := range r.blocks {
		if b.begin.Type != callBlock {
			continue
		}
		input := json.RawMessage(b.input.String())
		if len(input) == 0 {
			input = b.begin.Input
		}
		if !b.ended || i == len(r.blocks)-1 && (cut || stopsEarly(r.stop)) {
			input = modelapi.BrokenOff(string(input))
		}
		if !r.emit(runner.CallPart{ID: domain.CallID(b.begin.ID), Name: b.begin.Name, Input: input}) {
			return false
		}
	}
	return true
}

// stopsEarly reports whether a stop reason says that the model did not end its reply by
// itself, so that the input of its last call may have broken off. The API ends the block
// in that case too.
func stopsEarly(reason string) bool {
	return !slices.Contains([]string{"end_turn", "tool_use", "stop_sequence", "pause_turn"}, reason)
}
