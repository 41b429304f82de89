package stores

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/settlement-ledger/ledger/events"
)

// A sparse log has four records at positions that are not consecutive, as a database has.
// The second and the third are damaged.
type sparse struct{ events.Scanner }

// ReadAll yields the records after a position and ends at the first damaged one.
func (sparse) ReadAll(_ context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for i, at := range []uint64{10, 4711, 4712, 90_000} {
			place := events.NewPosition(at, at-1)
			if place.Compare(after) <= 0 {
				continue
			}
			if i == 1 || i == 2 {
				yield(events.Entry{}, &events.DamagedRecord{Position: place, Err: fmt.Errorf("read at position %s: %w", place, events.ErrDamaged)})
				return
			}
			if !yield(events.Entry{Position: place}, nil) {
				return
			}
		}
	}
}

// In a log whose positions are not consecutive, Entries yields every readable record and one
// error for each damaged one.
func TestReadingGoesOnBehindDamageWherePositionsAreNoSequence(t *testing.T) {
	t.Parallel()
	s := &Store{Log: sparse{}}
	var seen []string
	for e, err := range s.Entries(t.Context(), events.Position{}) {
		switch {
		case err == nil:
			seen = append(seen, e.Position.String())
		case errors.Is(err, events.ErrDamaged):
			seen = append(seen, "damaged")
		default:
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(seen); got != "[10/9 damaged damaged 90000/89999]" {
		t.Errorf("entries yields %s, want every record and each damage", got)
	}
}
