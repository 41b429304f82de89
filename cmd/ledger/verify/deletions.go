package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// RecordsKept is broken if an administrator of a database deletes or hides records of
// the ledger's streams.
const RecordsKept calls.Law = "nobody hides or deletes records"

// A revisionRange is a range of revisions of one stream. Both ends are included.
type revisionRange struct{ from, through events.Revision }

// A streamDeletion is a deletion that an administrator of a database made in a stream.
// It collects the effect on the records of the stream while verify reads the log.
type streamDeletion struct {
	eventstoredb.Deletion
	remaining []remainingRecord // records that the log still holds, in the order of the log
	missing   []revisionRange   // revisions that the log no longer holds
}

// A remainingRecord is a record that is still in the log, of a stream with a deletion.
type remainingRecord struct {
	revision events.Revision
	time     time.Time // the time of the record
}

// readDeletions returns the deletions that administrators of a database made, by
// stream. For a folder it returns nil, as a folder has no such operation.
func readDeletions(ctx context.Context, s *stores.Store) (map[events.Stream]*streamDeletion, error) {
	database, ok := s.Log.(*eventstoredb.Store)
	if !ok {
		return nil, nil
	}
	all, err := database.Deletions(ctx)
	if err != nil {
		return nil, err
	}
	deletions := map[events.Stream]*streamDeletion{}
	for _, d := range all {
		deletions[d.Stream] = &streamDeletion{Deletion: d}
	}
	return deletions, nil
}

// add adds the record e to the remaining records of the stream. It adds the revisions
// between the revision before and that of e to the missing ones. before is the revision
// of the stream's previous record; known is false if that record could not be read.
func (d *streamDeletion) add(e events.Envelope, before events.Revision, known bool) {
	if known && e.Revision > before+1 {
		d.missing = append(d.missing, revisionRange{before + 1, e.Revision - 1})
	}
	d.remaining = append(d.remaining, remainingRecord{e.Revision, e.Time})
}

// hiddenRanges returns the revisions whose records are still in the log but are hidden
// by the deletion. The next scavenge of the database removes these records.
func (d *streamDeletion) hiddenRanges(now time.Time) (ranges []revisionRange) {
	if len(d.remaining) == 0 {
		return nil
	}
	length := d.remaining[len(d.remaining)-1].revision
	for _, l := range d.remaining {
		switch last := len(ranges) - 1; {
		case !d.Hides(l.revision, l.time, length, now):
		case last >= 0 && ranges[last].through+1 == l.revision:
			ranges[last].through = l.revision
		default:
			ranges = append(ranges, revisionRange{l.revision, l.revision})
		}
	}
	return ranges
}

// checkDeletions adds an exception for each deletion, in the order of the log. A
// deletion that was undone before a scavenge removed records is no exception.
func (v *Report) checkDeletions(now time.Time) {
	for _, d := range slices.SortedFunc(maps.Values(v.deletions), func(a, b *streamDeletion) int { return a.Position.Compare(b.Position) }) {
		if !d.Undone || len(d.missing) > 0 {
			v.except(calls.Exception{Law: RecordsKept, Detail: d.detail(now), Stream: d.Stream, Position: d.Position})
		}
	}
}

// detail returns the text of the exception: the deletion, the removed revisions, the
// revisions that the next scavenge will remove, and the remedy.
func (d *streamDeletion) detail(now time.Time) string {
	parts := []string{stores.DescribeDeletion(d.Deletion)}
	if len(d.missing) > 0 {
		parts = append(parts, formatRanges(d.missing)+" gone: only a backup or a copy of the ledger has them")
	} else if len(d.remaining) == 0 {
		parts = append(parts, "its records are gone, if it had any: only a backup or a copy of the ledger has them")
	}
	switch hidden := d.hiddenRanges(now); {
	case d.Undone:
		parts = append(parts, "that was taken back since")
	case len(hidden) > 0:
		parts = append(parts, formatRanges(hidden)+" hidden from readers of the stream, and will go at the next scavenge: "+stores.DeletionRemedy(d.Deletion))
	case !d.Tombstone:
		parts = append(parts, "no record that is left is hidden by now: "+stores.DeletionRemedy(d.Deletion))
	}
	return strings.Join(parts, "; ")
}

// formatRange returns a range as the subject and the verb of a sentence, such as
// "revisions 2 to 5 are".
func formatRange(from, through events.Revision) string {
	return formatRanges([]revisionRange{{from, through}})
}

// maxRanges is the number of ranges that formatRanges lists. If there are more,
// formatRanges appends the number of the remaining ranges.
const maxRanges = 5

// formatRanges returns ranges as the subject and the verb of a sentence, such as
// "revisions 1, 4 to 5 are".
func formatRanges(ranges []revisionRange) string {
	var texts []string
	for n, s := range ranges {
		switch {
		case n == maxRanges:
			texts = append(texts, fmt.Sprintf("and %d more spans", len(ranges)-n))
		case n > maxRanges:
		case s.from == s.through:
			texts = append(texts, fmt.Sprint(s.from))
		default:
			texts = append(texts, fmt.Sprintf("%d to %d", s.from, s.through))
		}
	}
	if len(ranges) == 1 && ranges[0].from == ranges[0].through {
		return "revision " + texts[0] + " is"
	}
	return "revisions " + strings.Join(texts, ", ") + " are"
}
