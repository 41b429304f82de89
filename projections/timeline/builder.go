package timeline

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Builder makes the entries of one session from its events. The zero Builder is ready
// to use.
type Builder struct {
	held  []heldEntry // in the order of the stream
	bytes int         // the sum of their sizes
	calls map[key]heldCall
	asked map[domain.PermissionID]key // the open requests of held calls
	// number is the number of entries that were added; the entry held[i] has the number
	// number-len(held)+i+1.
	number int
}

// A heldEntry is an entry that was not taken yet, with the size of its texts in bytes.
type heldEntry struct {
	Entry
	bytes int
}

// A heldCall is a call of a held entry, with the number of that entry.
type heldCall struct {
	*Call
	entry int
}

// A key identifies a call in its session.
type key struct {
	message domain.MessageID
	call    domain.CallID
}

// Add adds the next event of the stream.
func (b *Builder) Add(v events.Envelope) {
	if b.addToCall(v) {
		return
	}
	e := Entry{Place: placeOf(v), Event: v.Event}
	b.number++
	switch asks := v.Event.(type) {
	case events.ReplyReceived:
		b.addCalls(&e, asks.Turn, asks.Message, "", asks.Calls)
	case events.CallsAdded:
		turn := domain.TurnID{}
		if parent, ok := b.calls[key{asks.Message, asks.Parent}]; ok {
			turn = parent.Turn
		}
		b.addCalls(&e, turn, asks.Message, asks.Parent, asks.Calls)
	}
	b.held = append(b.held, heldEntry{Entry: e})
	b.grow(b.number, size(v.Event))
}

// addCalls adds the calls that the event of an entry asks for and no held entry has.
func (b *Builder) addCalls(e *Entry, turn domain.TurnID, message domain.MessageID, parent domain.CallID, asked []domain.Call) {
	if b.calls == nil {
		b.calls, b.asked = map[key]heldCall{}, map[domain.PermissionID]key{}
	}
	for _, c := range asked {
		k := key{message, c.ID}
		if _, again := b.calls[k]; again {
			continue
		}
		call := &Call{Turn: turn, Message: message, Parent: parent, Asked: c, AskedAt: e.Place}
		e.Calls = append(e.Calls, call)
		b.calls[k] = heldCall{call, b.number}
	}
}

// addToCall adds an event to the held call that it is about, and reports whether there is
// one.
func (b *Builder) addToCall(v events.Envelope) bool {
	var c heldCall
	var ok bool
	find := func(message domain.MessageID, call domain.CallID) bool {
		c, ok = b.calls[key{message, call}]
		return ok
	}
	switch e := v.Event.(type) {
	case events.CallStarted:
		if find(e.Message, e.Call) {
			c.Starts = append(c.Starts, Start{placeOf(v), e})
		}
	case events.LoopDetected:
		if find(e.Message, e.Call) {
			c.Loops = append(c.Loops, Loop{placeOf(v), e})
		}
	case events.PermissionRequested:
		if find(e.Message, e.Call) {
			c.Permissions = append(c.Permissions, Permission{Place: placeOf(v), PermissionRequested: e})
			b.asked[e.Permission] = key{e.Message, e.Call}
		}
	case events.PermissionDecided:
		if at, asked := b.asked[e.Permission]; asked && find(at.message, at.call) {
			i := slices.IndexFunc(c.Permissions, func(p Permission) bool { return p.Permission == e.Permission })
			if i < 0 || c.Permissions[i].Decision != nil {
				return false
			}
			c.Permissions[i].Decision = &Decision{placeOf(v), e}
		}
	case events.QuestionAsked:
		if find(e.Message, e.Call) {
			c.Questions = append(c.Questions, Question{Place: placeOf(v), QuestionAsked: e})
			b.asked[e.Question] = key{e.Message, e.Call}
		}
	case events.QuestionAnswered:
		if at, asked := b.asked[e.Question]; asked && find(at.message, at.call) {
			i := slices.IndexFunc(c.Questions, func(q Question) bool { return q.Question == e.Question })
			if i < 0 || c.Questions[i].Answer != nil {
				return false
			}
			c.Questions[i].Answer = &Answer{placeOf(v), e}
		}
	case events.CallSettled:
		if find(e.Message, e.Call) {
			if c.End != nil {
				return false // a second settlement breaks a law, and stays visible
			}
			c.End = &End{placeOf(v), e}
		}
	case events.LateResultObserved:
		if find(e.Message, e.Call) {
			c.Late = append(c.Late, LateResult{placeOf(v), e})
		}
	}
	if ok {
		b.grow(c.entry, size(v.Event))
	}
	return ok
}

