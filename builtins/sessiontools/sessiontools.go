package sessiontools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// ErrBadConfig says that a Config lacks a required field.
var ErrBadConfig = errors.New("incomplete configuration of the session tools")

// An AgentInfo describes an agent that a task can run.
type AgentInfo struct {
	Name        domain.AgentID
	Description string
}

// A Config configures the tools. All fields but Clients are required. The functions are
// safe for concurrent use.
type Config struct {
	Session    CallSession
	Permission permission.Asserter
	// Subagents returns the agents that a task can run, without duplicates.
	Subagents func() []AgentInfo
	// PlanFile returns the path of the plan of a session, relative to the workspace.
	PlanFile func(domain.SessionID) string
	// Clients are patterns of the clients whose person can be asked. question, plan_enter
	// and plan_exit are offered only there. Nil: every client.
	Clients []string
}

// check returns an ErrBadConfig that names the first missing field.
func (c Config) check() error {
	for _, required := range []struct {
		name string
		set  bool
	}{{"Session", c.Session != nil}, {"Permission", c.Permission != nil}, {"Subagents", c.Subagents != nil}, {"PlanFile", c.PlanFile != nil}} {
		if !required.set {
			return fmt.Errorf("%w: Config.%s is not set", ErrBadConfig, required.name)
		}
	}
	return nil
}

// The names of the tools, which are also their permission actions.
const (
	nameTodoWrite = "todowrite"
	nameTodoRead  = "todoread"
	nameQuestion  = "question"
	nameTask      = "task"
	nameBatch     = "batch"
	namePlanEnter = "plan_enter"
	namePlanExit  = "plan_exit"
	nameInvalid   = "invalid"
)

// Tools returns the tools by name. It returns an ErrBadConfig that names the missing field.
func Tools(c Config) (map[string]domain.Tool, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("make session tools: %w", err)
	}
	tools := map[string]domain.Tool{}
	for name, make := range map[string]func() (domain.Tool, error){
		nameTodoWrite: todoWriteTool{c}.tool,
		nameTodoRead:  todoReadTool{c}.tool,
		nameQuestion:  questionTool{c}.tool,
		nameTask:      taskTool{c}.tool,
		nameBatch:     batchTool{c}.tool,
		namePlanEnter: switchTool{c, enterPlan}.tool,
		namePlanExit:  switchTool{c, exitPlan}.tool,
		nameInvalid:   invalidTool,
	} {
		var err error
		if tools[name], err = make(); err != nil {
			return nil, fmt.Errorf("make session tool %s: %w", name, err)
		}
	}
	return tools, nil
}

// everyResource is the resource of an action that has no other, and the pattern that the
// answer "always" saves for it.
var everyResource = []string{"*"}

// whereAsked returns the availability of a tool that asks the person: the clients of the
// Config, for agents that match the patterns.
func (c Config) whereAsked(agents ...string) domain.Availability {
	if len(c.Clients) == 0 && len(agents) == 0 {
		return nil
	}
	return domain.Availability{{Agents: agents, Clients: c.Clients}}
}

// indentedJSON returns a value as indented JSON without escapes for HTML.
func indentedJSON(value any) (string, error) {
	compact, err := domain.JSON[any]().Encode(value)
	if err != nil {
		return "", err
	}
	return indent(compact), nil
}

// indent returns a JSON document with indentation. It returns the document itself if that is
// not JSON.
func indent(document json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return string(document)
	}
	return b.String()
}
