package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/settlement-ledger/ledger/projections/conversation"
)

// budgetModels are the beginnings of the names of the models of Anthropic that take a
// budget for thinking. Later models refuse it, and think as much as they find useful. The
// source is the public API documentation of extended and adaptive thinking.
var budgetModels = []string{
	"claude-3-", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2", "claude-opus-4-5", "claude-opus-4-6", "claude-opus-4@",
	"claude-sonnet-4", "claude-haiku-4",
}

// isAdaptive reports whether a model decides by itself how much it thinks. Such a model
// takes neither a budget for thinking nor a temperature. A model of another maker takes
// both.
func isAdaptive(model string) bool {
	name := baseName(model)
	return strings.HasPrefix(name, "claude-") && !slices.ContainsFunc(budgetModels, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// baseName returns the name of a model without the name of its maker, which a gateway puts
// before it.
func baseName(model string) string { return model[strings.LastIndex(model, "/")+1:] }

// thinking returns the parameter thinking of a request with messages, or nil. A request to
// a model with a budget has none if the reply that is under way has no thinking, because
// another model or an import made it: the API then refuses the parameter.
func (p *Provider) thinking(model string, messages []anthropic.MessageParam) map[string]any {
	switch {
	case p.config.ThinkingBudget == 0:
		return nil
	case isAdaptive(model):
		return map[string]any{"type": "adaptive", "display": "summarized"}
	case !startsWithThinking(messages):
		return nil
	}
	return map[string]any{"type": "enabled", "budget_tokens": p.config.ThinkingBudget}
}

// startsWithThinking reports whether the reply that is under way at the end of messages
// starts with thinking. A reply is under way if the last message has results. It starts
// behind the last message with more than results; if that one has results too, either
// reply before and behind it counts as its start.
func startsWithThinking(messages []anthropic.MessageParam) bool {
	for i := len(messages) - 1; i >= 2 && hasResults(messages[i]); i -= 2 {
		before, reply := messages[i-2], messages[i-1]
		if onlyResults(before) {
			continue
		}
		if first := reply.Content[0]; first.OfThinking == nil && first.OfRedactedThinking == nil {
			return false
		}
	}
	return true
}

// hasResults and onlyResults report whether a message has results of calls, and nothing
// else. Results are the first blocks of a message.
func hasResults(m anthropic.MessageParam) bool { return m.Content[0].OfToolResult != nil }
func onlyResults(m anthropic.MessageParam) bool {
	return m.Content[len(m.Content)-1].OfToolResult != nil
}

// A thinkingItem is a block of thinking that later requests contain, with its place in the
// reply.
type thinkingItem struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	// Text is the number of bytes of text before the block, and Calls the number of calls.
	Text  int `json:"text,omitempty"`
	Calls int `json:"calls,omitempty"`
}

// block returns the item as a block of a request, or nil if it is no thinking, or not
// signed.
func (t thinkingItem) block() *anthropic.ContentBlockParamUnion {
	switch {
	case t.Type == "thinking" && t.Signature != "":
		b := anthropic.NewThinkingBlock(t.Signature, t.Thinking)
		return &b
	case t.Type == "redacted_thinking" && t.Data != "":
		b := anthropic.NewRedactedThinkingBlock(t.Data)
		return &b
	}
	return nil
}

// thinkingOf returns the signed thinking of a reply that this provider and model made, if
// the model decides how much it thinks, or thinking is on.
func (p *Provider) thinkingOf(m conversation.ModelMessage, model string) []thinkingItem {
	if p.config.ThinkingBudget == 0 && !isAdaptive(model) {
		return nil
	}
	var items []thinkingItem
	for _, item := range m.Items {
		var t thinkingItem
		if item.Provider == p.config.Name && item.Model == model && json.Unmarshal(item.Data, &t) == nil && t.block() != nil {
			items = append(items, t)
		}
	}
	return items
}
