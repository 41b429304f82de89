package openai

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// responsesParameters returns the body of a Responses request without instructions, input
// and tools. The server stores nothing.
func (p *Provider) responsesParameters(model string, choice toolChoice) responses.ResponseNewParams {
	params := responses.ResponseNewParams{Model: model, Store: param.NewOpt(false)}
	if p.config.MaxOutputTokens > 0 {
		params.MaxOutputTokens = param.NewOpt(p.config.MaxOutputTokens)
	}
	if p.config.Temperature != nil {
		params.Temperature = param.NewOpt(*p.config.Temperature)
	}
	if reasons(model) {
		params.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
		params.Reasoning = shared.ReasoningParam{Effort: shared.ReasoningEffort(p.config.ReasoningEffort)}
	}
	if choice != "" {
		params.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptions(choice))}
	}
	params.SetExtraFields(map[string]any{"stream": true})
	return params
}

// responsesTools returns the tools of a request. The API takes a schema as strict if the
// request does not say otherwise.
func responsesTools(tools []preparedTool) []responses.ToolUnionParam {
	var sent []responses.ToolUnionParam
	for _, t := range tools {
		sent = append(sent, responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
			Name: t.name, Description: optional(t.description), Parameters: t.schema, Strict: param.NewOpt(false),
		}})
	}
	return sent
}

// A reasoningItem is the data of a ProviderPart: the reasoning item as the API wants it
// back, and its place in the reply.
type reasoningItem struct {
	// Text is the number of bytes of the reply's text before the item, and Calls the
	// number of its calls.
	Text  int           `json:"text"`
	Calls int           `json:"calls"`
	Item  reasoningWire `json:"item"`
}

// A reasoningWire is a reasoning item of the API.
type reasoningWire struct {
	Type             string          `json:"type"`
	ID               string          `json:"id"`
	Summary          json.RawMessage `json:"summary"`
	EncryptedContent string          `json:"encrypted_content"`
}

// A responsesConversation collects the input items of a Responses request.
type responsesConversation struct {
	ids   *modelapi.CallIDs
	items responses.ResponseInputParam
	// given reports whether an item goes back to the API.
	given func(events.ProviderItem) bool
}

// responsesInput returns the input of a turn. It contains the reasoning items for which
// given is true.
func responsesInput(turn runner.Turn, given func(events.ProviderItem) bool) responses.ResponseInputParam {
	c := &responsesConversation{ids: modelapi.NewCallIDs(maxResponsesCallID), given: given}
	for _, m := range turn.Conversation.ModelMessages() {
		switch m.Role {
		case conversation.User:
			c.prompt(m)
		case conversation.Assistant:
			c.reply(m)
		case conversation.ToolRole:
			c.result(m)
		}
	}
	c.message(turn.Instruction, responses.EasyInputMessageRoleUser)
	return c.items
}

// message adds a message. It leaves out a blank one.
func (c *responsesConversation) message(text string, role responses.EasyInputMessageRole) {
	if strings.TrimSpace(text) != "" {
		c.items = append(c.items, responses.ResponseInputItemParamOfMessage(text, role))
	}
}

// prompt adds a prompt with its media.
func (c *responsesConversation) prompt(m conversation.ModelMessage) {
	media := m.Media.Media()
	if len(media) == 0 {
		c.message(m.Text, responses.EasyInputMessageRoleUser)
		return
	}
	var parts responses.ResponseInputMessageContentListParam
	for _, file := range media {
		parts = append(parts, promptPart(file))
	}
	if strings.TrimSpace(m.Text) != "" {
		parts = append(parts, responses.ResponseInputContentParamOfInputText(m.Text))
	}
	c.items = append(c.items, responses.ResponseInputItemParamOfMessage(parts, responses.EasyInputMessageRoleUser))
}

