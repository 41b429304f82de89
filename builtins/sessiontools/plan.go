package sessiontools

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed plan_enter.md
var planEnterDescription string

//go:embed plan_exit.md
var planExitDescription string

// The agents between which the plan tools switch.
const (
	agentPlan  domain.AgentID = "plan"
	agentBuild domain.AgentID = "build"
)

// planArgs is the input of the tools plan_enter and plan_exit.
type planArgs struct{}

// A switchTool is the tool plan_enter or plan_exit: it offers the person a change of the
// agent.
type switchTool struct {
	Config
	agentSwitch
}

// An agentSwitch is a change of the agent that is offered to the person.
type agentSwitch struct {
	description string
	action      string // the permission action
	agents      string // the pattern of the agents to which the tool is offered
	to          domain.AgentID
	header      string
	question    string // with %s in place of the plan file
	yes, no     string // the descriptions of the two options
	refused     string // the text for the model after the answer no
	agreed      string // the instruction for the next agent, with %s in place of the plan file
}

// enterPlan is the change of plan_enter.
var enterPlan = agentSwitch{
	description: planEnterDescription, action: namePlanEnter, agents: "!" + string(agentPlan), to: agentPlan, header: "Plan first",
	question: "Would you like to switch to the plan agent and create a plan saved to %s?",
	yes:      "Research and plan first; nothing else is changed",
	no:       "Stay with the present agent and go on",
	refused:  "The user does not want a plan first. Go on with the task as the present agent.",
	agreed:   "The user agreed: from your next reply on you are the plan agent. Study the task, write the plan to %s, change no other file, and call plan_exit when the plan is complete.",
}

// exitPlan is the change of plan_exit.
var exitPlan = agentSwitch{
	description: planExitDescription, action: namePlanExit, agents: string(agentPlan), to: agentBuild, header: "Build now",
	question: "Plan at %s is complete. Would you like to switch to the build agent and start implementing?",
	yes:      "Switch to the build agent and carry out the plan",
	no:       "Stay with the plan agent and refine the plan",
	refused:  "The user does not want to begin yet. Stay the plan agent: ask what is missing, or improve the plan.",
	agreed:   "The user approved the plan at %s: from your next reply on you are the build agent and may change files. Read the plan and carry it out.",
}

// tool returns the domain.Tool of plan_enter or plan_exit.
func (s switchTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[planArgs, string]{
		Description: s.description,
		Execute:     s.execute,
		AsksFirst:   true,
		Available:   s.whereAsked(s.agents),
		Title:       func(planArgs) string { return "switch to the " + string(s.to) + " agent" },
	})
}

// execute executes one call. It returns the instruction for the next agent, which reads it
// in its first turn.
func (s switchTool) execute(ctx context.Context, _ planArgs, inv domain.Invocation) (string, error) {
	path := s.PlanFile(inv.Session)
	if err := s.offerSwitch(ctx, inv, fmt.Sprintf(s.question, path)); err != nil {
		return "", err
	}
	return fmt.Sprintf(s.agreed, path), nil
}

// The labels of the options of an agentSwitch.
const (
	answerYes = "Yes"
	answerNo  = "No"
)

// offerSwitch asks for permission, asks the person, and switches the agent if the person
// answers yes. If the person answers no, answers with a text or leaves the question
// unanswered, offerSwitch returns a *domain.Declined with feedback, and the run continues
// with the same agent.
func (s switchTool) offerSwitch(ctx context.Context, inv domain.Invocation, question string) error {
	if err := s.Permission.Assert(ctx, inv, permission.Ask{Action: s.action, Resources: everyResource}); err != nil {
		return err
	}
	answers, err := s.Session.AskQuestions(ctx, inv, []domain.Question{{
		Question: question, Header: s.header,
		Options: []domain.QuestionOption{{Label: answerYes, Description: s.yes}, {Label: answerNo, Description: s.no}},
	}})
	if err != nil {
		return err
	}
	answer := ""
	if len(answers) > 0 {
		answer = strings.TrimSpace(strings.Join(answers[0], " "))
	}
	switch {
	case strings.EqualFold(answer, answerYes):
	case answer == "" || strings.EqualFold(answer, answerNo):
		return &domain.Declined{Feedback: s.refused}
	default:
		return &domain.Declined{Feedback: "The agent stays the same. The user answered: " + answer}
	}
	if err := s.Session.SwitchAgent(ctx, inv, s.to); err != nil {
		return fmt.Errorf("switch %s to the agent %s: %w", inv.Session, s.to, err)
	}
	return nil
}
