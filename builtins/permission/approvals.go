package permission

import (
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// An Approval allows an agent an action on resources that match a pattern, because a person
// answered "always". Its identity is Agent, Action and Resource.
type Approval struct {
	Permission domain.PermissionID // the request that was answered
	Session    domain.SessionID    // the session of that request
	Agent      domain.AgentID      // the agent of that request; the approval serves no other agent
	Action     string              // compared, not matched
	Resource   string              // a pattern of domain.MatchAsWritten
	At         time.Time
	Expires    time.Time      // zero: never
	Person     string         // who approved; empty: not known
	Event      domain.EventID // the event that records the approval; zero: not known
}

// validAt reports whether the approval is valid at a time.
func (a Approval) validAt(now time.Time) bool { return a.Expires.IsZero() || now.Before(a.Expires) }

// Approvals is a set of approvals in memory. The caller restores recorded approvals with Add.
// The zero Approvals is ready for use.
type Approvals struct {
	mu struct {
		sync.Mutex
		list []Approval // in the order in which they were added
	}
}

// Add adds an approval, or replaces the approval of the same agent, action and resource.
func (as *Approvals) Add(a Approval) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if i := as.indexLocked(a.Agent, a.Action, a.Resource); i >= 0 {
		as.mu.list[i] = a
		return
	}
	as.mu.list = append(as.mu.list, a)
}

// Revoke removes an approval with immediate effect and reports whether it existed. The caller
// records the revocation.
func (as *Approvals) Revoke(agent domain.AgentID, action, resource string) bool {
	as.mu.Lock()
	defer as.mu.Unlock()
	i := as.indexLocked(agent, action, resource)
	if i >= 0 {
		as.mu.list = slices.Delete(as.mu.list, i, i+1)
	}
	return i >= 0
}

// List returns the approvals that are valid at a time, in the order in which they were added.
func (as *Approvals) List(now time.Time) []Approval {
	as.mu.Lock()
	defer as.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(as.mu.list), func(a Approval) bool { return !a.validAt(now) })
}

// indexLocked returns the index of an approval in the list, or -1. The caller holds mu.
func (as *Approvals) indexLocked(agent domain.AgentID, action, resource string) int {
	return slices.IndexFunc(as.mu.list, func(a Approval) bool { return a.Agent == agent && a.Action == action && a.Resource == resource })
}

// find returns the first valid approval that matches a request of an agent, and whether there
// is one.
func (as *Approvals) find(agent domain.AgentID, action, resource string, now time.Time) (Approval, bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for _, a := range as.mu.list {
		if a.Agent == agent && a.Action == action && a.validAt(now) && domain.MatchAsWritten(a.Resource, resource) {
			return a, true
		}
	}
	return Approval{}, false
}
