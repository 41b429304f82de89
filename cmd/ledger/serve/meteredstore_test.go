package serve

import (
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// The lag of a subscriber is the number of records that it has yet to receive. A
// subscriber that leaves is no longer counted.
func TestAMeteredStoreSeesHowFarASubscriberIs(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), filepath.Join(t.TempDir(), "store"), embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m := newMeteredStore(store)
	mint := domain.NewMint(time.Now, rand.Reader)
	now := time.Now().UTC().Truncate(time.Microsecond)
	for n := range 3 {
		r := events.Record{ID: mint.Event(), Kind: "K", Version: 1, Time: now, Data: []byte("{}")}
		var err error
		if n < 2 {
			err = m.Append(t.Context(), "s-1", events.Revision(n), r)
		} else {
			_, err = m.Place(t.Context(), "s-1", events.Revision(n), r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Append(t.Context(), "s-1", 9, events.Record{ID: mint.Event(), Kind: "K", Version: 1, Time: now}); err == nil {
		t.Fatal("Append at another length = nil, want a conflict")
	}
	lag := uint64(3)
	for _, err := range m.Follow(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got := m.counters(); got.Subscribers != 1 || got.Lag != lag || got.Appends != 3 || got.Records != 3 || got.Failed != 0 {
			t.Errorf("read() = %+v, want 1 subscriber with a lag of %d, and 3 appends", got, lag)
		}
		if lag--; lag == 0 {
			break
		}
	}
	for range m.FollowEvery(t.Context(), events.Position{}, events.Following{}, 0, nil) {
		if got := m.counters(); got.Subscribers != 1 || got.Lag != 3 {
			t.Errorf("read() = %+v, want 1 subscriber with a lag of 3", got)
		}
		break
	}
	if got := m.counters(); got.Subscribers != 0 || got.Lag != 0 {
		t.Errorf("read() = %+v, want no subscriber", got)
	}
}
