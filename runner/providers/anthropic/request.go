package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// maxCallID is the longest ID of a call in characters.
const maxCallID = 64

// PrepareRequest returns the parameters and the tools of the request for a turn. It returns
// a *runner.IncompatibleError if the API does not accept a tool.
func (p *Provider) PrepareRequest(turn runner.Turn) (runner.RequestRecord, error) {
	var record runner.RequestRecord
	tools, err := p.prepareTools(turn)
	if err != nil {
		return record, err
	}
	if record.Parameters, err = encodeParameters(p.parameters(turn, p.messages(turn))); err != nil || len(tools) == 0 {
		return record, err
	}
	record.Schemas, err = modelapi.EncodePart(tools)
	return record, err
}

// encodeParameters returns the parameters of a streamed request as JSON, without the empty
// messages, which the SDK always encodes.
func encodeParameters(p anthropic.MessageNewParams) (string, error) {
	text, err := modelapi.EncodePart(p)
	var members map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal([]byte(text), &members)
	}
	if err != nil {
		return "", err
	}
	delete(members, "messages")
	members["stream"] = json.RawMessage("true") // the SDK adds it
	return modelapi.EncodePart(members)
}

// parameters returns the body of the request for a turn with messages, without them, the
// system prompt and the tools.
func (p *Provider) parameters(turn runner.Turn, messages []anthropic.MessageParam) anthropic.MessageNewParams {
	params := anthropic.MessageNewParams{Model: p.model(turn), MaxTokens: p.limits(p.model(turn)).Output}
	if p.config.Temperature != nil {
		params.Temperature = param.NewOpt(*p.config.Temperature)
	}
	extra := map[string]any{}
	if thinking := p.thinking(p.model(turn), messages); thinking != nil {
		extra["thinking"] = thinking // the SDK writes to the standard error about its own field for some models
	}
	params.SetExtraFields(extra)
	if turn.Disabled && len(historyTools(turn.Conversation)) > 0 {
		params.ToolChoice.OfNone = &anthropic.ToolChoiceNoneParam{}
	}
	return params
}

// The restrictions of the API that modelapi does not know.
const (
	temperatureRule = "this model has no temperature but 1: leave it unset"
	propertyRule    = "a property of an input has a name of 1 to 64 of the characters a-z, A-Z, 0-9, _, - and ."
)

// propertyPattern is the format of the names of the properties of an input. The API checks
// only those at the top level.
var propertyPattern = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// checkProperties returns the rule that the properties of a schema break, and the property.
func checkProperties(schema map[string]any) (rule, detail string) {
	var properties map[string]json.RawMessage
	object, _ := schema["properties"].(json.RawMessage)
	if json.Unmarshal(object, &properties) != nil {
		return "", "" // modelapi.AcceptedSchema returns an object
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !propertyPattern.MatchString(name) {
			return propertyRule, fmt.Sprintf("it has the property %q", name)
		}
	}
	return "", ""
}

// prepareTools returns the tools of a turn. In a turn with disabled tools these are the
// tools that the history names, without schemas: the API refuses a history with calls if
// the request has no tools.
func (p *Provider) prepareTools(turn runner.Turn) ([]anthropic.ToolUnionParam, error) {
	refuse := func(tool, rule, detail string) error {
		return &runner.IncompatibleError{Provider: p.config.Name, Model: p.model(turn), Tool: tool, Rule: rule, Detail: detail}
	}
	if t := p.config.Temperature; t != nil && *t != 1 && isAdaptive(p.model(turn)) {
		return nil, refuse("", temperatureRule, fmt.Sprintf("it has the temperature %v", *t))
	}
	if turn.Disabled {
		return historyTools(turn.Conversation), nil
	}
	var tools []anthropic.ToolUnionParam
	for _, d := range turn.Tools {
		if !modelapi.ValidToolName(string(d.Name)) {
			return nil, refuse(string(d.Name), modelapi.ToolNameRule, "")
		}
		schema, rule, detail := modelapi.AcceptedSchema(d.Input)
		if rule == "" {
			rule, detail = checkProperties(schema)
		}
		if rule != "" {
			return nil, refuse(string(d.Name), rule, detail)
		}
		tools = append(tools, tool(string(d.Name), modelapi.ValidText(d.Description), schema))
	}
	if len(tools) == 0 {
		return historyTools(turn.Conversation), nil
	}
	tools[len(tools)-1].OfTool.CacheControl = anthropic.NewCacheControlEphemeralParam()
	return tools, nil
}

