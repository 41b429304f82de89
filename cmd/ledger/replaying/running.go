package replaying

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
)

// CheckIdle returns a fault if a process that may be alive is running a session: it has a
// call, a question or a request to the model that is open.
func CheckIdle(ctx context.Context, s *stores.Store, session domain.SessionID) error {
	p := conversation.Projection()
	state, err := projections.Fold(p, p.Init(), s.Ledger.Read(ctx, events.SessionStream(session), 0))
	if err != nil {
		return err
	}
	asked := state.Turn != nil && !state.Replied && state.Interrupted == nil
	if state.Turn == nil || !asked && len(state.Open())+len(state.Asks)+len(state.Questions) == 0 {
		return nil
	}
	started, err := stores.Current(ctx, s, runner.Processes())
	if err != nil {
		return err
	}
	judged := s.Judge(started, s.Ledger.Now())
	var others []domain.ProcessID
	for _, p := range append(judged.Living, judged.Unknown...) {
		others = append(others, p.Process)
	}
	var layers []domain.LayerID
	for _, o := range append(state.Offered, state.Turn.Tools...) {
		layers = append(layers, o.Layer)
	}
	owner := runner.Orphans{Started: started, Others: others}.Elsewhere(layers)
	if owner.IsZero() {
		return nil
	}
	return &fault.Error{
		Exit: fault.ExitConflict, Code: "running", Err: fmt.Errorf("session %s is running in process %s", session, owner),
		Hint: "wait until its run ends; ledger session tail -f shows it",
	}
}
