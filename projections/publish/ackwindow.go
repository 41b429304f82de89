package publish

import "github.com/settlement-ledger/ledger/events"

// An ackWindow computes the watermark, the position through which all records are
// finished, while workers finish records in any order. It is a queue of records in
// log order. It begins with the first unfinished record, and holds finished records
// until the watermark passes them. When a record finishes, the watermark advances
// over the finished records at the beginning of the queue. A restart from the
// watermark therefore misses no record, and publishes again at most the records of
// the queue.
//
// The zero ackWindow is empty. The caller synchronizes; a run holds its mu.
type ackWindow struct {
	// open has the slots in log order. The first slot is unfinished; later ones may be
	// finished.
	open []*windowSlot
	// watermark is the position through which every record is finished.
	watermark events.Position
}

// A windowSlot is a position in an ackWindow. It is the position of a record in
// flight, or the last position in a row of finished or skipped records after a record
// in flight.
type windowSlot struct {
	at   events.Position
	done bool
}

// begin appends an unfinished position, which must be higher than all positions
// before. The caller passes the returned slot to end when the record is finished.
func (t *ackWindow) begin(at events.Position) *windowSlot {
	s := &windowSlot{at: at}
	t.open = append(t.open, s)
	return s
}

// pass appends the position of a skipped record, which must be higher than all
// positions before. If the last slot is finished, pass moves it forward instead of
// adding a slot, so that the window does not grow with the number of skipped records.
func (t *ackWindow) pass(at events.Position) {
	if len(t.open) == 0 {
		t.watermark = at
		return
	}
	if last := t.open[len(t.open)-1]; last.done {
		last.at = at
		return
	}
	t.begin(at).done = true
}

// end marks a slot as finished and advances the watermark over the finished slots at
// the beginning of the window. Amortized over all slots it takes constant time.
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
