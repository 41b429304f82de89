package embedded

import (
	"math"

	"github.com/settlement-ledger/ledger/events"
)

// A span is a run of sequences, from the first to the last of them. It is empty
// if the first is behind the last.
type span struct{ first, last uint64 }

// spanOf returns the sequences, through end, of the entries that a query may
// ask for by their positions.
func spanOf(q events.Query, end uint64) span {
	above, below := q.After, q.Through // in the order of positions
	s := span{first: 1, last: end}
	if q.Backward {
		above, below = q.Through, q.After
	}
	if !above.IsZero() {
		s.first = max(1, behindPlace(above, !q.Backward))
	}
	if !below.IsZero() {
		s.last = min(end, beforePlace(below, q.Backward))
	}
	return s
}

func (s span) empty() bool { return s.first > s.last }

// behindPlace returns the first sequence whose position is behind p, or at it
// unless that is excluded. There is none behind the last one there can be.
func behindPlace(p events.Position, excluded bool) uint64 {
	commit, prepare := p.Parts()
	if prepare > commit || prepare == commit && excluded {
		if commit == math.MaxUint64 {
			return commit
		}
		return commit + 1
	}
	return commit
}

// beforePlace returns the last sequence whose position is before p, or at it
// unless that is excluded.
func beforePlace(p events.Position, excluded bool) uint64 {
	commit, prepare := p.Parts()
	if commit > 0 && (prepare < commit || prepare == commit && excluded) {
		return commit - 1
	}
	return commit
}
