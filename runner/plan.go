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
	// lose ends calls that began and have no end: nobody runs them any more.
	lose struct{ calls []asked }
	// dismiss ends requests for permission that nobody waits for any more.
	dismiss struct{ asks []events.PermissionRequested }
	// settle brings the calls of a reply to their end.
	settle struct{ calls []asked }
	// refuse ends calls that were asked for although tools were disabled.
	refuse struct{ calls []asked }
	// ask takes a turn: it offers tools and asks the model.
	ask struct{ last bool }
	// rest is nothing.
	rest struct{}
)

func (lose) step()    {}
func (dismiss) step() {}
func (settle) step()  {}
func (refuse) step()  {}
func (ask) step()     {}
func (rest) step()    {}

// An asked is a call of a reply.
type asked struct {
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
		return rest{}, nil
	}
	if len(s.Asks) > 0 {
		return dismiss{s.Asks}, nil
	}
	begun, waiting := open(s)
	switch {
	case len(begun) > 0:
		return lose{begun}, nil
	case len(waiting) > 0 && disabled(s):
		return refuse{waiting}, nil
	case len(waiting) > 0:
		return settle{waiting}, nil
	case !unanswered(s) || steps > 0 && s.Steps >= steps:
		return rest{}, nil
	}
	return ask{last: steps > 0 && s.Steps == steps-1}, nil
}

// open returns the calls without an end: those that began, and the others.
func open(s *conversation.State) (begun, waiting []asked) {
	for _, m := range s.Messages {
		if m.Reply == nil {
			continue
		}
		for _, c := range m.Reply.Calls {
			a := asked{c, m.ID, m.Reply.Event, m.Reply.Offer}
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
