package conversation

import (
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Compaction says what requests leave out of a session. It has the last ContextCompacted
// that names a message or a result; one of another program names none.
type Compaction struct {
	// Event is the ContextCompacted.
	Event domain.EventID `json:"event"`
	// LeftOut is the number of messages that requests leave out, from the first one on.
	LeftOut int `json:"left_out"`
	// Compacted is the content of the event.
	Compacted events.ContextCompacted `json:"compacted"`
}

// compacted folds a compaction. A later one replaces the ones before. After Forget it may
// name a message that is forgotten; it then leaves out the same messages as the one before.
func (s *State) compacted(e events.ContextCompacted, id domain.EventID) {
	s.Exceeded = false
	leftOut := 0
	if s.Compaction != nil && s.Forgotten.Messages() > 0 && s.Compaction.Compacted.Through == e.Through {
		leftOut = s.Compaction.LeftOut
	}
	for i, m := range s.Messages {
		if m.ID == e.Through {
			leftOut = s.Forgotten.Messages() + i + 1
		}
	}
	if leftOut > 0 || len(e.Shortened) > 0 {
		s.Compaction = &Compaction{Event: id, LeftOut: leftOut, Compacted: e}
	}
}

// Visible returns the messages that requests contain: all, or those behind the ones that
// a compaction left out. The state owns them.
func (s *State) Visible() []Message {
	if s.Compaction == nil {
		return s.Messages
	}
	return s.Messages[min(max(0, s.Compaction.LeftOut-s.Forgotten.Messages()), len(s.Messages)):]
}

// Forget drops the messages that requests leave out, up to the first one with an open
// call. No later event changes the rest of the state otherwise than without Forget, except
// that late results of forgotten calls are not counted and a later compaction cannot show
// forgotten messages again. Slices of Messages that the caller holds stay as they are.
func (s *State) Forget() {
	n := len(s.Messages) - len(s.Visible())
	if open := s.OpenReplies(); len(open) > 0 {
		first := slices.IndexFunc(s.Messages[:n], func(m Message) bool { return m.Reply == open[0].Reply })
		if first >= 0 {
			n = first
		}
	}
	if n == 0 {
		return
	}
	s.Forgotten.Add(s.Messages[:n])
	s.Messages = slices.Clone(s.Messages[n:])
	s.index = newReplyIndex(s.Messages)
}

// preface returns the text that requests have in place of the messages left out, or "" if
// there are none.
func (c *Compaction) preface() string {
	if c == nil || c.LeftOut == 0 {
		return ""
	}
	by := "a model"
	if c.Compacted.Detail != "" {
		by = "the program"
	}
	return fmt.Sprintf("[The beginning of this session does not fit into the context and is left out: prompts: %d, replies: %d, tool calls: %d. A summary, written by %s, takes its place.]\n\n%s\n\n[The summary ends here, and the session goes on.]",
		c.Compacted.Prompts, c.Compacted.Replies, c.Compacted.Calls, by, c.Compacted.Summary)
}

// shortened returns the sizes in bytes of the results that requests leave out.
func (c *Compaction) shortened() map[resultKey]int64 {
	if c == nil {
		return nil
	}
	sizes := map[resultKey]int64{}
	for _, r := range c.Compacted.Shortened {
		sizes[resultKey{r.Message, r.Call}] = r.Bytes
	}
	return sizes
}

// A resultKey identifies the result of a call in its session.
type resultKey struct {
	message domain.MessageID
	call    domain.CallID
}

// shortResult is the result that a model reads in place of one that requests leave out.
func shortResult(size int64) domain.ToolResult {
	return domain.ToolResult{Text: fmt.Sprintf("[The call succeeded. Its result of %d bytes does not fit into the context and is left out. If it is needed, ask for it again in smaller parts.]", size)}
}
