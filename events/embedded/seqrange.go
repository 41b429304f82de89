package embedded

import (
	"math"

	"github.com/settlement-ledger/ledger/events"
)

// A seqRange is a range of sequences, both ends included. It is empty if first is
// greater than last.
type seqRange struct{ first, last uint64 }

// rangeOf returns the range of sequences that the positions After and Through of a query
// select. After is excluded and Through is included, in the direction of the query. No
// sequence of the range is greater than the argument end.
func rangeOf(q events.Query, end uint64) seqRange {
	above, below := q.After, q.Through // the lower and the upper bound
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

// empty reports whether the range has no sequence.
func (s seqRange) empty() bool { return s.first > s.last }

// firstSequence returns the first sequence whose position is p or greater. If
// excluded is true, the position must be greater than p. The two parts of a position
// of another store may differ; the result is then the first sequence after it. The
// result is at most math.MaxUint64.
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

// lastSequenceAt returns the last sequence whose position is p or less. If excluded
// is true, the position must be less than p. It returns 0 if there is no such
// sequence.
func lastSequenceAt(p events.Position, excluded bool) uint64 {
	commit, prepare := p.Parts()
	if commit > 0 && (prepare < commit || prepare == commit && excluded) {
		return commit - 1
	}
	return commit
}
