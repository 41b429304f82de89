package events

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// PermissionRequested records that a running call requested permission.
type PermissionRequested struct {
	// Permission is the ID of the request, which its PermissionDecided repeats.
	Permission domain.PermissionID `json:"permission"`
	// Message is the reply that contains the call.
	Message domain.MessageID `json:"message"`
	// Call is the provider's name for the call.
	Call domain.CallID `json:"call" codec:"intern"`
	// Agent is the agent that runs the call.
	Agent domain.AgentID `json:"agent" codec:"intern"`
	// Action is the action that the call wants to perform, such as bash or read.
	Action string `json:"action" codec:"intern"`
	// Resources are the objects of the action, such as commands or paths. It is
	// never empty.
	Resources []string `json:"resources"`
	// Save are the patterns of resources that the answer "always" approves for later
	// requests too. Empty: "always" approves this request only.
	Save []string `json:"save,omitempty"`
	// Metadata is JSON with which the tool describes the request.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Shown is the text shown to the person; zero if no person was asked.
	Shown domain.Preview `json:"shown,omitzero"`
}

// PermissionDecided records the decision on a permission request.
type PermissionDecided struct {
	// Permission is the ID of the request.
	Permission domain.PermissionID `json:"permission"`
	// Effect is allow or deny.
	Effect domain.Effect `json:"effect"`
	// By is the authority that decided.
	By Decider `json:"by" codec:"intern"`
	// Rule is the denying rule, if By is ByRule.
	Rule domain.Rule `json:"rule,omitzero"`
	// Scope is once, always or reject; empty if no person was asked.
	Scope string `json:"scope" codec:"intern"`
	// Feedback is the text of the person for the model.
	Feedback string `json:"feedback,omitempty"`
	// WaitedMS is the time from request to decision, in milliseconds.
	WaitedMS int64 `json:"waited_ms"`
	// Person is the OS user who decided, if By is ByPerson.
	Person string `json:"person,omitempty" codec:"intern"`
	// Approvals are the saved approvals that allowed resources of an allowed request, each
	// once; empty in logs of older programs.
	Approvals []UsedApproval `json:"approvals,omitempty"`
}

// A UsedApproval is a saved approval that allowed a request.
type UsedApproval struct {
	// Event is the ApprovalSaved.
	Event domain.EventID `json:"event"`
	// Resource is its pattern of resources.
	Resource string `json:"resource"`
}

// A Decider is the kind of authority that decided on a permission.
type Decider string

// The deciders.
const (
	ByRule     Decider = "rule"     // a configured rule
	ByApproval Decider = "approval" // a saved approval
	ByPerson   Decider = "user"     // a person
	ByHeadless Decider = "headless" // no person was available
	ByRecovery Decider = "recovery" // the asking process died
)

// ApprovalSaved records that a person approved an action on a resource for
// later requests as well.
type ApprovalSaved struct {
	// Permission is the request that the approval decided.
	Permission domain.PermissionID `json:"permission"`
	// Agent is the agent to whose requests the approval applies; empty in logs of
	// older programs.
	Agent domain.AgentID `json:"agent,omitempty" codec:"intern"`
	// Location is the workspace to which the approval applies.
	Location string `json:"location,omitempty" codec:"intern"`
	// Action is the approved action.
	Action string `json:"action" codec:"intern"`
	// Resource is a pattern of the approved resources.
	Resource string `json:"resource"`
	// Expires is the time at which the approval ends; zero: never.
	Expires time.Time `json:"expires,omitzero"`
	// Person is the OS user who approved.
	Person string `json:"person,omitempty" codec:"intern"`
}

// ApprovalRevoked records that a saved approval no longer applies.
type ApprovalRevoked struct {
	// Agent, Location, Action and Resource are those of the approval.
	Agent    domain.AgentID `json:"agent,omitempty" codec:"intern"`
	Location string         `json:"location,omitempty" codec:"intern"`
	Action   string         `json:"action" codec:"intern"`
	Resource string         `json:"resource"`
	// Reason is a text for a person; it may be empty.
	Reason string `json:"reason,omitempty"`
	// Person is the OS user who revoked the approval.
	Person string `json:"person,omitempty" codec:"intern"`
}

// QuestionAsked records that a running call asked a person questions.
type QuestionAsked struct {
	// Question is the ID of the request, which its QuestionAnswered repeats.
	Question domain.PermissionID `json:"question"`
	// Message is the reply that contains the call.
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call" codec:"intern"`
	// Agent is the agent that runs the call.
	Agent domain.AgentID `json:"agent" codec:"intern"`
	// Questions are the questions as shown.
	Questions []domain.Question `json:"questions"`
}

// QuestionAnswered records the end of the questions of a QuestionAsked.
type QuestionAnswered struct {
	// Question is the ID of the request.
	Question domain.PermissionID `json:"question"`
	// Answers has one element for each question, in order.
	Answers []AnsweredQuestion `json:"answers,omitempty"`
	// Dismissed reports that the person or the program did not answer.
	Dismissed bool `json:"dismissed,omitempty"`
	// Feedback is the text of the person for the model, if Dismissed.
	Feedback string `json:"feedback,omitempty"`
	// By is ByPerson, ByHeadless or ByRecovery.
	By Decider `json:"by" codec:"intern"`
	// WaitedMS is the time from question to answer, in milliseconds.
	WaitedMS int64 `json:"waited_ms"`
	// Person is the OS user who answered, if By is ByPerson.
	Person string `json:"person,omitempty" codec:"intern"`
}

// An AnsweredQuestion is the answer to one question.
type AnsweredQuestion struct {
	// Chosen are the chosen labels, or the free text; empty: unanswered.
	Chosen []string `json:"chosen"`
}
