package publish

import "github.com/settlement-ledger/ledger/events"

// An ackWindow computes the position through which all records are finished,
// while they finish in any order. The zero ackWindow is empty. The caller
// synchronizes.
type ackWindow struct {
	open      []*windowSlot // in the order of the log
	watermark events.Position
}

// A windowSlot is a position in the window.
type windowSlot struct {
	at   events.Position
	done bool
}

// begin appends an unfinished position, higher than all others.
func (t *ackWindow) begin(at events.Position) *windowSlot {
	s := &windowSlot{at: at}
	t.open = append(t.open, s)
	return s
}

// pass appends a finished position, higher than all others.
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

// end finishes a slot and advances the watermark over the finished prefix.
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
