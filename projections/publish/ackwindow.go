package publish

import "github.com/settlement-ledger/ledger/events"

// A ackWindow knows through which position everything is done, while records are
// done in any order. The zero ackWindow has nothing open.
type ackWindow struct {
	open      []*windowSlot // in the order of the log
	watermark events.Position
}

// A windowSlot is a place in the log that a run passes.
type windowSlot struct {
	at   events.Position
	done bool
}

// begin adds a place behind all others.
func (t *ackWindow) begin(at events.Position) *windowSlot {
	s := &windowSlot{at: at}
	t.open = append(t.open, s)
	return s
}

// pass adds a place, behind all others, at which nothing is to be done.
func (t *ackWindow) pass(at events.Position) {
	if len(t.open) == 0 {
		t.watermark = at
		return
	}
	// What is passed behind a place that is passed takes no room of its own.
	if last := t.open[len(t.open)-1]; last.done {
		last.at = at
		return
	}
	t.begin(at).done = true
}

// end says that what was to be done at a place is done.
func (t *ackWindow) end(s *windowSlot) {
	s.done = true
	n := 0
	for n < len(t.open) && t.open[n].done {
		t.watermark = t.open[n].at
		t.open[n] = nil
		n++
	}
	t.open = t.open[n:]
}
