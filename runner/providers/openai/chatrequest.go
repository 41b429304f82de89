package openai

import (
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// chatParameters returns the body of a Chat Completions request without messages and
// tools.
func (p *Provider) chatParameters(model string, choice toolChoice) openai.ChatCompletionNewParams {
	params := openai.ChatCompletionNewParams{
		Model:         model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	if p.config.MaxOutputTokens > 0 && p.official {
		params.MaxCompletionTokens = param.NewOpt(p.config.MaxOutputTokens)
	} else if p.config.MaxOutputTokens > 0 {
		params.MaxTokens = param.NewOpt(p.config.MaxOutputTokens)
	}
	if p.config.Temperature != nil {
		params.Temperature = param.NewOpt(*p.config.Temperature)
	}
	if reasons(model) {
		params.ReasoningEffort = shared.ReasoningEffort(p.config.ReasoningEffort)
	}
	if choice != "" {
		params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: param.NewOpt(string(choice))}
	}
	params.SetExtraFields(map[string]any{"stream": true})
	return params
}

// chatTools returns the tools of a request.
func chatTools(tools []preparedTool) []openai.ChatCompletionToolUnionParam {
	var sent []openai.ChatCompletionToolUnionParam
	for _, t := range tools {
		sent = append(sent, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: t.name, Description: optional(t.description), Parameters: t.schema,
		}))
	}
	return sent
}

// optional returns text as a parameter that is left out if it is empty.
func optional(text string) param.Opt[string] {
	if text == "" {
		return param.Opt[string]{}
	}
	return param.NewOpt(text)
}

// A chatConversation collects the messages of a Chat Completions request.
type chatConversation struct {
	ids      *modelapi.CallIDs
	messages []openai.ChatCompletionMessageParamUnion
	// media are the media of the tool messages at the end, which the next user message
	// contains: a tool message has text only.
	media []openai.ChatCompletionContentPartUnionParam
}

// chatMessages returns the messages of a turn.
func chatMessages(turn runner.Turn) []openai.ChatCompletionMessageParamUnion {
	c := &chatConversation{ids: modelapi.NewCallIDs(maxChatCallID)}
	if turn.System != "" {
		c.messages = append(c.messages, openai.SystemMessage(turn.System))
	}
	for _, m := range turn.Conversation.ModelMessages() {
		if m.Role != conversation.ToolRole {
			c.addMedia()
		}
		c.add(m)
	}
	c.addMedia()
	if turn.Instruction != "" {
		c.messages = append(c.messages, openai.UserMessage(turn.Instruction))
	}
	return c.messages
}

// addMedia adds the media of the tool messages before it as a user message.
func (c *chatConversation) addMedia() {
	if len(c.media) > 0 {
		c.messages = append(c.messages, openai.UserMessage(c.media))
		c.media = nil
	}
}

// add adds one message. It leaves out an empty prompt and an empty reply.
func (c *chatConversation) add(m conversation.ModelMessage) {
	switch m.Role {
	case conversation.User:
		c.addPrompt(m)
	case conversation.Assistant:
		c.addReply(m)
	case conversation.ToolRole:
		c.messages = append(c.messages, openai.ToolMessage(c.result(m), c.ids.Of(m.Message, m.Call.ID)))
	}
}

// addPrompt adds a prompt with its media.
func (c *chatConversation) addPrompt(m conversation.ModelMessage) {
	var parts []openai.ChatCompletionContentPartUnionParam
	for _, media := range m.Media.Media() {
		parts = append(parts, chatMedia(media))
	}
	switch {
	case len(parts) > 0 && m.Text != "":
		c.messages = append(c.messages, openai.UserMessage(append(parts, openai.TextContentPart(m.Text))))
	case len(parts) > 0:
		c.messages = append(c.messages, openai.UserMessage(parts))
	case m.Text != "":
		c.messages = append(c.messages, openai.UserMessage(m.Text))
	}
}

func (c *chatConversation) addReply(m conversation.ModelMessage) {
	reply := openai.ChatCompletionAssistantMessageParam{}
	if strings.TrimSpace(m.Text) != "" {
		reply.Content.OfString = param.NewOpt(m.Text)
	}
	for _, call := range m.Calls {
		reply.ToolCalls = append(reply.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
			ID:       c.ids.Of(m.Message, call.ID),
			Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: modelapi.HistoryName(call.Name), Arguments: modelapi.Arguments(call.Input)},
		}})
	}
	if reply.Content.OfString.Valid() || len(reply.ToolCalls) > 0 {
		c.messages = append(c.messages, openai.ChatCompletionMessageParamUnion{OfAssistant: &reply})
	}
}

// result returns the text of a tool message. It keeps the media of the result for the
// next user message.
func (c *chatConversation) result(m conversation.ModelMessage) string {
	if len(m.Reading.Content.Media()) == 0 {
		return modelapi.PlainText(m.Reading)
	}
	var text strings.Builder
	for _, part := range m.Reading.Content {
		switch part := part.(type) {
		case domain.Text:
			text.WriteString(string(part))
		case domain.Media:
			if !modelapi.IsImage(part) && !modelapi.IsPDF(part) {
				text.WriteString(modelapi.OmittedMedia(part))
				continue
			}
			fmt.Fprintf(&text, "[%s: see the next message of the user]", modelapi.MediaName(part))
			title := fmt.Sprintf("%s, a result of the tool %s:", modelapi.MediaName(part), modelapi.HistoryName(m.Call.Name))
			c.media = append(c.media, openai.TextContentPart(title), chatMedia(part))
		}
	}
	return text.String()
}

// chatMedia returns media as a part of a user message: an image, a file, or a text that says
// what is omitted.
func chatMedia(m domain.Media) openai.ChatCompletionContentPartUnionParam {
	switch {
	case modelapi.IsImage(m):
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: m.URI()})
	case modelapi.IsPDF(m):
		return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{FileData: param.NewOpt(m.URI()), Filename: param.NewOpt(modelapi.FileName(m))})
	}
	return openai.TextContentPart(modelapi.OmittedMedia(m))
}
