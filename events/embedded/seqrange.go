package embedded

import (
	"math"

	"github.com/settlement-ledger/ledger/events"
)

// A span is a run of sequences, from the first to the last of them. It is empty
// if the first is behind the last.
type seqRange struct{ first, last uint64 }

// rangeOf returns the sequences, through end, of the entries that a query may
// ask for by their positions.
func rangeOf(q events.Query, end uint64) seqRange {
	above, below := q.After, q.Through // in the order of positions
	s := seqRange{first: 1, last: end}
	if q.Backward {
		above, below = q.Through, q.After
	}
	if !above.IsZero() {
		s.first = max(1, firstSequence(above, !q.Backward))
	}
	if !below.IsZero() {
		s.last = min(end, lastSequenceAt(below, q.Backward))
	}
	return s
}

func (s seqRange) empty() bool { return s.first > s.last }

// firstSequence returns the first sequence whose position is behind p, or at it
// unless that is excluded. There is none behind the last one there can be.
func firstSequence(p events.Position, excluded bool) uint64 {
	commit, prepare := p.Parts()
	if prepare > commit || prepare == commit && excluded {
		if commit == math.MaxUint64 {
			return commit
		}
		return commit + 1
	}
	return commit
}

// lastSequenceAt returns the last sequence whose position is before p, or at it
// unless that is excluded.
func lastSequenceAt(p events.Position, excluded bool) uint64 {
	commit, prepare := p.Parts()
	if commit > 0 && (prepare < commit || prepare == commit && excluded) {
		return commit - 1
	}
	return commit
}
