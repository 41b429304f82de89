package conversation

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// ErrNoPast is returned for a fork whose past is not in the ledger.
var ErrNoPast = errors.New("past of the fork is not in the ledger")

// The texts with which the model reads in a fork that the past ended before a call did.
const (
	// ForkedWhile answers a call that had begun.
	ForkedWhile = "This session was forked while this tool call ran: its outcome is unknown here."
	// ForkedBefore answers a call that had not begun.
	ForkedBefore = "This session was forked before this tool call began: it was not run here."
)

// maxForks bounds the number of forks of forks that Read follows.
const maxForks = 1000

// Read folds a session from its stream. The messages of a fork begin with those of its
// past, which it reads from the streams of its parents. It returns ErrNoPast if a parent
// does not have the place at which it was forked. The state of a session without events has
// no session.
func Read(ctx context.Context, l *events.Ledger, session domain.SessionID) (*State, error) {
	return read(ctx, l, session, 0, 0)
}

// Past folds the past of a fork. See [Inherit].
func Past(ctx context.Context, l *events.Ledger, f events.SessionForked) (*State, error) {
	return past(ctx, l, f, 0)
}

// read folds a session up to a revision, or to its end if that is zero. depth is the number
// of forks below it.
func read(ctx context.Context, l *events.Ledger, session domain.SessionID, through events.Revision, depth int) (*State, error) {
	s := &State{}
	for v, err := range l.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return nil, err
		}
		if through > 0 && v.Revision > through {
			break
		}
		s = apply(s, v)
		if e, ok := v.Event.(events.SessionForked); ok {
			before, err := past(ctx, l, e, depth)
			if err != nil {
				return nil, err
			}
			s = Inherit(before, s)
		}
	}
	return s, nil
}

// past is Past for a fork with depth forks below it.
func past(ctx context.Context, l *events.Ledger, f events.SessionForked, depth int) (*State, error) {
	if depth == maxForks {
		return nil, fmt.Errorf("read past of a fork: %w: there are more than %d forks of forks", ErrNoPast, maxForks)
	}
	s, err := read(ctx, l, f.Parent, events.Revision(f.Revision), depth+1)
	if err != nil {
		return nil, err
	}
	if s.Last != f.Event || f.Event.IsZero() || s.Revision != events.Revision(f.Revision) {
		return nil, fmt.Errorf("read past of a fork: %w: session %s has no event %s at revision %d", ErrNoPast, f.Parent, f.Event, f.Revision)
	}
	return s, nil
}

// Inherit returns the state of a fork from that of its past, which it may reuse, and that of
// its own events up to its SessionForked. The fork has the messages, tasks, files, turn and
// compaction of the past. It has neither its permission requests, questions, interruption
// and end, nor its recorded texts: the turns of a fork name texts of their own stream. A
// call that the past leaves open has ended with [ForkedWhile] or [ForkedBefore], for the
// model of the fork alone.
func Inherit(past, own *State) *State {
	s := past
	for _, m := range s.OpenReplies() {
		for c := range m.Reply.All() {
			if c.Settlement != nil {
				continue
			}
			end := domain.Settlement{Outcome: domain.Interrupted, Interruption: domain.Superseded, Text: ForkedBefore}
			if c.Started != nil {
				end.Began, end.Text = true, ForkedWhile
			}
			c.Settlement = &end
		}
	}
	s.Session, s.Origin, s.Forked, s.Revision, s.Last = own.Session, own.Origin, own.Forked, own.Revision, own.Last
	s.Agent, s.Ancestors, s.Location, s.Model = own.Agent, own.Ancestors, own.Location, own.Model
	s.Parent, s.ParentMessage, s.ParentCall = own.Parent, own.ParentMessage, own.ParentCall
	s.Asks, s.Questions, s.Interrupted, s.Closed = nil, nil, nil, false
	s.Texts, s.OlderTexts = nil, nil
	s.index = newReplyIndex(s.Messages)
	return s
}
