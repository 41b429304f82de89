package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// A responsesEvent is one event of a Responses stream. Which members it has depends on its
// type.
type responsesEvent struct {
	Type         string          `json:"type"`
	OutputIndex  int             `json:"output_index"`
	SummaryIndex int             `json:"summary_index"`
	Delta        json.RawMessage `json:"delta"`
	Arguments    json.RawMessage `json:"arguments"`
	Item         json.RawMessage `json:"item"`
	Response     json.RawMessage `json:"response"`
	Error        json.RawMessage `json:"error"`
}

// An outputItem is an item of the output.
type outputItem struct {
	Type             string          `json:"type"`
	ID               string          `json:"id"`
	Status           string          `json:"status"`
	CallID           string          `json:"call_id"`
	Name             string          `json:"name"`
	Arguments        string          `json:"arguments"`
	Summary          json.RawMessage `json:"summary"`
	EncryptedContent string          `json:"encrypted_content"`
	Content          []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
}

// A finishedResponse is the response in the last event.
type finishedResponse struct {
	Model      string            `json:"model"`
	Error      json.RawMessage   `json:"error"`
	Output     []json.RawMessage `json:"output"`
	Usage      json.RawMessage   `json:"usage"`
	Status     string            `json:"status"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

// A responsesUsage has the token counts of a reply.
type responsesUsage struct {
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Details struct {
		Cached     int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
}

// A responsesReply assembles a reply from the events of a stream.
type responsesReply struct {
	emit func(runner.Part) bool
	// provider and model name the owner of reasoning items.
	provider, model string
	items           []*responsesItem
	text            int  // bytes of text so far
	thinking        bool // a reasoning text was emitted
}

// A responsesItem is an output item as far as it was received.
type responsesItem struct {
	outputItem
	index int
	// done is set when the item was received whole.
	done bool
	// argumentsDone is set when the arguments of a call were received whole.
	argumentsDone bool
	// shown is set when a text of the item was emitted.
	shown bool
	// textBefore is the number of bytes of text before the item.
	textBefore int
	arguments  strings.Builder
}

// readResponses reads a stream to the event that ends the response and emits the parts of
// the reply. Before an error it emits the calls so far, with the arguments of a call that
// broke off as a JSON string.
func readResponses(stream ssestream.Decoder, provider, model string, emit func(runner.Part) bool) error {
	r := &responsesReply{emit: emit, provider: provider, model: model}
	for stream.Next() {
		event := stream.Event()
		data := bytes.TrimSpace(event.Data)
		if len(data) == 0 {
			continue
		}
		if bytes.HasPrefix(data, []byte("[DONE]")) {
			break
		}
		ended, err := r.add(event.Type, data)
		if err != nil {
			r.emitCalls()
			return err
		}
		if ended {
			return nil
		}
	}
	r.emitCalls()
	return cmp.Or(stream.Err(), modelapi.ErrCut)
}

// add adds one event. It returns true after the event that ends the response. It returns a
// *modelapi.ReportedError if the event reports an error, a modelapi.ErrProtocol if it is not an event, and
// modelapi.ErrStopped if the reader of the parts stopped.
func (r *responsesReply) add(kind string, data []byte) (ended bool, err error) {
	var e responsesEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return false, fmt.Errorf("%w: event %s: %w", modelapi.ErrProtocol, modelapi.Excerpt(data), err)
	}
	switch cmp.Or(e.Type, kind) {
	case "response.output_item.added":
		err = r.setItem(e.OutputIndex, e.Item, false)
	case "response.output_item.done":
		err = r.setItem(e.OutputIndex, e.Item, true)
	case "response.output_text.delta", "response.refusal.delta":
		err = r.addText(r.item(e.OutputIndex), modelapi.Arguments(e.Delta))
	case "response.reasoning_summary_part.added":
		if r.thinking {
			return false, r.addThinking("\n\n")
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		return false, r.addThinking(modelapi.Arguments(e.Delta))
	case "response.function_call_arguments.delta":
		r.item(e.OutputIndex).arguments.WriteString(modelapi.Arguments(e.Delta))
	case "response.function_call_arguments.done":
		item := r.item(e.OutputIndex)
		item.Arguments, item.argumentsDone = modelapi.Arguments(e.Arguments), true
	case "response.completed", "response.incomplete", "response.failed":
		return true, r.end(e.Response)
	case "error":
		if present(e.Error) {
			return false, modelapi.ParseReported(e.Error)
		}
		return false, modelapi.ParseReported(data)
	default:
		if e.Type == "" && present(e.Error) {
			return false, modelapi.ParseReported(e.Error)
		}
	}
	if len(r.items) > maxCalls {
		return false, errTooManyCalls
	}
	return false, err
}

// item returns the item of an index. It begins the item if it is new.
func (r *responsesReply) item(index int) *responsesItem {
	for _, item := range slices.Backward(r.items) {
		if item.index == index {
			return item
		}
	}
	item := &responsesItem{index: index, textBefore: r.text}
	r.items = append(r.items, item)
	return item
}

// setItem sets an item as an event has it. done says that the item is whole; the text of a
// whole message without deltas is then emitted.
func (r *responsesReply) setItem(index int, data json.RawMessage, done bool) error {
	item := r.item(index)
	received := outputItem{}
	if err := json.Unmarshal(data, &received); err != nil {
		return fmt.Errorf("%w: output item %s: %w", modelapi.ErrProtocol, modelapi.Excerpt(data), err)
	}
	if item.done {
		return nil
	}
	item.outputItem, item.done = received, done
	if !done || item.shown {
		return nil
	}
	for _, part := range received.Content {
		if received.Type != "message" {
			break
		}
		if err := r.addText(item, part.Text+part.Refusal); err != nil {
			return err
		}
	}
	return nil
}

// addText emits text of a message. An empty line separates it from the message before.
func (r *responsesReply) addText(item *responsesItem, text string) error {
	text = modelapi.ValidText(text)
	if text == "" {
		return nil
	}
	if !item.shown && r.text > 0 {
		text = "\n\n" + text
	}
	item.shown = true
	r.text += len(text)
	if !r.emit(runner.TextPart(text)) {
		return modelapi.ErrStopped
	}
	return nil
}

func (r *responsesReply) addThinking(text string) error {
	if text = modelapi.ValidText(text); text == "" {
		return nil
	}
	r.thinking = true
	if !r.emit(runner.ThinkingPart(text)) {
		return modelapi.ErrStopped
	}
	return nil
}

// end ends the reply with the response in the last event. It takes the items from there
// that had no event of their own.
func (r *responsesReply) end(data json.RawMessage) error {
	var response finishedResponse
	if err := json.Unmarshal(data, &response); err != nil {
		return fmt.Errorf("%w: response %s: %w", modelapi.ErrProtocol, modelapi.Excerpt(data), err)
	}
	for i, item := range response.Output {
		if err := r.setItem(i, item, true); err != nil {
			return err
		}
	}
	if present(response.Error) || response.Status == "failed" {
		return modelapi.ParseReported(response.Error)
	}
	slices.SortStableFunc(r.items, func(a, b *responsesItem) int { return cmp.Compare(a.index, b.index) })
	if !r.emitReasoning() || !r.emitCalls() || !r.emit(response.finish()) {
		return modelapi.ErrStopped
	}
	return nil
}

// finish returns the end of the reply. Its reason is that of an incomplete response, and
// otherwise the status.
func (response finishedResponse) finish() runner.FinishPart {
	finish := runner.FinishPart{Reason: response.Status, Model: response.Model}
	if response.Incomplete != nil && response.Incomplete.Reason != "" {
		finish.Reason = response.Incomplete.Reason
	}
	var usage responsesUsage
	if present(response.Usage) && json.Unmarshal(response.Usage, &usage) == nil {
		finish.Tokens = tokens(usage.Input, usage.Output, usage.Details.Cached, usage.Details.CacheWrite)
	}
	return finish
}

// emitReasoning emits the reasoning items that the API wants back: those with encrypted
// content. The server did not store the others. It returns false if the reader of the
// parts stopped.
func (r *responsesReply) emitReasoning() bool {
	calls := 0
	for _, item := range r.items {
		if item.Type == "function_call" {
			calls++
		}
		if item.Type != "reasoning" || !item.done || item.EncryptedContent == "" {
			continue
		}
		wire := reasoningWire{Type: item.Type, ID: item.ID, Summary: item.Summary, EncryptedContent: item.EncryptedContent}
		if !present(wire.Summary) {
			wire.Summary = json.RawMessage("[]")
		}
		data, _ := json.Marshal(reasoningItem{Text: item.textBefore, Calls: calls, Item: wire}) // the summary was decoded from JSON
		if !r.emit(runner.ProviderPart{Provider: r.provider, Model: r.model, Data: data}) {
			return false
		}
	}
	return true
}

// whole reports whether the arguments of a call are whole.
func (item *responsesItem) whole() bool {
	if !item.done {
		return item.argumentsDone
	}
	return item.Status != "incomplete" && item.Status != "in_progress"
}

// emitCalls emits the calls in order. A call that was not received whole broke off. It
// returns false if the reader of the parts stopped.
func (r *responsesReply) emitCalls() bool {
	for _, item := range r.items {
		if item.Type != "function_call" {
			continue
		}
		text := cmp.Or(item.Arguments, item.arguments.String())
		input := json.RawMessage(text)
		if !item.whole() {
			input = modelapi.BrokenOff(text)
		}
		if !r.emit(runner.CallPart{ID: domain.CallID(item.CallID), Name: item.Name, Input: input}) {
			return false
		}
	}
	return true
}