// tool returns a tool with a schema of modelapi.AcceptedSchema.
func tool(name, description string, schema map[string]any) anthropic.ToolUnionParam {
	rest := maps.Clone(schema)
	delete(rest, "type")
	input := anthropic.ToolInputSchemaParam{Properties: rest["properties"], ExtraFields: rest}
	delete(rest, "properties")
	if required, ok := rest["required"].([]string); ok {
		input.Required = required
		delete(rest, "required")
	}
	t := anthropic.ToolParam{Name: name, InputSchema: input}
	if description != "" {
		t.Description = param.NewOpt(description)
	}
	return anthropic.ToolUnionParam{OfTool: &t}
}

// historyTools returns the tools that the calls of a conversation name, in the order of
// their first call.
func historyTools(s *conversation.State) []anthropic.ToolUnionParam {
	var tools []anthropic.ToolUnionParam
	for _, name := range modelapi.HistoryTools(s) {
		tools = append(tools, tool(name, "", map[string]any{"properties": json.RawMessage("{}")}))
	}
	return tools
}

// systemPrompt returns the system prompt of a turn, up to which the server may cache the
// request. The API refuses an empty one.
func systemPrompt(turn runner.Turn) []anthropic.TextBlockParam {
	if strings.TrimSpace(turn.System) == "" {
		return nil
	}
	return []anthropic.TextBlockParam{{Text: modelapi.ValidText(turn.System), CacheControl: anthropic.NewCacheControlEphemeralParam()}}
}

// A messageList collects the messages of a request. Consecutive messages of one role
// become one.
type messageList struct {
	ids      *modelapi.CallIDs
	messages []anthropic.MessageParam
}

// messages returns the messages of a turn.
func (p *Provider) messages(turn runner.Turn) []anthropic.MessageParam {
	l := &messageList{ids: modelapi.NewCallIDs(maxCallID)}
	for _, m := range turn.Conversation.ModelMessages() {
		switch m.Role {
		case conversation.User:
			for _, media := range m.Media.Media() {
				l.add(anthropic.MessageParamRoleUser, mediaBlock(media))
			}
			l.addText(anthropic.MessageParamRoleUser, m.Text)
		case conversation.Assistant:
			l.addReply(m, p.thinkingOf(m, p.model(turn)))
		case conversation.ToolRole:
			l.add(anthropic.MessageParamRoleUser, anthropic.ContentBlockParamUnion{OfToolResult: toolResult(l.ids.Of(m.Message, m.Call.ID), m.Reading)})
		}
	}
	l.addText(anthropic.MessageParamRoleUser, turn.Instruction)
	l.finish()
	return l.messages
}

// add adds blocks to the last message, or to a new one if that has another role.
func (l *messageList) add(role anthropic.MessageParamRole, blocks ...anthropic.ContentBlockParamUnion) {
	if len(blocks) == 0 {
		return
	}
	if n := len(l.messages); n == 0 || l.messages[n-1].Role != role {
		l.messages = append(l.messages, anthropic.MessageParam{Role: role})
	}
	last := &l.messages[len(l.messages)-1]
	last.Content = append(last.Content, blocks...)
}

// addText adds a text. It leaves out a text without a visible character, which the API
// refuses.
func (l *messageList) addText(role anthropic.MessageParamRole, text string) {
	if strings.TrimSpace(text) != "" {
		l.add(role, anthropic.NewTextBlock(modelapi.ValidText(text)))
	}
}

// addReply adds a reply with its thinking, each block in its place. It leaves out thinking
// that nothing follows, which the API refuses.
func (l *messageList) addReply(m conversation.ModelMessage, thinking []thinkingItem) {
	text, calls := 0, 0
	addUntil := func(textEnd, callsEnd int) {
		textEnd, callsEnd = min(max(text, textEnd), len(m.Text)), min(max(calls, callsEnd), len(m.Calls))
		l.addText(anthropic.MessageParamRoleAssistant, m.Text[text:textEnd])
		for _, call := range m.Calls[calls:callsEnd] {
			l.add(anthropic.MessageParamRoleAssistant, anthropic.ContentBlockParamUnion{OfToolUse: &anthropic.ToolUseBlockParam{
				ID: l.ids.Of(m.Message, call.ID), Name: modelapi.HistoryName(call.Name), Input: callInput(call.Input),
			}})
		}
		text, calls = textEnd, callsEnd
	}
	for _, t := range thinking {
		addUntil(t.Text, t.Calls)
		if strings.TrimSpace(m.Text[text:]) != "" || calls < len(m.Calls) {
			l.add(anthropic.MessageParamRoleAssistant, *t.block())
		}
	}
	addUntil(len(m.Text), len(m.Calls))
}

