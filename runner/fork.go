package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// The errors of a fork.
var (
	// ErrNoPlace is returned for a turn or a call that a session and its past do not have.
	ErrNoPlace = errors.New("session has no such turn or call")
	// ErrOpenPlace is returned for a turn whose calls have not ended, and for a call that
	// has not ended.
	ErrOpenPlace = errors.New("place has not ended")
)

// A ForkPlace is where a fork continues a session: behind the end of Call of the turn or, if
// Call is empty, behind the turn with the ends of all its calls. A zero Turn is the last
// turn that has ended.
type ForkPlace struct {
	Turn domain.TurnID
	Call domain.CallID
}

// FindFork returns the event that forks a session at a place, with the revision at which the
// past ends. If the place is in the past of a session that is a fork itself, the event names
// the parent that has it. It returns ErrNoSession, ErrNoPlace, ErrOpenPlace or
// events.ErrUnknownKind. It appends nothing.
func FindFork(ctx context.Context, l *events.Ledger, session domain.SessionID, at ForkPlace) (events.SessionForked, error) {
	return findFork(ctx, l, session, at, 0)
}

// findFork is FindFork in the events of a session up to a revision, or all if that is zero.
func findFork(ctx context.Context, l *events.Ledger, session domain.SessionID, at ForkPlace, through events.Revision) (events.SessionForked, error) {
	f := forkSearch{at: at, found: events.SessionForked{Parent: session, Turn: at.Turn, Call: at.Call}}
	var parent *events.SessionForked
	for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return f.found, fmt.Errorf("fork session %s: %w", session, err)
		}
		if through > 0 && v.Revision > through {
			break
		}
		switch e := v.Event.(type) {
		case events.Unknown:
			return f.found, fmt.Errorf("fork session %s: %w: %s", session, events.ErrUnknownKind, e.Name)
		case events.SessionForked:
			parent = &e
		}
		f.read(v)
		f.events++
	}
	switch {
	case f.events == 0:
		return f.found, fmt.Errorf("fork session %s: %w", session, ErrNoSession)
	case f.found.Event.IsZero() && parent != nil:
		return findFork(ctx, l, parent.Parent, at, events.Revision(parent.Revision))
	case f.found.Event.IsZero() && f.turn.IsZero():
		return f.found, fmt.Errorf("fork session %s: %w", session, ErrNoPlace)
	case f.found.Event.IsZero() || at.Call == "" && !at.Turn.IsZero() && len(f.open) > 0:
		return f.found, fmt.Errorf("fork session %s: %w", session, ErrOpenPlace)
	}
	return f.found, nil
}

// A forkSearch finds the place of a fork in the events of a session.
type forkSearch struct {
	at     ForkPlace
	events int
	// turn is the turn of the place, or the last one read, and message its reply.
	turn    domain.TurnID
	message domain.MessageID
	// open has the calls of the reply that have no end yet.
	open  map[domain.CallID]bool
	found events.SessionForked
}

// read reads the next event.
func (f *forkSearch) read(v events.Envelope) {
	switch e := v.Event.(type) {
	case events.TurnMaterialized:
		if e.Turn == f.at.Turn || f.at.Turn.IsZero() && e.Summarizes.IsZero() && f.at.Call == "" {
			f.turn, f.message, f.open = e.Turn, e.Message, map[domain.CallID]bool{}
		}
	case events.ReplyReceived:
		if e.Message != f.message || f.message.IsZero() {
			return
		}
		for _, c := range e.Calls {
			f.open[c.ID] = true
		}
		f.ends(v, "")
	case events.CallsAdded:
		for _, c := range e.Calls {
			if e.Message == f.message {
				f.open[c.ID] = true
			}
		}
	case events.CallSettled:
		if e.Message != f.message || f.message.IsZero() {
			return
		}
		delete(f.open, e.Call)
		f.ends(v, e.Call)
	}
}

// ends sets the place if the event ends it.
func (f *forkSearch) ends(v events.Envelope, call domain.CallID) {
	if f.at.Call == "" && len(f.open) == 0 || f.at.Call != "" && f.at.Call == call {
		f.found.Revision, f.found.Event, f.found.Turn = int64(v.Revision), v.ID, f.turn
	}
}

// Fork opens a session that continues another one, and admits prompt, unless it is empty.
// All its events are one append, so that no fork is on record without its place. The fork
// has the agent, the model and the location of its past. A fork of a fork, or of an import,
// is like any other.
func (r *Runner) Fork(ctx context.Context, f events.SessionForked, prompt string) (domain.SessionID, error) {
	l := r.config.Ledger
	past, err := conversation.Past(ctx, l, f)
	if err != nil {
		return domain.SessionID{}, fmt.Errorf("fork session %s: %w", f.Parent, err)
	}
	opened := events.SessionOpened{
		Session: l.Mint().Session(), Agent: past.Agent, Location: past.Location, Model: past.Model, Ancestors: past.Ancestors,
		Origin: events.Origin{Kind: events.Forked, Source: f.Parent.String()},
	}
	drafts := []events.Draft{l.Draft(opened, f.Event)}
	drafts = append(drafts, l.Draft(f, drafts[0].ID))
	if prompt != "" {
		drafts = append(drafts, l.Draft(events.PromptAdmitted{Message: l.Mint().Message(), Text: prompt}, drafts[1].ID))
	}
	if _, err := l.Append(ctx, events.SessionStream(opened.Session), 0, drafts...); err != nil {
		return domain.SessionID{}, fmt.Errorf("fork session %s: %w", f.Parent, err)
	}
	return opened.Session, nil
}
