package embedded

import (
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// weighingFactor is the number of ranges for each part whose bytes Split estimates.
// More ranges make the parts more equal, but each range costs an estimate and a seek.
const weighingFactor = 16

// Split implements events.Scanner. It cuts a query into queries of about the same number
// of bytes. The argument parts is the largest number of queries to return; a number
// above 4096 counts as 4096. Split estimates the bytes without regard to the filter, so
// a filter can make the queries unequal. It does not cut a query of one stream, and
// returns it alone.
func (s *Store) Split(ctx context.Context, q events.Query, parts int) ([]events.Query, error) {
	if parts < 1 {
		return nil, fmt.Errorf("%w: %d parts are none", events.ErrBadQuery, parts)
	}
	if err := q.Valid(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	parts = min(parts, 1<<12)
	var cutPoints []uint64
	err := s.use(func() (err error) {
		end, _ := s.watermark.load()
		if all := rangeOf(q, end); q.Stream == "" && parts > 1 && !all.empty() {
			cutPoints, err = s.cutPoints(all, parts)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("split a query into %d parts: %w", parts, err)
	}
	return cutQuery(q, cutPoints), nil
}

// cutQuery cuts a query after each of the sequences cutPoints, which are in ascending
// order and within its range. It may reverse the slice in place. The last query keeps
// Through of the original, so a forward query without an end includes later appends.
func cutQuery(q events.Query, cutPoints []uint64) []events.Query {
	if q.Backward {
		slices.Reverse(cutPoints)
	}
	var queries []events.Query
	for _, cut := range cutPoints {
		piece := q
		piece.Through = events.NewPosition(cut, cut)
		q.After = piece.Through
		if q.Backward {
			piece.Through = events.NewPosition(cut+1, cut+1)
			q.After = piece.Through
		}
		queries = append(queries, piece)
	}
	return append(queries, q)
}

// cutPoints returns the sequences after which to cut a range into the given number of
// parts of about equal size. It returns at most parts-1 sequences. It divides the range
// into runs of about equal length and estimates the bytes of each run. It adds these up,
// and makes a cut each time the sum reaches a further 1/parts of the total.
func (s *Store) cutPoints(all seqRange, parts int) (cutPoints []uint64, err error) {
	runs := all.runs(weighingFactor * parts)
	weights, total := make([]uint64, len(runs)), uint64(0)
	for i, run := range runs {
		if weights[i], err = s.estimateBytes(run); err != nil {
			return nil, err
		}
		total += weights[i]
	}
	sum := uint64(0)
	for i, run := range runs[:len(runs)-1] {
		sum += weights[i]
		if sum >= total/uint64(parts)*uint64(len(cutPoints)+1) && len(cutPoints) < parts-1 {
			cutPoints = append(cutPoints, run.last)
		}
	}
	return cutPoints, nil
}

// runs cuts a range that is not empty into ranges of about the same length. The argument
// most is the largest number of ranges. A range with fewer sequences than that is cut
// into one range for each sequence.
func (s seqRange) runs(most int) []seqRange {
	length := s.last - s.first + 1
	most = int(min(uint64(most), length))
	runs := make([]seqRange, most)
	from := s.first
	for i := range runs {
		left := uint64(most - i)
		size := (s.last - from + left) / left // rounded up
		runs[i] = seqRange{from, from + size - 1}
		from += size
	}
	return runs
}

// estimateBytes estimates the bytes of the records in a range. It takes the larger of
// two numbers: the bytes on the disk, and the size of the first record times the
// number of records, reduced by a typical compression. The second one counts records
// that are still in memory.
func (s *Store) estimateBytes(run seqRange) (uint64, error) {
	onDisk, err := s.db.EstimateDiskUsage(layout.EntryKey(run.first), layout.UpperBound(run.last))
	if err != nil {
		return 0, layout.AsDamaged(err)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(run.first), UpperBound: layout.UpperBound(run.first)})
	if err != nil {
		return 0, layout.AsDamaged(err)
	}
	if !it.First() {
		return 0, layout.CloseIter(it, layout.Missing(it, run.first))
	}
	r, err := layout.RecordAt(it, run.first)
	const compressed = 3 // typical ratio of a record to its compressed size
	return max(onDisk, (run.last-run.first+1)*uint64(len(r))/compressed), layout.CloseIter(it, err)
}
