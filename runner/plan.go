package runner

import (
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A step is what a session needs next.
type step interface{ step() }

type (
	// loseCalls ends calls that began and have no end: nobody runs them any more.
	loseCalls struct{ calls []openCall }
	// dismissAsks ends requests for permission that nobody waits for any more.
	dismissAsks struct{ asks []events.PermissionRequested }
	// settleCalls brings the calls of a reply to their end.
	settleCalls struct{ calls []openCall }
	// refuseCalls ends calls that were asked for although tools were disabled.
	refuseCalls struct{ calls []openCall }
	// askModel takes a turn: it offers tools and asks the model.
	askModel struct{ last bool }
	// idle is nothing.
	idle struct{}
)

func (loseCalls) step()   {}
func (dismissAsks) step() {}
func (settleCalls) step() {}
func (refuseCalls) step() {}
func (askModel) step()    {}
func (idle) step()        {}

// An openCall is a call of a reply.
type openCall struct {
	conversation.Call
	message domain.MessageID
	reply   domain.EventID
	offer   domain.Offer
}

// plan says what a session needs next, given how many replies there may be to
// one prompt (0: any number). It is pure: all it knows is on record. It returns
// an events.ErrUnknownKind for a session with events that it cannot read.
func plan(s *conversation.State, steps int) (step, error) {
	if len(s.Unknown) > 0 {
		return nil, fmt.Errorf("plan session %s: %w: %s", s.Session, events.ErrUnknownKind, s.Unknown[0])
	}
	if s.Closed {
		return idle{}, nil
	}
	if len(s.Asks) > 0 {
		return dismissAsks{s.Asks}, nil
	}
	begun, waiting := open(s)
	switch {
	case len(begun) > 0:
		return loseCalls{begun}, nil
	case len(waiting) > 0 && disabled(s):
		return refuseCalls{waiting}, nil
	case len(waiting) > 0:
		return settleCalls{waiting}, nil
	case !unanswered(s) || steps > 0 && s.Steps >= steps:
		return idle{}, nil
	}
	return askModel{last: steps > 0 && s.Steps == steps-1}, nil
}

// open returns the calls without an end: those that began, and the others.
func open(s *conversation.State) (begun, waiting []openCall) {
	for _, m := range s.Messages {
		if m.Reply == nil {
			continue
		}
		for _, c := range m.Reply.Calls {
			a := openCall{c, m.ID, m.Reply.Event, m.Reply.Offer}
			switch {
			case c.Settlement != nil:
			case c.Started != nil:
				begun = append(begun, a)
			default:
				waiting = append(waiting, a)
			}
		}
	}
	return begun, waiting
}

// disabled reports whether the last reply came of a turn without tools. A turn
// that has no reply was never answered, and is taken again.
func disabled(s *conversation.State) bool { return s.Turn != nil && s.Replied && s.Turn.Disabled }

// unanswered reports whether there is something that the model has not read: a
// prompt, or the ends of the calls that it asked for. The end of a call that
// was disabled is not for it.
func unanswered(s *conversation.State) bool {
	if len(s.Messages) == 0 {
		return false
	}
	last := s.Messages[len(s.Messages)-1]
	return last.Prompt != nil || len(last.Reply.Calls) > 0 && !disabled(s)
}
