package eventstoredb_test

import (
	"errors"
	"os"
	"testing"

	"github.com/settlement-ledger/ledger/domain/lawtest"
	"github.com/settlement-ledger/ledger/events/eventstest"
)

// repeats returns how often a test repeats: short, or long if the environment
// asks for it.
func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}

// The conditions under which the laws are checked besides the ordinary one.
const (
	serverRestarts = iota
	inNamespace
	leaderMoves
	connectionsBreak
	conditions
)

// testUnder checks the laws under one of the conditions: every law if the
// environment asks for a long test, and otherwise one in four, so that each law
// is checked under one of the conditions.
func testUnder(t *testing.T, condition int, open func(t *testing.T) eventstest.Harness) {
	for i, law := range eventstest.Laws() {
		if i%repeats(conditions, 1) != condition%repeats(conditions, 1) {
			continue
		}
		t.Run(law.Name, func(t *testing.T) {
			t.Parallel()
			if err := law.Check(t.Context(), open(t)); errors.Is(err, lawtest.ErrNotApplicable) {
				t.Skip(err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// The laws of a store hold for the adapter.
func TestEveryLawHolds(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(t *testing.T) eventstest.Harness { return newDatabase(t).harness() })
}

// The laws of a store hold while the server restarts at random.
func TestEveryLawHoldsWhileTheServerRestarts(t *testing.T) {
	t.Parallel()
	testUnder(t, serverRestarts, func(t *testing.T) eventstest.Harness {
		d := newDatabase(t)
		d.restartAtRandom()
		return d.harness()
	})
}

// The laws of a store hold in a namespace of a database with other streams.
func TestEveryLawHoldsInANamespace(t *testing.T) {
	t.Parallel()
	testUnder(t, inNamespace, func(t *testing.T) eventstest.Harness {
		d := newDatabase(t)
		d.config.Namespace = "acme."
		d.addForeignStreams()
		return d.harness()
	})
}

// A random history has the same results on the adapter and on a slice in memory.
func TestSameHistoryAsTheSlice(t *testing.T) {
	t.Parallel()
	eventstest.TestSame(t, uint64(repeats(3, 12)), func() eventstest.Harness { return newDatabase(t).harness() }, eventstest.SliceHarness)
}
