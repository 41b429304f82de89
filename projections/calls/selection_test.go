package calls_test

import (
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// Each event of random histories that names a call, or a request or an output of one, has a
// role in that call and in no other. Offers and replies have one in each call of their message.
func TestASelectionHasTheEventsOfItsCall(t *testing.T) {
	t.Parallel()
	seen := map[calls.Role]int{}
	for seed := range uint64(6) {
		history := projectionstest.History(seed+40, 400)
		state := calls.New()
		p := calls.Projection()
		streams := map[domain.SessionID][]events.Envelope{}
		for _, v := range history {
			state = p.Apply(state, v)
			if id, ok := v.Stream.Session(); ok {
				streams[id] = append(streams[id], v)
			}
		}
		for _, c := range append(state.Calls(), state.Orphans()...) {
			s := calls.NewSelection(c.Key())
			asked, waits, kept := false, map[domain.PermissionID]bool{}, map[domain.Ref]bool{}
			for _, v := range streams[c.Session] {
				role := s.Role(v.Event)
				if want := roleByFields(c.Key(), v.Event, waits, kept); role != want {
					t.Fatalf("seed %d: %s of %s has the role %q in %v, want %q", seed, v.Event.Kind(), v.ID, role, c.Key(), want)
				}
				asked = asked || role == calls.RequestRole || role == calls.AddedRole
				seen[role]++
			}
			if asked == c.Asked.IsZero() {
				t.Errorf("seed %d: a reply asks for %v: %t, want %t", seed, c.Key(), asked, !c.Asked.IsZero())
			}
		}
	}
	for _, role := range []calls.Role{
		calls.OfferRole, calls.RequestRole, calls.AddedRole, calls.AddsRole, calls.StartRole, calls.PermissionRole, calls.DecisionRole,
		calls.ApprovalRole, calls.QuestionRole, calls.AnswerRole, calls.EndRole, calls.LateRole, calls.PrunedRole,
	} {
		if seen[role] == 0 {
			t.Errorf("no event has the role %s", role)
		}
	}
}

// roleByFields is the model of Selection.Role: the events that name the call by its key, and by
// the requests and outputs in waits and kept, to which it adds those of e.
func roleByFields(key calls.Key, e events.Event, waits map[domain.PermissionID]bool, kept map[domain.Ref]bool) calls.Role {
	if id, ok := decides(e); ok {
		role := map[string]calls.Role{"PermissionDecided": calls.DecisionRole, "QuestionAnswered": calls.AnswerRole, "ApprovalSaved": calls.ApprovalRole}[e.Kind()]
		if waits[id] {
			return role
		}
		return ""
	}
	of := func(message domain.MessageID, call domain.CallID, role calls.Role) calls.Role {
		if (calls.Key{Session: key.Session, Message: message, Call: call}) == key {
			return role
		}
		return ""
	}
	switch e := e.(type) {
	case events.TurnMaterialized:
		return of(e.Message, key.Call, calls.OfferRole)
	case events.ReplyReceived:
		for _, c := range e.Calls {
			if role := of(e.Message, c.ID, calls.RequestRole); role != "" {
				return role
			}
		}
	case events.CallsAdded:
		for _, c := range e.Calls {
			if role := of(e.Message, c.ID, calls.AddedRole); role != "" {
				return role
			}
		}
		return of(e.Message, e.Parent, calls.AddsRole)
	case events.CallStarted:
		return of(e.Message, e.Call, calls.StartRole)
	case events.LateResultObserved:
		return of(e.Message, e.Call, calls.LateRole)
	case events.LoopDetected:
		return of(e.Message, e.Call, calls.LoopRole)
	case events.AgentSwitched:
		return of(e.Message, e.Call, calls.EffectRole)
	case events.TodosReplaced:
		return of(e.Message, e.Call, calls.EffectRole)
	case events.PermissionRequested:
		role := of(e.Message, e.Call, calls.PermissionRole)
		waits[e.Permission] = waits[e.Permission] || role != ""
		return role
	case events.QuestionAsked:
		role := of(e.Message, e.Call, calls.QuestionRole)
		waits[e.Question] = waits[e.Question] || role != ""
		return role
	case events.CallSettled:
		role := of(e.Message, e.Call, calls.EndRole)
		for _, r := range e.Retained {
			kept[r.Ref] = kept[r.Ref] || role != ""
		}
		return role
	case events.OutputPruned:
		if kept[e.Retained.Ref] {
			return calls.PrunedRole
		}
	}
	return ""
}

// decides returns the request that an event decides or follows from.
func decides(e events.Event) (domain.PermissionID, bool) {
	switch e := e.(type) {
	case events.PermissionDecided:
		return e.Permission, true
	case events.QuestionAnswered:
		return e.Question, true
	case events.ApprovalSaved:
		return e.Permission, true
	}
	return domain.PermissionID{}, false
}