// grow adds to the size of a held entry.
func (b *Builder) grow(number, bytes int) {
	b.held[len(b.held)-1-(b.number-number)].bytes += bytes
	b.bytes += bytes
}

// Take passes the entries that need not wait any longer, in the order of the stream, and
// drops them.
func (b *Builder) Take(yield func(Entry) bool) {
	for len(b.held) > 0 && (b.held[0].settled() || len(b.held) > maxHeld || b.bytes > maxHeldBytes) {
		if !yield(b.first()) {
			return
		}
	}
}

// Rest passes all entries that are left, at the end of the stream.
func (b *Builder) Rest(yield func(Entry) bool) {
	for len(b.held) > 0 {
		if !yield(b.first()) {
			return
		}
	}
}

// first removes the first held entry.
func (b *Builder) first() Entry {
	e := b.held[0]
	b.held[0] = heldEntry{}
	b.held = b.held[1:]
	b.bytes -= e.bytes
	for _, c := range e.Calls {
		delete(b.calls, key{c.Message, c.Asked.ID})
		for _, p := range c.Permissions {
			delete(b.asked, p.Permission)
		}
		for _, q := range c.Questions {
			delete(b.asked, q.Question)
		}
	}
	return e.Entry
}

// size estimates the memory that the large texts of an event take, in bytes.
func size(e events.Event) int {
	const fixed = 512
	switch e := e.(type) {
	case events.PromptAdmitted:
		return fixed + len(e.Text) + contentSize(e.Media)
	case events.ReplyReceived:
		return fixed + len(e.Text) + len(e.Thinking) + inputSize(e.Calls)
	case events.ReplyRefused:
		return fixed + len(e.Text) + len(e.Thinking) + inputSize(e.Calls)
	case events.CallsAdded:
		return fixed + inputSize(e.Calls)
	case events.CallStarted:
		return fixed + len(e.Input)
	case events.CallSettled:
		n := fixed + len(e.Text) + len(e.Input) + len(e.Structured) + contentSize(e.Content)
		if e.Progress != nil {
			n += len(e.Progress.Structured) + contentSize(e.Progress.Content)
		}
		return n
	case events.LateResultObserved:
		return fixed + len(e.Text) + len(e.Structured)
	case events.PermissionRequested:
		return fixed + len(e.Metadata) + len(e.Shown.Text)
	case events.TextRecorded:
		return fixed + len(e.Text)
	case events.TurnMaterialized:
		return fixed + 200*(len(e.Tools)+len(e.Hidden))
	case events.CommandRan:
		return fixed + len(e.Command) + len(e.Output)
	case events.ContextAdded:
		return fixed + len(e.Text)
	case events.Unknown:
		return fixed + len(e.Data)
	}
	return fixed
}

// inputSize returns the size of the inputs of calls, in bytes.
func inputSize(calls []domain.Call) (n int) {
	for _, c := range calls {
		n += len(c.Input)
	}
	return n
}

// contentSize returns the size of texts and media, in bytes.
func contentSize(contents domain.Contents) (n int) {
	for _, c := range contents {
		switch c := c.(type) {
		case domain.Text:
			n += len(c)
		case domain.Media:
			n += len(c.Data)
		}
	}
	return n
}
