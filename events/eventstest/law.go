package eventstest

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain/lawtest"
	"github.com/settlement-ledger/ledger/events"
)

// ErrHangs is the cause of the context of a check that ran longer than hangTimeout. A
// store that does not respond ends its check with this error.
var ErrHangs = fmt.Errorf("the store hangs: %w", context.DeadlineExceeded)

// hangTimeout bounds a check. It is far longer than any correct store needs, so a
// slow machine does not reach it.
const hangTimeout = 2 * time.Minute

// A Harness gives a check access to one implementation over storage of its own. A
// check calls its functions one after the other, from one goroutine.
type Harness struct {
	// Open opens the store: empty the first time, and later with the records in
	// the storage. A check has at most one store open at a time.
	Open func(context.Context) (events.Store, error)
	// Close closes a store of Open. It returns an error if a loop still holds a
	// resource of the store.
	Close func(events.Store) error
	// CutPower simulates a power cut of an open store and abandons the store:
	// memory is lost, and so may be writes that were not durable. Nil: the
	// storage does not support it, and the law about it is not applicable.
	CutPower func(events.Store) error
}

// A Law is a promise of events.Store, checked on the store of a [Harness].
type Law = lawtest.Law[Harness]

// law returns a Law of this package. Its context ends with ErrHangs after
// hangTimeout. check verifies the promise on one harness. saboteur returns a harness
// over a store that breaks this promise. A new [Slice] serves as the correct store.
func law(name, sentence string, check func(context.Context, Harness) error, saboteur func() Harness) Law {
	return Law{
		Name: name, Sentence: sentence,
		Verify: func(ctx context.Context, h Harness) error {
			ctx, cancel := context.WithTimeoutCause(ctx, hangTimeout, ErrHangs)
			defer cancel()
			return check(ctx, h)
		},
		Correct:  func(context.Context) (Harness, error) { return SliceHarness(), nil },
		Saboteur: func(context.Context) (Harness, error) { return saboteur(), nil },
	}
}

// Laws returns the laws of a Store, each with its sentence, its check and its
// saboteur. The names and sentences are part of docs/laws.md.
func Laws() []Law {
	return []Law{
		law("reads back in order", "What was appended is read back in the order of appending, field for field, also after the store was opened again.", readsBackInOrder, swapsEntries),
		law("all or none", "An append adds all of its records or none of them.", allOrNone, appendsValidPrefix),
		law("stale append conflicts", "An append that names another length than the stream has is a Conflict and changes nothing.", staleAppendConflicts, appendsAcrossGaps),
		law("repeated append is a no-op", "Appending the same records at the same place again succeeds and changes nothing, whatever followed them; any other records there conflict.", repeatIsNoOp, forgetsOlderAppends),
		law("positions increase", "Positions increase from record to record, across streams and across openings, and reading goes on from any of them.", positionsIncrease, restartsPositions),
		law("a follower misses nothing", "A follower yields every record once, in order, from any position, past the point where it caught up.", followerMissesNothing, dropsEntryAfterCatchUp),
		law("acknowledged survives a power cut", "What an append acknowledged is there after the power was cut.", survivesPowerCut, acknowledgesEarly),
		law("data is not shared", "Changing bytes that were given to the store, or received from it, changes nothing that it holds.", dataIsNotShared, sharesGivenBytes),
		law("cancellation yields its cause", "A loop or an append whose context ends yields the cause of that, once, last.", cancellationYieldsCause, dropsCancellationCause),
		law("a closed store says so", "Every operation on a closed store, and every follower waiting in it, ends with ErrClosed.", closedStoreSaysSo, yieldsNothingWhenClosed),
		law("leaving a loop frees everything", "A loop that was left holds nothing: the store goes on, and closes cleanly.", leavingFreesEverything, leaksAbandonedLoops),
		law("invalid records change nothing", "An append without a stream or records, or with a record that is not valid, is ErrBadRecord and changes nothing.", invalidChangesNothing, normalizesTimes),
		law("one of many wins", "Of many appends at the same length of a stream, exactly one succeeds.", oneOfManyWins, letsTwoAppendsWin),
		law("beyond the end is empty", "Reading from the end or beyond it, or a stream that was never appended to, yields nothing.", beyondTheEndIsEmpty, readsFromStartBeyondEnd),
		law("readers see whole appends", "A reader sees all records of an append or none of them.", readersSeeWholeAppends, publishesHalfAppends),
		law("a query filters", "A query yields exactly the entries that it asks for, in its direction: what reading everything and passing over the rest yields.", queryFilters, includesUntil),
		law("pages are the whole", "Pages of a query, each after the last entry of the one before, lose nothing and repeat nothing, while more is appended.", pagesAreTheWhole, cachesEndOfLog),
		law("parts are the whole", "The parts of a query that was split, answered one after the other, yield what the query yields, and the last of them what came later.", partsAreTheWhole, losesEntryBetweenParts),
		law("lent entries and headers are the same", "What is lent, and the headers alone, are those of the entries that the same query yields.", lentIsTheSame, omitsMetadataFromSize),
		law("a filtered follower misses nothing", "A follower with a filter yields every record that passes it once, in order, and has caught up when the rest was passed over.", filteredFollowerMissesNothing, reportsLastMatchAsCaughtUp),
		law("every size comes back", "A record comes back whole, whatever its size, first in a loop or behind others, however it is read.", everySizeComesBack, truncatesFirstEntry),
		law("a bad query yields nothing", "A query or a follower whose filter is not valid ends with ErrBadQuery and yields nothing, and so does a query split into no parts.", badQueriesYieldNothing, acceptsBadQueries),
	}
}

// Test checks every law on an implementation, each in a parallel subtest. open
// returns a fresh harness for each law; it may call t.Cleanup for its storage. A
// subtest is skipped if its law is not applicable to the harness.
func Test(t *testing.T, open func(t *testing.T) Harness) {
	lawtest.Test(t, Laws(), func(t *testing.T, _ Law) Harness { return open(t) })
}

// Report checks every law on a Slice and on the law's saboteur. It writes one line
// for each law to w, as [lawtest.Report] does, and returns an error if a law rejects
// the Slice or accepts its saboteur, or if w fails.
func Report(ctx context.Context, w io.Writer) error { return lawtest.Report(ctx, w, Laws()) }
