package eventstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// The errors of a check.
var (
	ErrNotApplicable = errors.New("the storage cannot do what the law is about")
	ErrHangs         = errors.New("the store hangs")
)

// patience is how long a check may take before the store is said to hang. It
// is far longer than any store needs.
const patience = 2 * time.Minute

// A Harness is how a check gets at one implementation over storage of its own.
type Harness struct {
	// Open opens the store: empty the first time, and with what the storage
	// holds after that. At most one store is open at a time.
	Open func(context.Context) (events.Store, error)
	// Close closes a store that Open returned. It returns an error if
	// something that the store lent is still held.
	Close func(events.Store) error
	// CutPower does to the storage of an open store what a power cut does, and
	// gives up the store: what was not durable may be lost and what was in
	// memory is. Nil: the storage cannot, and the law about it is reported as
	// not applicable.
	CutPower func(events.Store) error
}

// A Law is a promise of events.Store.
type Law struct {
	Name     string // a few words
	Sentence string // what holds
	check    func(context.Context, Harness) error
}

// Check returns nil if the store of h keeps the law, ErrNotApplicable if its
// storage cannot show it, and else an error that quotes the sentence. The
// storage of h must be empty, and is of no further use.
func (l Law) Check(ctx context.Context, h Harness) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrHangs)
	defer cancel()
	if err := l.check(ctx, h); err != nil {
		return fmt.Errorf("law %q: %s: %w", l.Name, l.Sentence, err)
	}
	return nil
}

// Laws returns every law of a Store. A Law is named once.
func Laws() []Law {
	return []Law{
		{"reads back in order", "What was appended is read back in the order of appending, field for field, also after the store was opened again.", readsBackInOrder},
		{"all or none", "An append adds all of its records or none of them.", allOrNone},
		{"stale append conflicts", "An append that names another length than the stream has is a Conflict and changes nothing.", staleAppendConflicts},
		{"repeated append is a no-op", "Appending the same records at the same place again succeeds and changes nothing, whatever followed them; any other records there conflict.", repeatIsNoOp},
		{"positions increase", "Positions increase from record to record, across streams and across openings, and reading goes on from any of them.", positionsIncrease},
		{"a follower misses nothing", "A follower yields every record once, in order, from any position, past the point where it caught up.", followerMissesNothing},
		{"acknowledged survives a power cut", "What an append acknowledged is there after the power was cut.", survivesPowerCut},
		{"data is not shared", "Changing bytes that were given to the store, or received from it, changes nothing that it holds.", dataIsNotShared},
		{"cancellation yields its cause", "A loop or an append whose context ends yields the cause of that, once, last.", cancellationYieldsCause},
		{"a closed store says so", "Every operation on a closed store, and every follower waiting in it, ends with ErrClosed.", closedStoreSaysSo},
		{"leaving a loop frees everything", "A loop that was left holds nothing: the store goes on, and closes cleanly.", leavingFreesEverything},
		{"invalid records change nothing", "An append without a stream or records, or with a record that is not valid, is ErrBadRecord and changes nothing.", invalidChangesNothing},
		{"one of many wins", "Of many appends at the same length of a stream, exactly one succeeds.", oneOfManyWins},
		{"beyond the end is empty", "Reading from the end or beyond it, or a stream that was never appended to, yields nothing.", beyondTheEndIsEmpty},
		{"readers see whole appends", "A reader sees all records of an append or none of them.", readersSeeWholeAppends},
		{"a query filters", "A query yields exactly the entries that it asks for, in its direction: what reading everything and passing over the rest yields.", queryFilters},
		{"pages are the whole", "Pages of a query, each after the last entry of the one before, lose nothing and repeat nothing, while more is appended.", pagesAreTheWhole},
		{"parts are the whole", "The parts of a query that was split, answered one after the other, yield what the query yields, and the last of them what came later.", partsAreTheWhole},
		{"lent entries and headers are the same", "What is lent, and the headers alone, are those of the entries that the same query yields.", lentIsTheSame},
		{"a filtered follower misses nothing", "A follower with a filter yields every record that passes it once, in order, and has caught up when the rest was passed over.", filteredFollowerMissesNothing},
		{"every size comes back", "A record comes back whole, whatever its size, first in a loop or behind others, however it is read.", everySizeComesBack},
		{"a bad query yields nothing", "A query or a follower whose filter is not valid ends with ErrBadQuery and yields nothing, and so does a query split into no parts.", badQueriesYieldNothing},
	}
}

// Test checks every law against the implementation whose harnesses open makes,
// a fresh one for each law. It is the whole of an implementation's test of
// them. A law that does not apply is skipped by name.
func Test(t *testing.T, open func(t *testing.T) Harness) {
	for _, law := range Laws() {
		t.Run(law.Name, func(t *testing.T) {
			t.Parallel()
			err := law.Check(t.Context(), open(t))
			if errors.Is(err, ErrNotApplicable) {
				t.Skipf("not applicable: law %q: %s", law.Name, law.Sentence)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Report checks every law against a store that keeps it and against its
// saboteur, and writes a line for each law. It returns an error if a law fails
// the first or passes the second.
func Report(ctx context.Context, w io.Writer) error {
	var faults []error
	for _, law := range Laws() {
		verdict := "saboteur caught"
		if err := trial(ctx, law); err != nil {
			verdict = err.Error()
			faults = append(faults, err)
		}
		if _, err := fmt.Fprintf(w, "law %s: %s — %s\n", law.Name, law.Sentence, verdict); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return errors.Join(faults...)
}

// trial returns nil if law passes the slice and fails its saboteur.
func trial(ctx context.Context, law Law) error {
	if err := law.Check(ctx, SliceHarness()); err != nil {
		return fmt.Errorf("the slice store is refused: %w", err)
	}
	sabotage, ok := saboteurs()[law.Name]
	if !ok {
		return fmt.Errorf("law %q has no saboteur", law.Name)
	}
	if err := law.Check(ctx, sabotage()); err == nil {
		return fmt.Errorf("law %q: saboteur not caught", law.Name)
	}
	return nil
}
