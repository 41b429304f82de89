package replay

import (
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
)

// A DifferenceKind names in which respect a replay differs from its recording.
type DifferenceKind string

// The kinds of differences.
const (
	// MissingEvent is an event that only the recording has, and ExtraEvent one that only
	// the replay has.
	MissingEvent DifferenceKind = "missing event"
	ExtraEvent   DifferenceKind = "extra event"
	// OrderDiffers is another order of events.
	OrderDiffers DifferenceKind = "order"
	// PromptDiffers is another prompt.
	PromptDiffers DifferenceKind = "prompt"
	// OfferDiffers is a tool that only one side offered, or another order of the tools.
	OfferDiffers DifferenceKind = "offer"
	// DefinitionDiffers is an offered tool with another definition.
	DefinitionDiffers DifferenceKind = "definition"
	// RegistrationDiffers is an offered tool of another registration.
	RegistrationDiffers DifferenceKind = "registration"
	// HiddenDiffers is a tool that only one side hid, or for another reason.
	HiddenDiffers DifferenceKind = "hidden tool"
	// RequestDiffers is another system prompt, instruction, description, parameter or
	// schema of a request.
	RequestDiffers DifferenceKind = "request"
	// ReplyDiffers is another reply of the model.
	ReplyDiffers DifferenceKind = "reply"
	// OutcomeDiffers is another outcome of a call.
	OutcomeDiffers DifferenceKind = "outcome"
	// OutputDiffers is another output or text of a call.
	OutputDiffers DifferenceKind = "output"
	// KeptDiffers is another output in managed storage.
	KeptDiffers DifferenceKind = "kept output"
	// StalenessDiffers is another registration in effect, or another event that changed it.
	StalenessDiffers DifferenceKind = "staleness"
	// StartDiffers is another start of a call.
	StartDiffers DifferenceKind = "start"
	// DecisionDiffers is another permission request, question, decision or answer.
	DecisionDiffers DifferenceKind = "decision"
	// InterruptionDiffers is another reason of an interruption.
	InterruptionDiffers DifferenceKind = "interruption"
	// CompactionDiffers is another compaction.
	CompactionDiffers DifferenceKind = "compaction"
	// ConversationDiffers is another message that the model was shown, although the events
	// of the message are the same.
	ConversationDiffers DifferenceKind = "conversation"
	// Miss is a call of a live model that the tape does not have.
	Miss DifferenceKind = "miss"
	// InputDrift is a call of a live model whose tool the tape has with another input.
	InputDrift DifferenceKind = "input drift"
	// DefinitionDrift is a tool that has another definition today, or is gone.
	DefinitionDrift DifferenceKind = "definition drift"
	// SessionDiffers is another opening of the session or another event of it.
	SessionDiffers DifferenceKind = "session"
)

// A Difference is one respect in which a replay differs from its recording.
type Difference struct {
	Kind DifferenceKind `json:"kind"`
	// Turn is the number of the turn, counted from 1. Zero: the difference is in no turn.
	Turn int `json:"turn,omitempty"`
	// Call is the call of the reply of the turn. Empty: the difference is in no call.
	Call domain.CallID `json:"call,omitempty"`
	// Event names the event, such as "end of call_1 of turn 3".
	Event string `json:"event"`
	// Field is the field of the event that differs. Empty: the whole event does.
	Field string `json:"field,omitempty"`
	// Recorded and Replayed are both sides, as JSON or text. Empty: the side has nothing
	// there.
	Recorded string `json:"recorded,omitempty"`
	Replayed string `json:"replayed,omitempty"`
}

// String returns the difference as a line for a person.
func (d Difference) String() string {
	text := string(d.Kind) + " differs: " + d.Event
	switch d.Kind {
	case Miss, InputDrift, DefinitionDrift, MissingEvent, ExtraEvent:
		text = string(d.Kind) + ": " + d.Event
	}
	if d.Field != "" {
		text += ", " + d.Field
	}
	return text
}

// An Incomparable is a part of the recording that a replay cannot check, with the reason.
type Incomparable struct {
	Where  string `json:"where"`
	Reason string `json:"reason"`
}

// A Step is a turn or a call of the recording.
type Step struct {
	Turn int           `json:"turn"`
	Call domain.CallID `json:"call,omitempty"`
	// Tool is the name of the tool that the call names.
	Tool string `json:"tool,omitempty"`
}

// String names the step.
func (s Step) String() string {
	if s.Call == "" {
		return fmt.Sprintf("turn %d", s.Turn)
	}
	return fmt.Sprintf("turn %d: %s %s", s.Turn, s.Tool, s.Call)
}

// A Report is the comparison of a recorded session with its replay.
type Report struct {
	// Session is the recorded session, and Replay the new one.
	Session domain.SessionID `json:"session"`
	Replay  domain.SessionID `json:"replay"`
	// Mode is tape, tools or model.
	Mode string `json:"mode"`
	// Same is set if there is no difference.
	Same bool `json:"same"`
	// Turns, Calls and Events count what was compared.
	Turns  int `json:"turns"`
	Calls  int `json:"calls"`
	Events int `json:"events"`
	// Steps are the turns and calls of the recording, in order.
	Steps []Step `json:"-"`
	// Differences are in the order of the recording, extra events last.
	Differences []Difference `json:"differences"`
	// Incomparable are the parts that cannot be compared.
	Incomparable []Incomparable `json:"not_comparable"`
	// Unused are the recorded calls that a live model did not ask for.
	Unused []Step `json:"unused,omitempty"`
}
