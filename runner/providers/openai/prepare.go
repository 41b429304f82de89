package openai

import (
	"fmt"

	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
)

// The longest call IDs that the two formats accept, in characters.
const (
	maxChatCallID      = 40
	maxResponsesCallID = 64
)

// maxTools is the largest number of tools of a request.
const maxTools = 128

// A toolChoice is the parameter tool_choice. Empty: the request has none.
type toolChoice string

// noTool is the choice that forbids calls.
const noTool toolChoice = "none"

// A preparedTool is a tool as a request contains it.
type preparedTool struct {
	name, description string
	schema            map[string]any
}

// PrepareRequest returns the parameters and the tools of the request for a turn. It returns
// a *runner.IncompatibleError if the API does not accept a tool or the number of tools.
func (p *Provider) PrepareRequest(turn runner.Turn) (runner.RequestRecord, error) {
	tools, choice, err := p.prepareTools(turn)
	if err != nil {
		return runner.RequestRecord{}, err
	}
	var parameters, schemas any = p.responsesParameters(p.model(turn), choice), responsesTools(tools)
	if p.config.API == ChatCompletions {
		parameters, schemas = p.chatParameters(p.model(turn), choice), chatTools(tools)
	}
	var record runner.RequestRecord
	if record.Parameters, err = modelapi.EncodePart(parameters); err != nil {
		return record, err
	}
	if len(tools) > 0 {
		record.Schemas, err = modelapi.EncodePart(schemas)
	}
	return record, err
}

// prepareTools returns the tools of a turn. In a turn with disabled tools these are the
// tools that the history names, without schemas, and the choice none: a server may refuse
// a history with calls if the request has no tools.
func (p *Provider) prepareTools(turn runner.Turn) ([]preparedTool, toolChoice, error) {
	if turn.Disabled {
		if tools := historyTools(turn.Conversation); len(tools) > 0 {
			return tools, noTool, nil
		}
		return nil, "", nil
	}
	refuse := func(tool, rule, detail string) error {
		return &runner.IncompatibleError{Provider: p.config.Name, Model: p.model(turn), Tool: tool, Rule: rule, Detail: detail}
	}
	if len(turn.Tools) > maxTools {
		return nil, "", refuse("", fmt.Sprintf("a request has at most %d tools", maxTools), fmt.Sprintf("it has %d", len(turn.Tools)))
	}
	var tools []preparedTool
	for _, d := range turn.Tools {
		if !modelapi.ValidToolName(string(d.Name)) {
			return nil, "", refuse(string(d.Name), modelapi.ToolNameRule, "")
		}
		schema, rule, detail := modelapi.AcceptedSchema(d.Input)
		if rule != "" {
			return nil, "", refuse(string(d.Name), rule, detail)
		}
		tools = append(tools, preparedTool{string(d.Name), modelapi.ValidText(d.Description), schema})
	}
	return tools, "", nil
}

// historyTools returns the tools that the calls of a conversation name, up to maxTools.
func historyTools(s *conversation.State) []preparedTool {
	var tools []preparedTool
	names := modelapi.HistoryTools(s)
	for _, name := range names[:min(len(names), maxTools)] {
		tools = append(tools, preparedTool{name: name, schema: map[string]any{"type": "object", "properties": map[string]any{}}})
	}
	return tools
}
