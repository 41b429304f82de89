package runner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A step is the next action of a run. It is one of the types below; plan chooses it, and
// runState.take takes it.
type step interface{ step() }

type (
	// loseCalls ends calls that began and that no process runs any more, as lost.
	loseCalls struct{ calls []openCall }
	// dismissAsks ends permission requests and questions that no tool waits for any more,
	// as denied by recovery.
	dismissAsks struct{}
	// endAdded ends calls that a call added and that did not begin before the run of that
	// call ended, as interrupted.
	endAdded struct{ calls []openCall }
	// settleCalls settles the calls of a reply that have not begun.
	settleCalls struct{ calls []openCall }
	// refuseCalls ends calls that the model made although tools were disabled.
	refuseCalls struct{ calls []openCall }
	// askModel takes a turn: it offers tools and asks the model. last is set for the
	// last reply that Config.Steps allows; its turn offers no tools.
	askModel struct{ last bool }
	// compact leaves out messages and results from later requests.
	compact struct{ compaction }
	// idle is the absence of a step: the run ends.
	idle struct{}
)

func (loseCalls) step()   {}
func (dismissAsks) step() {}
func (endAdded) step()    {}
func (settleCalls) step() {}
func (refuseCalls) step() {}
func (askModel) step()    {}
func (compact) step()     {}
func (idle) step()        {}

// An openCall is a call of a reply with its message, the event that asks for it, and the
// offer of the turn. The event is the reply or, for an added call, the one that added it.
type openCall struct {
	conversation.ReplyCall
	// agent is the agent of the turn.
	agent   domain.AgentID
	message domain.MessageID
	reply   domain.EventID
	offer   domain.Offer
}

// plan returns the next step of a session. steps is the maximum number of replies to one
// prompt; zero is unlimited. limits are those of the model of the next turn. plan is a pure function of the recorded session, so a
// process that resumes a session takes the same step as the dead process would have
// taken. It returns events.ErrUnknownKind for a session with events of unknown kinds,
// which a newer program wrote.
//
// The order of the steps matters. Permission requests come first, because their calls
// wait for them. Calls that began come before calls that did not, since a lost call must
// have its end before the model is asked again. A compaction comes last, so that it leaves
// out no open call.
func plan(s *conversation.State, steps int, limits contextLimits) (step, error) {
	if len(s.Unknown) > 0 {
		return nil, fmt.Errorf("plan session %s: %w: %s", s.Session, events.ErrUnknownKind, s.Unknown[0])
	}
	if s.Closed {
		return idle{}, nil
	}
	if len(s.Asks)+len(s.Questions) > 0 {
		return dismissAsks{}, nil
	}
	begun, waiting := open(s)
	added := slices.DeleteFunc(slices.Clone(waiting), func(a openCall) bool { return a.Parent == "" })
	switch {
	case len(begun) > 0:
		return loseCalls{begun}, nil
	case len(added) > 0:
		return endAdded{added}, nil
	case len(waiting) > 0 && disabled(s):
		return refuseCalls{waiting}, nil
	case len(waiting) > 0:
		return settleCalls{waiting}, nil
	case !unanswered(s) || steps > 0 && s.Steps >= steps:
		return idle{}, nil
	}
	if c, ok := planCompaction(s, limits); ok {
		return compact{c}, nil
	}
	return askModel{last: steps > 0 && s.Steps == steps-1}, nil
}

// open returns the calls of a session without a settlement, in order. begun has the
// calls that began; waiting has the other calls.
func open(s *conversation.State) (begun, waiting []openCall) {
	for _, m := range s.OpenReplies() {
		for c := range m.Reply.All() {
			a := openCall{*c, m.Reply.Agent, m.ID, cmp.Or(c.AddedBy, m.Reply.Event), m.Reply.Offer}
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

// disabled reports whether the last reply belongs to a turn without tools. A turn without
// a reply does not count: the next step takes the turn again.
func disabled(s *conversation.State) bool { return s.Turn != nil && s.Replied && s.Turn.Disabled }

// unanswered reports whether the model has not read the last prompt, or the end of a
// call of its last reply. It ignores calls that were refused because tools were
// disabled, because their ends are not for the model.
func unanswered(s *conversation.State) bool {
	if len(s.Messages) == 0 {
		return false
	}
	last := s.Messages[len(s.Messages)-1]
	return last.Prompt != nil || len(last.Reply.Calls) > 0 && !disabled(s)
}
