package sessiontools

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed task.md
var taskDescription string

// taskArgs is the input of the tool task.
type taskArgs struct {
	Agent       string `json:"agent" jsonschema:"the agent that does the task"`
	Description string `json:"description" jsonschema:"the task in 3 to 5 words, for the person"`
	Prompt      string `json:"prompt" jsonschema:"the whole task, for the agent"`
	SessionID   string `json:"sessionID,omitempty" jsonschema:"the sessionID of an earlier task, to continue it"`
}

// taskSchema is the patch of the input schema of task.
const taskSchema = `{"properties":{"agent":{"minLength":1},"description":{"pattern":"\\S","maxLength":200},"prompt":{"pattern":"\\S"}}}`

// taskOutput is the output of the tool task.
type taskOutput struct {
	SessionID string `json:"sessionID"`
	Output    string `json:"output"` // the last reply of the agent
}

// A taskTool is the tool task.
type taskTool struct{ Config }

// tool returns the domain.Tool of task. It does not promise AsksFirst, because the calls of
// the subagent have effects of their own.
func (t taskTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[taskArgs, taskOutput]{
		Description:  taskDescription,
		Input:        domain.Constrained[taskArgs](taskSchema),
		Execute:      t.run,
		Present:      presentTask,
		DescribeTurn: t.describe,
		Title:        func(in taskArgs) string { return in.Description },
	})
}

// maxAgentList is the maximum length of the list of agents in the description of task, in
// bytes.
const maxAgentList = 16 << 10

// describe returns the description with the agents that no rule of the turn denies. A
// listed agent can still be refused when the task asks for permission. A list over
// maxAgentList is cut and ends with the number of further agents.
func (t taskTool) describe(facts domain.TurnFacts) string {
	var b strings.Builder
	b.WriteString(strings.TrimRight(taskDescription, "\n"))
	b.WriteString("\n\nThe agents:\n")
	listed, cut, room := 0, 0, maxAgentList
	for _, agent := range t.subagents() {
		if rule, _ := facts.Rules.EvaluateSpelled(nameTask, string(agent.Name), nil); rule.Effect == domain.Deny {
			continue
		}
		listed++
		line := fmt.Sprintf("- %s: %s\n", agent.Name, oneLine(agent.Description))
		if room -= len(line); cut > 0 || room < 0 {
			cut++
			continue
		}
		b.WriteString(line)
	}
	if cut > 0 {
		fmt.Fprintf(&b, "(%d further agents)\n", cut)
	}
	if listed == 0 {
		b.WriteString("None. Every task is refused: do the work yourself.\n")
	}
	return b.String()
}

// subagents returns the agents of the Config, sorted by name.
func (t taskTool) subagents() []AgentInfo {
	return slices.SortedFunc(slices.Values(t.Subagents()), func(a, b AgentInfo) int { return cmp.Compare(a.Name, b.Name) })
}

// oneLine returns a text with single spaces in place of all white space, cut to 300 runes.
func oneLine(text string) string {
	return fmt.Sprintf("%.300s", strings.Join(strings.Fields(text), " "))
}

// run executes one call. It asks for permission to use the agent, with the prompt as the
// preview, and runs the task. It returns the error of the CallSession unchanged.
func (t taskTool) run(ctx context.Context, in taskArgs, inv domain.Invocation) (taskOutput, error) {
	task := Task{Agent: domain.AgentID(in.Agent), Description: in.Description, Prompt: in.Prompt}
	if err := task.Continue.UnmarshalText([]byte(in.SessionID)); err != nil {
		return taskOutput{}, domain.Fail("Subagent session not found: %.100q. Give the sessionID of an earlier result, or none to begin a new session.", in.SessionID)
	}
	if err := t.checkAgent(task.Agent); err != nil {
		return taskOutput{}, err
	}
	metadata, err := json.Marshal(map[string]string{"description": in.Description, "sessionID": in.SessionID})
	if err != nil {
		return taskOutput{}, err
	}
	ask := permission.Ask{
		Action: nameTask, Resources: []string{in.Agent}, Save: []string{in.Agent}, Metadata: metadata,
		Preview: permission.TextPreview(domain.PreviewCall, in.Description+"\n\n"+in.Prompt),
	}
	if err := t.Permission.Assert(ctx, inv, ask); err != nil {
		return taskOutput{}, err
	}
	done, err := t.Session.RunTask(ctx, inv, task)
	if err != nil {
		return taskOutput{}, err
	}
	return taskOutput{SessionID: done.Session.String(), Output: done.Text}, nil
}

// checkAgent returns a failure that lists the agents if a task cannot run the given one.
func (t taskTool) checkAgent(agent domain.AgentID) error {
	var names []string
	for _, known := range t.subagents() {
		if known.Name == agent {
			return nil
		}
		names = append(names, string(known.Name))
	}
	if len(names) == 0 {
		return domain.Fail("Unknown agent: %.100s. There is no agent for a task.", agent)
	}
	return domain.Fail("Unknown agent: %.100s. The agents for a task are: %s", agent, strings.Join(names, ", "))
}

// presentTask renders the reply of the subagent for the model.
func presentTask(_ taskArgs, out domain.Encoded[taskOutput]) []domain.Content {
	r, err := out.Value()
	if err != nil {
		return nil
	}
	return []domain.Content{domain.Text(fmt.Sprintf("<subagent sessionID=%q state=\"completed\">\n%s\n</subagent>", r.SessionID, orNoText(r.Output)))}
}
