package main

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

// untouched is broken if an administrator of a database deletes or hides records of
// the ledger's streams.
const untouched calls.Law = "nobody hides or deletes records"

// A revisionRange is a range of revisions of one stream. Both ends are included.
type revisionRange struct{ from, through events.Revision }

// A tampering is a deletion in a database, with the effect on the records of the
// stream as far as verify has read the log.
type tampering struct {
	eventstoredb.Deletion
	left []leftover      // records that the log still holds, in the order of the log
	gone []revisionRange // revisions that the log no longer holds
}

// A leftover is a record of a tampered stream that the log still holds.
type leftover struct {
	revision events.Revision
	at       time.Time // the time of the record
}

// tamperings returns the deletions that administrators of a database made, by
// stream. For a folder it returns nil, as a folder has no such operation.
func tamperings(ctx context.Context, s *stores.Store) (map[events.Stream]*tampering, error) {
	database, ok := s.Log.(*eventstoredb.Store)
	if !ok {
		return nil, nil
	}
	all, err := database.Deletions(ctx)
	if err != nil {
		return nil, err
	}
	tampered := map[events.Stream]*tampering{}
	for _, i := range all {
		tampered[i.Stream] = &tampering{Deletion: i}
	}
	return tampered, nil
}

// add notes that the log holds e. before is the revision of the stream's previous
// record, and known is false if that record could not be read.
func (t *tampering) add(e events.Entry, before events.Revision, known bool) {
	if known && e.Revision > before+1 {
		t.gone = append(t.gone, revisionRange{before + 1, e.Revision - 1})
	}
	t.left = append(t.left, leftover{e.Revision, e.Time})
}

// hidden returns the revisions that the log still holds but the deletion hides. The
// next scavenge of the database removes them.
func (t *tampering) hidden(now time.Time) (spans []revisionRange) {
	if len(t.left) == 0 {
		return nil
	}
	length := t.left[len(t.left)-1].revision
	for _, l := range t.left {
		switch last := len(spans) - 1; {
		case !t.Hides(l.revision, l.at, length, now):
		case last >= 0 && spans[last].through+1 == l.revision:
			spans[last].through = l.revision
		default:
			spans = append(spans, revisionRange{l.revision, l.revision})
		}
	}
	return spans
}

// checkTampering adds an exception for each deletion, in the order of the log. A
// deletion that was undone before a scavenge removed records is no exception.
func (v *verification) checkTampering(now time.Time) {
	for _, t := range slices.SortedFunc(maps.Values(v.tampered), func(a, b *tampering) int { return a.Position.Compare(b.Position) }) {
		if !t.Undone || len(t.gone) > 0 {
			v.except(calls.Exception{Law: untouched, Detail: t.detail(now), Stream: t.Stream, Position: t.Position})
		}
	}
}

// detail returns the text of the exception: the deletion, the removed revisions, the
// revisions that the next scavenge will remove, and the remedy.
func (t *tampering) detail(now time.Time) string {
	parts := []string{stores.DescribeDeletion(t.Deletion)}
	if len(t.gone) > 0 {
		parts = append(parts, spelled(t.gone)+" gone: only a backup or a copy of the ledger has them")
	} else if len(t.left) == 0 {
		parts = append(parts, "its records are gone, if it had any: only a backup or a copy of the ledger has them")
	}
	switch hidden := t.hidden(now); {
	case t.Undone:
		parts = append(parts, "that was taken back since")
	case len(hidden) > 0:
		parts = append(parts, spelled(hidden)+" hidden from readers of the stream, and will go at the next scavenge: "+stores.DeletionRemedy(t.Deletion))
	case !t.Tombstone:
		parts = append(parts, "no record that is left is hidden by now: "+stores.DeletionRemedy(t.Deletion))
	}
	return strings.Join(parts, "; ")
}

// revisions returns a range as the subject and the verb of a sentence, such as
// "revisions 2 to 5 are".
func revisions(from, through events.Revision) string {
	return spelled([]revisionRange{{from, through}})
}

// mostSpans is the number of ranges that spelled writes out. It counts the others.
const mostSpans = 5

// spelled returns ranges as the subject and the verb of a sentence.
func spelled(spans []revisionRange) string {
	var texts []string
	for n, s := range spans {
		switch {
		case n == mostSpans:
			texts = append(texts, fmt.Sprintf("and %d more spans", len(spans)-n))
		case n > mostSpans:
		case s.from == s.through:
			texts = append(texts, fmt.Sprint(s.from))
		default:
			texts = append(texts, fmt.Sprintf("%d to %d", s.from, s.through))
		}
	}
	if len(spans) == 1 && spans[0].from == spans[0].through {
		return "revision " + texts[0] + " is"
	}
	return "revisions " + strings.Join(texts, ", ") + " are"
}
