package replaying

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// FindPlace returns the event that forks a session at a turn or a call, which at identifies:
// a turn by its ID, a call of the session by its ID. An empty at is the last turn that has
// ended.
func FindPlace(ctx context.Context, s *stores.Store, r *index.Snapshot, session domain.SessionID, at string) (events.SessionForked, error) {
	place, err := placeOf(r, session, at)
	if err != nil {
		return events.SessionForked{}, err
	}
	forked, err := runner.FindFork(ctx, s.Ledger, session, place)
	switch {
	case errors.Is(err, runner.ErrNoPlace):
		return forked, fault.NotFound("ledger session show "+session.String()+" lists its turns and calls", "%w", err)
	case errors.Is(err, runner.ErrOpenPlace):
		return forked, &fault.Error{
			Exit: fault.ExitConflict, Code: "open", Err: err, Hint: "fork at an earlier turn or call, or wait until its calls have ended; ledger recover ends those of a dead process",
		}
	}
	return forked, tapeFault(err)
}

// placeOf returns the place that at identifies in a session.
func placeOf(r *index.Snapshot, session domain.SessionID, at string) (runner.ForkPlace, error) {
	if at == "" {
		return runner.ForkPlace{}, nil
	}
	asked, err := r.Calls(index.CallQuery{Session: session})
	if err != nil {
		return runner.ForkPlace{}, err
	}
	var found []runner.ForkPlace
	for _, c := range asked {
		if string(c.ID) == at || render.ShortCallID(c.ID) == at {
			found = append(found, runner.ForkPlace{Turn: c.Turn, Call: c.ID})
		}
	}
	if len(found) > 1 {
		return found[0], fault.Usage("--at %s is ambiguous: %d calls of the session have this ID; name the turn", at, len(found))
	}
	if len(found) == 1 {
		return found[0], nil
	}
	turn, err := query.Turn(r, at)
	if err != nil {
		return runner.ForkPlace{}, fmt.Errorf("--at: %w", err)
	}
	return runner.ForkPlace{Turn: turn.Turn}, nil
}

// A forkRow is the result of a fork.
type forkRow struct {
	Session domain.SessionID `json:"session"`
	events.SessionForked
}

// ShowFork prints a new fork.
func ShowFork(p *render.Printer, session domain.SessionID, f events.SessionForked) error {
	return p.Object(forkRow{session, f}, func() {
		p.Line("%s continues %s behind event %d; ledger resume %s carries on", session, render.ShortID(f.Parent), f.Revision, session)
	})
}

// WarnDrift writes a line for each tool that differs between the last turn of the past of a
// fork and the registry of today, before the first turn of the fork. It writes nothing for
// another session.
func WarnDrift(ctx context.Context, w io.Writer, l *events.Ledger, session domain.SessionID, today *registry.Registry) error {
	past, ok, err := pastOffer(ctx, l, session)
	if err != nil || !ok {
		return err
	}
	m, err := today.Materialize(ctx, registry.TurnSpec{ID: l.Mint().Turn()})
	if err != nil {
		return err
	}
	now := m.Offer().Tools
	for _, h := range m.Hidden() {
		now = append(now, h.Offered)
	}
	for _, line := range Drift(past, now) {
		fmt.Fprintln(w, "drift: "+line)
	}
	return nil
}

// pastOffer returns the tools that the last turn of the past of a fork offered or hid, and
// true, if the fork has taken no turn of its own.
func pastOffer(ctx context.Context, l *events.Ledger, session domain.SessionID) ([]domain.Offered, bool, error) {
	var forked *events.SessionForked
	for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return nil, false, err
		}
		switch e := v.Event.(type) {
		case events.SessionForked:
			forked = &e
		case events.TurnMaterialized:
			return nil, false, nil
		}
	}
	if forked == nil {
		return nil, false, nil
	}
	past, err := conversation.Past(ctx, l, *forked)
	if err != nil {
		return nil, false, err
	}
	if past.Turn == nil || past.Turn.Disabled {
		return past.Offered, true, nil
	}
	tools := slices.Clone(past.Turn.Tools)
	for _, h := range past.Turn.Hidden {
		tools = append(tools, h.Offered)
	}
	return tools, true, nil
}

// Drift returns a line for each tool of the past that is not in effect today, or with
// another definition, and for each new one.
func Drift(past, today []domain.Offered) (lines []string) {
	find := func(tools []domain.Offered, name domain.Name) (domain.Offered, bool) {
		return domain.Offer{Tools: tools}.Find(string(name))
	}
	for _, was := range past {
		now, ok := find(today, was.Name)
		switch {
		case !ok:
			lines = append(lines, fmt.Sprintf("the tool %s of the past is gone", was.Name))
		case was.Fingerprint.IsZero():
			lines = append(lines, fmt.Sprintf("the definition of the tool %s in the past is not on record", was.Name))
		case was.Fingerprint != now.Fingerprint:
			lines = append(lines, fmt.Sprintf("the definition of the tool %s has changed from %.12s to %.12s", was.Name, was.Fingerprint, now.Fingerprint))
		}
	}
	for _, now := range today {
		if _, ok := find(past, now.Name); !ok {
			lines = append(lines, fmt.Sprintf("the tool %s is new", now.Name))
		}
	}
	return lines
}