// trailingText is the text of the last message of the user if a conversation ends in a
// reply: several models refuse such a request.
const trailingText = "Continue."

// leadingText is the text of the first message of the user if a conversation has none
// there: the API refuses a request that begins with a reply.
const leadingText = "(The conversation begins with a reply.)"

// finish makes the messages a valid request: the first and the last one are of the user,
// and the last two messages of the user end in a block up to which the server may cache the
// request.
func (l *messageList) finish() {
	if len(l.messages) == 0 || l.messages[0].Role != anthropic.MessageParamRoleUser {
		first := anthropic.NewUserMessage(anthropic.NewTextBlock(leadingText))
		l.messages = append([]anthropic.MessageParam{first}, l.messages...)
	}
	if l.messages[len(l.messages)-1].Role != anthropic.MessageParamRoleUser {
		l.addText(anthropic.MessageParamRoleUser, trailingText)
	}
	marks := 0
	for _, m := range slices.Backward(l.messages) {
		if m.Role != anthropic.MessageParamRoleUser || marks == 2 {
			continue
		}
		marks++
		switch end := m.Content[len(m.Content)-1]; {
		case end.OfText != nil:
			end.OfText.CacheControl = anthropic.NewCacheControlEphemeralParam()
		case end.OfToolResult != nil:
			end.OfToolResult.CacheControl = anthropic.NewCacheControlEphemeralParam()
		}
	}
}

// callInput returns the input of a call as the JSON object that the API wants. An input
// that is no object is the value of a member that says so.
func callInput(input json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(input, &object) == nil && object != nil {
		return input
	}
	wrapped, _ := json.Marshal(map[string]string{"invalid_input": modelapi.Arguments(input)}) // encoding strings never fails
	return wrapped
}

// toolResult returns the result of a call.
func toolResult(id string, r domain.ToolResult) *anthropic.ToolResultBlockParam {
	block := &anthropic.ToolResultBlockParam{ToolUseID: id}
	if r.Error != "" {
		block.IsError = param.NewOpt(true)
	}
	parts := r.Content
	if len(parts.Media()) == 0 {
		parts = domain.Contents{domain.Text(modelapi.PlainText(r))}
	}
	for _, part := range parts {
		block.Content = append(block.Content, resultPart(part)...)
	}
	return block
}

// resultPart returns one part of a result. It leaves out a text without a visible
// character: a result may be empty, but an empty text is refused.
func resultPart(part domain.Content) []anthropic.ToolResultBlockParamContentUnion {
	text := func(text string) []anthropic.ToolResultBlockParamContentUnion {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		return []anthropic.ToolResultBlockParamContentUnion{{OfText: &anthropic.TextBlockParam{Text: modelapi.ValidText(text)}}}
	}
	switch part := part.(type) {
	case domain.Text:
		return text(string(part))
	case domain.Media:
		block := mediaBlock(part)
		return []anthropic.ToolResultBlockParamContentUnion{{OfText: block.OfText, OfImage: block.OfImage, OfDocument: block.OfDocument}}
	}
	return text(fmt.Sprintf("[a part of type %T is omitted]", part))
}

// mediaBlock returns media as a block of a message: an image, a document, or a text that
// says what is omitted.
func mediaBlock(m domain.Media) anthropic.ContentBlockParamUnion {
	switch {
	case modelapi.IsImage(m):
		return anthropic.NewImageBlockBase64(m.MIME, base64.StdEncoding.EncodeToString(m.Data))
	case modelapi.IsPDF(m):
		document := anthropic.NewDocumentBlock(anthropic.Base64PDFSourceParam{Data: base64.StdEncoding.EncodeToString(m.Data)})
		document.OfDocument.Title = param.NewOpt(modelapi.FileName(m))
		return document
	}
	return anthropic.NewTextBlock(modelapi.ValidText(modelapi.OmittedMedia(m)))
}
