package views

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// The facts about a call are those of the whole stream, and for some calls a part of the
// stream has them.
func TestACallIsReadAsFarAsItsEventsGo(t *testing.T) {
	t.Parallel()
	short := 0
	for seed := range uint64(6) {
		store, err := embedded.Open(t.Context(), "log", embedded.Config{FS: vfs.NewMem()})
		noError(t, err)
		noError(t, projectionstest.Append(t.Context(), store, projectionstest.History(seed, 600)))
		l := events.NewLedger(store, domain.NewMint(time.Now, nil), time.Now)
		r, err := index.InMemory(t.Context(), l, nil)
		noError(t, err)
		all, err := r.Calls(index.CallQuery{})
		noError(t, err)
		for _, c := range all {
			whole, part := newCallDetail(c), newCallDetail(c)
			n, length := 0, 0
			concerns := calls.NewSelection(c.Key())
			for v, err := range l.Read(t.Context(), events.SessionStream(c.Session), 0) {
				noError(t, err)
				length++
				if concerns.Role(v.Event) != "" {
					whole.apply(v)
					whole.Timeline = append(whole.Timeline, newEventPlace(v))
				}
			}
			noError(t, part.read(func(yield func(events.Envelope, error) bool) {
				for v, err := range l.Read(t.Context(), events.SessionStream(c.Session), 0) {
					if n++; !yield(v, err) {
						return
					}
				}
			}))
			if n < length {
				short++
			}
			want, err := json.Marshal(whole)
			noError(t, err)
			got, err := json.Marshal(part)
			noError(t, err)
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: %d of %d events of %s give\n%s, want\n%s", seed, n, length, c.ID, got, want)
			}
		}
		noError(t, r.Close())
		noError(t, store.Close())
	}
	if short == 0 {
		t.Error("each call was read to the end of its session")
	}
}

// noError ends the test if err is not nil.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
