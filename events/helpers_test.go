package events_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// noon is a time that is neither in UTC nor whole microseconds.
func noon() time.Time {
	return time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("", 3600))
}

func newLedger(store events.Store) *events.Ledger {
	return events.NewLedger(store, domain.NewMint(noon, rand.NewChaCha8([32]byte{1})), noon)
}

// prompts returns n drafts of events that differ.
func prompts(l *events.Ledger, n int) []events.Draft {
	drafts := make([]events.Draft, n)
	for i := range drafts {
		drafts[i] = l.Draft(events.PromptAdmitted{Message: l.Mint().Message(), Text: "go on"}, domain.EventID{})
	}
	return drafts
}

func idsOf(drafts []events.Draft) []domain.EventID {
	ids := make([]domain.EventID, len(drafts))
	for i, d := range drafts {
		ids[i] = d.ID
	}
	return ids
}

// storedIDs returns the IDs on record in a stream.
func storedIDs(t *testing.T, store events.Store, s events.Stream) []domain.EventID {
	t.Helper()
	ids := []domain.EventID{}
	for e, err := range store.Read(context.WithoutCancel(t.Context()), s, 0) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}