// promptPart returns media as a part of a message: an image, a file, or a text that says
// what is omitted.
func promptPart(m domain.Media) responses.ResponseInputContentUnionParam {
	switch {
	case modelapi.IsImage(m):
		return responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{ImageURL: param.NewOpt(m.URI()), Detail: responses.ResponseInputImageDetailAuto}}
	case modelapi.IsPDF(m):
		return responses.ResponseInputContentUnionParam{OfInputFile: &responses.ResponseInputFileParam{
			FileData: param.NewOpt(m.URI()), Filename: param.NewOpt(modelapi.FileName(m)),
		}}
	}
	return responses.ResponseInputContentParamOfInputText(modelapi.OmittedMedia(m))
}

// reply adds the items of a reply in the order in which the API sent them: a reasoning item
// stands before the text or the call that followed it. It leaves out a reasoning item that
// nothing followed, because the API refuses it.
func (c *responsesConversation) reply(m conversation.ModelMessage) {
	kept := len(c.items) // the number of items up to the last one that is no reasoning item
	text, calls := 0, 0
	textUpTo := func(end int) {
		end = min(max(end, text), len(m.Text))
		for end < len(m.Text) && !utf8.RuneStart(m.Text[end]) {
			end++
		}
		before := len(c.items)
		c.message(m.Text[text:end], responses.EasyInputMessageRoleAssistant)
		text = end
		if len(c.items) > before {
			kept = len(c.items)
		}
	}
	callsUpTo := func(end int) {
		for ; calls < min(end, len(m.Calls)); calls++ {
			call := m.Calls[calls]
			c.items = append(c.items, responses.ResponseInputItemParamOfFunctionCall(modelapi.Arguments(call.Input), c.ids.Of(m.Message, call.ID), modelapi.HistoryName(call.Name)))
			kept = len(c.items)
		}
	}
	for _, item := range m.Items {
		var r reasoningItem
		if !c.given(item) || json.Unmarshal(item.Data, &r) != nil {
			continue
		}
		if textUpTo(r.Text); r.Calls > 0 {
			textUpTo(len(m.Text))
		}
		callsUpTo(r.Calls)
		c.items = append(c.items, param.Override[responses.ResponseInputItemUnionParam](r.Item))
	}
	textUpTo(len(m.Text))
	callsUpTo(len(m.Calls))
	c.items = c.items[:kept]
}

// result adds the output of a call.
func (c *responsesConversation) result(m conversation.ModelMessage) {
	id := c.ids.Of(m.Message, m.Call.ID)
	if len(m.Reading.Content.Media()) == 0 {
		c.items = append(c.items, responses.ResponseInputItemParamOfFunctionCallOutput(id, modelapi.PlainText(m.Reading)))
		return
	}
	var parts responses.ResponseFunctionCallOutputItemListParam
	for _, part := range m.Reading.Content {
		parts = append(parts, responsesPart(part))
	}
	c.items = append(c.items, responses.ResponseInputItemParamOfFunctionCallOutput(id, parts))
}

// responsesPart returns one part of a result.
func responsesPart(part domain.Content) responses.ResponseFunctionCallOutputItemUnionParam {
	text := ""
	switch part := part.(type) {
	case domain.Text:
		text = string(part)
	case domain.Media:
		switch {
		case modelapi.IsImage(part):
			return responses.ResponseFunctionCallOutputItemUnionParam{OfInputImage: &responses.ResponseInputImageContentParam{ImageURL: param.NewOpt(part.URI())}}
		case modelapi.IsPDF(part):
			return responses.ResponseFunctionCallOutputItemUnionParam{OfInputFile: &responses.ResponseInputFileContentParam{
				FileData: param.NewOpt(part.URI()), Filename: param.NewOpt(modelapi.FileName(part)),
			}}
		}
		text = modelapi.OmittedMedia(part)
	}
	return responses.ResponseFunctionCallOutputItemUnionParam{OfInputText: &responses.ResponseInputTextContentParam{Text: text}}
}
