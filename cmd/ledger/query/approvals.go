package query

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// SavedApprovals returns the approvals that are not revoked. It is the fold of
// engine.Approvals over the events that the index has of them.
func SavedApprovals(r *index.Snapshot) (*engine.SavedApprovals, error) {
	projection := engine.Approvals()
	state := projection.Init()
	saved, err := r.Approvals()
	for _, v := range saved {
		state = projection.Apply(state, v)
	}
	return state, err
}

// Approvals resolves IDs to saved approvals. The result has each pattern of each ID
// once, in the order of the log.
func Approvals(r *index.Snapshot, ids []string) ([]engine.SavedApproval, error) {
	state, err := SavedApprovals(r)
	if err != nil {
		return nil, err
	}
	named := map[domain.PermissionID]bool{}
	for _, id := range ids {
		permission, err := pick("approval", id, approvalCandidates(state))
		if err != nil {
			return nil, err
		}
		named[permission] = true
	}
	var found []engine.SavedApproval
	for _, saved := range state.Saved {
		if named[saved.Permission] {
			found = append(found, saved)
		}
	}
	return found, nil
}

// approvalCandidates returns one candidate for each answer of a person that saved
// approvals, in the order of the log. The description of a candidate lists all patterns
// of the answer.
func approvalCandidates(s *engine.SavedApprovals) []candidate[domain.PermissionID] {
	var all []candidate[domain.PermissionID]
	at := map[domain.PermissionID]int{}
	for _, saved := range s.Saved {
		pattern := saved.Action + " " + saved.Resource
		if i, ok := at[saved.Permission]; ok {
			all[i].description = render.OneLine(all[i].description+", "+pattern, render.TextWidth)
			continue
		}
		at[saved.Permission] = len(all)
		all = append(all, candidate[domain.PermissionID]{saved.Permission, []string{saved.Permission.String()}, render.OneLine(pattern, render.TextWidth)})
	}
	return all
}
