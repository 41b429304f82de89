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

const untouched calls.Law = "nobody hides or deletes records"

// A revisionRange is the revisions of a stream from one to another.
type revisionRange struct{ from, through events.Revision }

// A tampering is a change that an administrator made to a stream of a database, with
// the records that are left of the stream and the revisions that are gone.
type tampering struct {
	eventstoredb.Deletion
	left []leftover
	gone []revisionRange
}

// A leftover is a record that the log still has.
type leftover struct {
	revision events.Revision
	at       time.Time
}

// tamperings returns the changes that administrators made to streams, and nil for a
// folder, in which there can be no such change.
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

// add takes in a record of the stream, whose last one before it had a revision, if
// that is known.
func (t *tampering) add(e events.Entry, before events.Revision, known bool) {
	if known && e.Revision > before+1 {
		t.gone = append(t.gone, revisionRange{before + 1, e.Revision - 1})
	}
	t.left = append(t.left, leftover{e.Revision, e.Time})
}

// hidden returns the revisions that the log still has, and the next scavenge
// removes.
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

// checkTampering notes what somebody did to streams, unless it was taken back in
// time.
func (v *verification) checkTampering(now time.Time) {
	for _, t := range slices.SortedFunc(maps.Values(v.tampered), func(a, b *tampering) int { return a.Position.Compare(b.Position) }) {
		if !t.Undone || len(t.gone) > 0 {
			v.except(calls.Exception{Law: untouched, Detail: t.detail(now), Stream: t.Stream, Position: t.Position})
		}
	}
}

// detail tells what was done, what is gone, what will go and what to do.
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

// revisions tells of revisions, with a verb.
func revisions(from, through events.Revision) string {
	return spelled([]revisionRange{{from, through}})
}

// mostSpans bounds how many spans are spelled out.
const mostSpans = 5

// spelled tells of revisions, with a verb.
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
