package calls

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Role is the part that an event has in a call.
type Role string

// The roles of the events of a call.
const (
	OfferRole      Role = "offer"      // the turn offers its tools; an import may have several
	RequestRole    Role = "request"    // a reply asks for the call; an import may have several
	AddedRole      Role = "added"      // a running call adds it
	AddsRole       Role = "adds"       // it adds calls
	LoopRole       Role = "loop"       // it closes a loop of calls
	StartRole      Role = "start"      // it starts
	PermissionRole Role = "permission" // it requests permission
	DecisionRole   Role = "decision"   // the request is decided
	ApprovalRole   Role = "approval"   // the answer is saved for later requests
	QuestionRole   Role = "question"   // it asks a person
	AnswerRole     Role = "answer"     // the person answers, or there is none
	EffectRole     Role = "effect"     // it switches the agent or replaces the list of tasks
	EndRole        Role = "end"        // it is settled
	LateRole       Role = "late"       // a result arrived after the end
	PrunedRole     Role = "pruned"     // a kept output is deleted
)

// A Selection selects the events of a session's stream that concern one call. It knows the
// requests and the outputs of the call by the events that it has seen, so that it finds
// decisions and deletions.
type Selection struct {
	key      Key
	requests []domain.PermissionID
	outputs  []domain.Ref
}

// NewSelection returns a Selection that has seen no event.
func NewSelection(key Key) *Selection { return &Selection{key: key} }

// Role returns the role of an event in the call, or "" if the event does not concern the call.
// The caller passes the events of the session's stream in order, from an event on before which
// none concerns the call.
func (s *Selection) Role(e events.Event) Role {
	switch e := e.(type) {
	case events.TurnMaterialized:
		return s.turnRole(e.Message, OfferRole)
	case events.ReplyReceived:
		if asks(e.Calls, s.key.Call) {
			return s.turnRole(e.Message, RequestRole)
		}
	case events.CallsAdded:
		if asks(e.Calls, s.key.Call) {
			return s.turnRole(e.Message, AddedRole)
		}
		return s.callRole(e.Message, e.Parent, AddsRole)
	case events.LoopDetected:
		return s.callRole(e.Message, e.Call, LoopRole)
	case events.CallStarted:
		return s.callRole(e.Message, e.Call, StartRole)
	case events.AgentSwitched:
		return s.callRole(e.Message, e.Call, EffectRole)
	case events.TodosReplaced:
		return s.callRole(e.Message, e.Call, EffectRole)
	case events.LateResultObserved:
		return s.callRole(e.Message, e.Call, LateRole)
	case events.CallSettled:
		role := s.callRole(e.Message, e.Call, EndRole)
		if role != "" {
			for _, r := range e.Retained {
				s.outputs = append(s.outputs, r.Ref)
			}
		}
		return role
	case events.OutputPruned:
		if slices.Contains(s.outputs, e.Retained.Ref) {
			return PrunedRole
		}
	}
	return s.requestRole(e)
}

// requestRole is Role for the requests and questions of calls, and what follows from them.
func (s *Selection) requestRole(e events.Event) Role {
	switch e := e.(type) {
	case events.PermissionRequested:
		return s.waits(e.Permission, s.callRole(e.Message, e.Call, PermissionRole))
	case events.QuestionAsked:
		return s.waits(e.Question, s.callRole(e.Message, e.Call, QuestionRole))
	case events.PermissionDecided:
		return s.answers(e.Permission, DecisionRole)
	case events.QuestionAnswered:
		return s.answers(e.Question, AnswerRole)
	case events.ApprovalSaved:
		return s.answers(e.Permission, ApprovalRole)
	}
	return ""
}

// asks reports whether a list has a call.
func asks(all []domain.Call, call domain.CallID) bool {
	return slices.ContainsFunc(all, func(c domain.Call) bool { return c.ID == call })
}

// turnRole returns role if message is the reply of the call.
func (s *Selection) turnRole(message domain.MessageID, role Role) Role {
	if message != s.key.Message {
		return ""
	}
	return role
}

// callRole returns role if the names are those of the call.
func (s *Selection) callRole(message domain.MessageID, call domain.CallID, role Role) Role {
	if call != s.key.Call {
		return ""
	}
	return s.turnRole(message, role)
}

// waits adds a request to those of the call if role is not "", and returns role.
func (s *Selection) waits(id domain.PermissionID, role Role) Role {
	if role != "" {
		s.requests = append(s.requests, id)
	}
	return role
}

// answers returns role if a request is one of the call.
func (s *Selection) answers(id domain.PermissionID, role Role) Role {
	if !slices.Contains(s.requests, id) {
		return ""
	}
	return role
}
