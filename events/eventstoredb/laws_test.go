package eventstoredb_test

import (
	"testing"

	"github.com/settlement-ledger/ledger/events/eventstest"
)

func TestEveryLawHolds(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(t *testing.T) eventstest.Harness { return newDatabase(t).harness() })
}

func TestEveryLawHoldsWhileTheServerRestarts(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(t *testing.T) eventstest.Harness {
		d := newDatabase(t)
		d.restless()
		return d.harness()
	})
}

func TestEveryLawHoldsInANamespace(t *testing.T) {
	t.Parallel()
	eventstest.Test(t, func(t *testing.T) eventstest.Harness {
		d := newDatabase(t)
		d.config.Namespace = "acme."
		d.neighbours()
		return d.harness()
	})
}

func TestSameHistoryAsTheSlice(t *testing.T) {
	t.Parallel()
	eventstest.TestSame(t, 12, func() eventstest.Harness { return newDatabase(t).harness() }, eventstest.SliceHarness)
}
