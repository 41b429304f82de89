package conversation

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// A replyIndex finds the replies of a State and those with open calls, so that the cost of
// an event does not grow with the number of messages.
type replyIndex struct {
	byMessage map[domain.MessageID]*Reply
	// open has the replies with a call without a settlement, in the order of Messages.
	open []Message
}

// newReplyIndex returns the index of messages.
func newReplyIndex(messages []Message) *replyIndex {
	x := &replyIndex{byMessage: map[domain.MessageID]*Reply{}}
	for _, m := range messages {
		if m.Reply == nil {
			continue
		}
		x.byMessage[m.ID] = m.Reply
		if m.Reply.isOpen() {
			x.open = append(x.open, m)
		}
	}
	return x
}

// isOpen reports whether a call of the reply has no settlement.
func (r *Reply) isOpen() bool {
	for c := range r.All() {
		if c.Settlement == nil {
			return true
		}
	}
	return false
}

// Reply returns the reply with a message ID, and whether Messages has it. The state owns
// the reply; the caller must not change it.
func (s *State) Reply(id domain.MessageID) (*Reply, bool) {
	if s.index != nil {
		reply, ok := s.index.byMessage[id]
		return reply, ok
	}
	for _, m := range slices.Backward(s.Messages) {
		if m.ID == id && m.Reply != nil {
			return m.Reply, true
		}
	}
	return nil, false
}

// OpenReplies returns the replies with a call without a settlement, in the order of
// Messages. The state owns them.
func (s *State) OpenReplies() []Message {
	if s.index != nil {
		return s.index.open
	}
	return newReplyIndex(s.Messages).open
}

// indexReply updates the index after a change of a reply. It searches Messages only if an
// older reply has open calls again.
func (s *State) indexReply(id domain.MessageID, reply *Reply) {
	x := s.index
	x.byMessage[id] = reply
	at := slices.IndexFunc(x.open, func(m Message) bool { return m.Reply == reply })
	switch open := reply.isOpen(); {
	case open == (at >= 0):
	case !open:
		x.open = slices.Delete(x.open, at, at+1)
	case s.lastReply() == reply:
		x.open = append(x.open, Message{ID: id, Reply: reply})
	default:
		s.index = newReplyIndex(s.Messages)
	}
}

// lastReply returns the last reply, or nil.
func (s *State) lastReply() *Reply {
	for _, m := range slices.Backward(s.Messages) {
		if m.Reply != nil {
			return m.Reply
		}
	}
	return nil
}
